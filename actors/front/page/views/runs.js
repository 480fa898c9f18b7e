// The list of runs, those under way and those before.

import { h, mark, say } from "../dom.js";
import { cost, count, duration, instant, line, moment } from "../model/format.js";
import { ListView, fillCells } from "./list.js";
import { setBadge } from "./marks.js";

const PAGE = 100;
const LIVE = new Set(["running", "waiting"]);
const STATES = ["running", "waiting", "done", "failed", "cancelled", "interrupted", "lost"];
const HEADS = ["Status", "Run", "Model", "Started", "Time", "Tokens", "Cost"];

export class RunsView extends ListView {
  constructor(wire) {
    super(wire, "run", HEADS);
    this.runs = new Map();
    this.limit = PAGE;
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter runs",
      "aria-label": "Filter runs",
      oninput: () => this.draw(),
      spellcheck: "false",
    });
    this.status = h(
      "select",
      { "aria-label": "Status", onchange: () => this.draw() },
      h("option", { value: "" }, "Any status"),
      ...STATES.map((state) => h("option", { value: state }, state)),
    );
    this.more = h("button", { class: "quiet", hidden: true, onclick: () => this.#more() }, "Show earlier runs");
    this.element = h(
      "div",
      { class: "list" },
      h(
        "div",
        { class: "titlebar" },
        h("h1", {}, "Runs"),
        h("span", { class: "filler" }),
        this.filter,
        this.status,
        h("a", { class: "button primary", href: "#/start" }, "New run"),
      ),
      this.table,
      this.empty,
      this.more,
    );
    this.begin();
  }

  async fetch() {
    let before = null;
    const found = [];
    while (found.length < this.limit) {
      const { runs, next } = await this.wire.call("_run/list", { limit: PAGE, ...(before ? { before } : {}) });
      found.push(...runs);
      if (!next) break;
      before = next;
    }
    this.runs = new Map(found.map((run) => [run.run, run]));
    this.more.hidden = found.length < this.limit;
  }

  #more() {
    this.limit += PAGE;
    this.load();
  }

  draw() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = [...this.runs].filter(([, run]) => {
      const text =
        `${run.run} ${run.name} ${run.target} ${run.title} ${run.prompt} ${run.model ?? ""} ${run.status}`.toLowerCase();
      return (!this.status.value || run.status === this.status.value) && words.every((word) => text.includes(word));
    });
    this.place(shown);
    this.empty.hidden = shown.length > 0;
    this.#emptiness();
  }

  #emptiness() {
    const nothing = this.loaded && this.runs.size === 0;
    const text =
      this.problem || (!this.loaded ? this.waits : nothing ? "Nothing has run yet." : "No run fits the filter.");
    if (this.empty.textContent.startsWith(text) && text) return;
    this.empty.replaceChildren(
      ...(text ? [h("p", {}, text)] : []),
      ...(nothing ? [h("a", { class: "button primary", href: "#/start" }, "Start a run")] : []),
    );
  }

  fill(row, run) {
    setBadge(row.state, run.status);
    mark(row.element, "data-status", run.status);
    say(row.link, run.title || run.name || run.target || run.run);
    const asked = run.open_questions
      ? run.open_questions === 1
        ? "asks a question"
        : `asks ${run.open_questions} questions`
      : "";
    say(row.sub, line(asked || run.error?.message || run.prompt || run.run, 140));
    mark(row.sub, "data-tone", asked ? "waiting" : run.error ? "failed" : null);
    const end = run.ended ? instant(run.ended) : LIVE.has(run.status) ? Date.now() : NaN;
    fillCells(row, [
      run.model ?? "",
      moment(run.started),
      duration((end - instant(run.started)) / 1000),
      count(run.input_tokens + run.output_tokens),
      cost(run.cost, run.priced) || "\u2013",
    ]);
  }
}
