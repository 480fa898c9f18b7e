// The list of runs, those under way and those before.

import { h, mark, say } from "../dom.js";
import { cost, count, duration, instant, line, moment } from "../model/format.js";
import { badge, setBadge } from "./marks.js";

const PAGE = 100;
const EVERY = 2000;
const LIVE = new Set(["running", "waiting"]);
const STATES = ["running", "waiting", "done", "failed", "cancelled", "interrupted", "lost"];

export class RunsView {
  constructor(wire) {
    this.wire = wire;
    this.runs = new Map();
    this.rows = new Map();
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
    this.body = h("tbody");
    this.empty = h("div", { class: "empty" });
    this.more = h("button", { class: "quiet", hidden: true, onclick: () => this.#more() }, "Show earlier runs");
    const heads = ["Status", "Run", "Model", "Started", "Time", "Tokens", "Cost"];
    this.table = h(
      "table",
      { class: "runs" },
      h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))),
      this.body,
    );
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
    this.hear = () => this.load();
    wire.addEventListener("state", this.hear);
    this.timer = setInterval(() => document.hidden || this.load(), EVERY);
    this.load();
  }

  close() {
    this.wire.removeEventListener("state", this.hear);
    clearInterval(this.timer);
  }

  async load() {
    if (this.wire.state !== "open" || this.loading) return this.draw();
    this.loading = true;
    try {
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
      this.loaded = true;
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    } finally {
      this.loading = false;
    }
    this.draw();
  }

  #more() {
    this.limit += PAGE;
    this.load();
  }

  draw() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = [...this.runs.values()].filter((run) => {
      const text =
        `${run.run} ${run.name} ${run.target} ${run.title} ${run.prompt} ${run.model ?? ""} ${run.status}`.toLowerCase();
      return (!this.status.value || run.status === this.status.value) && words.every((word) => text.includes(word));
    });
    for (const [id, row] of this.rows)
      if (!shown.some((run) => run.run === id)) {
        row.element.remove();
        this.rows.delete(id);
      }
    shown.forEach((run, place) => {
      const row = this.rows.get(run.run) ?? this.#row(run.run);
      fillRow(row, run);
      if (this.body.children[place] !== row.element)
        this.body.insertBefore(row.element, this.body.children[place] ?? null);
    });
    this.table.hidden = shown.length === 0;
    this.empty.hidden = shown.length > 0;
    this.#emptiness();
  }

  #emptiness() {
    const nothing = this.loaded && this.runs.size === 0;
    const text =
      this.problem ||
      (!this.loaded
        ? this.wire.state === "open" || this.wire.state === "connecting"
          ? "Loading\u2026"
          : ""
        : nothing
          ? "Nothing has run yet."
          : "No run fits the filter.");
    if (this.empty.textContent.startsWith(text) && text) return;
    this.empty.replaceChildren(
      ...(text ? [h("p", {}, text)] : []),
      ...(nothing ? [h("a", { class: "button primary", href: "#/start" }, "Start a run")] : []),
    );
  }

  #row(id) {
    const cells = Array.from({ length: 5 }, () => h("td"));
    const link = h("a", { href: `#/run/${encodeURIComponent(id)}` });
    const sub = h("div", { class: "sub" });
    const state = badge("running");
    const element = h(
      "tr",
      { "data-run": id, onclick: (event) => event.target.closest("a") || (location.hash = link.hash) },
      h("td", {}, state),
      h("td", { class: "name" }, link, sub),
      ...cells,
    );
    const row = { element, link, sub, state, cells };
    this.rows.set(id, row);
    return row;
  }
}

function fillRow(row, run) {
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
  const texts = [
    run.model ?? "",
    moment(run.started),
    duration((end - instant(run.started)) / 1000),
    count(run.input_tokens + run.output_tokens),
    cost(run.cost, run.priced) || "\u2013",
  ];
  texts.forEach((text, place) => say(row.cells[place], text));
  row.cells.forEach((cell, place) => mark(cell, "class", ["model", "when", "num", "num", "num"][place]));
}
