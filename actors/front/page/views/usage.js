// What models have cost: sums of the last days, a bar for each, and a table by day, model, agent or key.

import { h, mark, s, say } from "../dom.js";
import { count } from "../model/format.js";
import { bars, chosen, dayInWords, dayName, everyDay, figures, GROUPS, limits, ordered, RANGES } from "../model/usage.js";

const EVERY = 30000;
const HEADS = ["Requests", "Input", "Cached", "Output", "Cost"];
const CELLS = ["requests", "input", "cached", "output", "cost"];
const HIGH = 100; // of the drawing, which is stretched to its place
const LEAST = 1.5; // of a bar, to be seen
const CAP = 5; // of the mark above a bar that is not all of the cost

export class UsageView {
  /** `by` and `days` are as the address says them. */
  constructor(wire, by, days) {
    this.wire = wire;
    this.choice = chosen(by, days);
    this.asked = 0;
    this.whose = h("p", { class: "hint" }, "\u00a0");
    this.sums = h("dl", { class: "sums" });
    this.caption = h("span", { class: "hint" });
    this.drawing = s("svg", { class: "bars", preserveAspectRatio: "none", role: "img" });
    this.drawing.addEventListener("pointerover", (event) => this.#point(event.target.dataset.place));
    this.drawing.addEventListener("pointerleave", () => this.#point());
    this.top = h("span", { class: "top" });
    this.legend = h("span", { class: "legend" }, "and requests without a known price");
    this.first = h("span");
    this.last = h("span");
    this.chart = h(
      "figure",
      { class: "days" },
      h("figcaption", {}, this.caption, this.legend),
      h("div", { class: "plot" }, this.top, this.drawing),
      h("div", { class: "ends", "aria-hidden": "true" }, this.first, this.last),
    );
    this.head = h("th", { scope: "col" });
    this.body = h("tbody");
    this.table = h(
      "table",
      { class: "usage" },
      h("thead", {}, h("tr", {}, this.head, ...HEADS.map((text) => h("th", { scope: "col" }, text)))),
      this.body,
    );
    this.limits = h("ul", { class: "limits", "aria-label": "Limits of today", tabindex: "0", hidden: true });
    this.shown = h("div", { hidden: true }, this.sums, this.chart, this.table);
    this.empty = h("div", { class: "empty", role: "status" });
    this.element = h(
      "div",
      { class: "list" },
      h(
        "div",
        { class: "titlebar" },
        h("h1", {}, "Usage"),
        h("span", { class: "filler" }),
        this.#segments("by", "Group by", GROUPS, (group) => group[0].toUpperCase() + group.slice(1)),
        this.#segments("days", "Range", RANGES, (days) => `${days} days`),
      ),
      this.whose,
      this.limits,
      this.shown,
      this.empty,
    );
    this.hear = () => this.load();
    wire.addEventListener("state", this.hear);
    this.timer = setInterval(() => document.hidden || this.load(), EVERY);
    this.load();
  }

  close() {
    this.wire.removeEventListener("state", this.hear);
    clearInterval(this.timer);
    this.asked = -1;
  }

  #segments(name, label, values, text) {
    const boxes = values.map((value) => {
      const input = h("input", {
        type: "radio",
        name: `usage-${name}`,
        value,
        checked: this.choice[name] === value,
        onchange: () => this.#choose(name, value),
      });
      return h("label", {}, input, h("span", {}, text(value)));
    });
    return h("div", { class: "segments", role: "radiogroup", "aria-label": label }, ...boxes);
  }

  #choose(name, value) {
    this.choice[name] = value;
    history.replaceState(null, "", `#/usage/${this.choice.by}/${this.choice.days}`);
    this.load();
  }

  /** Ask for the sums; an answer that a later question has overtaken is not shown. */
  async load() {
    if (this.wire.state !== "open" || this.asked < 0) return this.#say(this.report ? "" : "Loading\u2026");
    const mine = ++this.asked;
    const { by, days } = this.choice;
    const read = (group) => this.wire.call("_usage/read", { by: [group], days });
    try {
      const [info, daily] = await Promise.all([this.wire.call("_server/info"), read("day")]);
      const report = by === "day" ? daily : await read(by);
      if (mine === this.asked) this.#draw(info, daily, report);
    } catch (error) {
      if (mine === this.asked) this.#say(error.message);
    }
  }

  #say(problem) {
    say(this.empty, problem);
    this.empty.hidden = !problem;
    if (problem) this.shown.hidden = true;
  }

  #draw(info, daily, report) {
    this.report = report;
    const all = info.scopes.some((scope) => scope === "*" || scope === "admin:runs");
    const whose = all ? "All commands, servers and callers of this user" : `Runs of ${info.subject}`;
    say(this.whose, `${whose}. Days are those of UTC.`);
    this.#say(report.usage.length ? "" : `Nothing was spent on models since ${dayName(report.since)}.`);
    this.shown.hidden = !report.usage.length;
    this.#limits(limits(report));
    this.#sums(report.total);
    this.#bars(everyDay(daily));
    this.#rows(ordered(report), report.by[0]);
  }

  #limits(found) {
    this.limits.hidden = !found.length;
    this.limits.replaceChildren(
      ...found.map(({ whose, spent, held, over, text }) =>
        h(
          "li",
          { "data-over": over },
          h("span", { class: "whose" }, whose),
          s(
            "svg",
            { viewBox: `0 0 ${HIGH} 1`, preserveAspectRatio: "none", "aria-hidden": "true" },
            s("rect", { class: "spent", width: HIGH * spent, height: 1 }),
            s("rect", { class: "held", x: HIGH * spent, width: HIGH * held, height: 1 }),
          ),
          h("span", { class: "hint" }, text),
        ),
      ),
    );
  }

  #sums(total) {
    const told = figures(total);
    const requests = total.unpriced === 1 ? "request" : "requests";
    const unpriced = total.unpriced && `${count(total.unpriced)} ${requests} unpriced`;
    const pairs = [
      ["Cost", told.cost, unpriced],
      ["Requests", told.requests, ""],
      ["Input tokens", told.input, told.cached && `${told.cached} from caches`],
      ["Output tokens", told.output, ""],
    ];
    this.sums.replaceChildren(
      ...pairs.map(([name, figure, more]) =>
        h("div", {}, h("dt", {}, name), h("dd", {}, figure), more ? h("dd", { class: "hint" }, more) : null),
      ),
    );
  }

  #bars(days) {
    this.days = days;
    const drawn = bars(days);
    mark(this.drawing, "viewBox", `0 0 ${days.length} ${HIGH}`);
    const named = drawn.measure === "cost" ? "Cost by day" : "Tokens by day";
    this.summary = `${named}, ${dayName(days[0].day)} to ${dayName(days.at(-1).day)}`;
    mark(this.drawing, "aria-label", `${this.summary}, at most ${drawn.top}`);
    this.drawing.replaceChildren(
      ...drawn.bars.flatMap(({ height, partly }, place) => {
        const high = height && Math.max(LEAST, height * (HIGH - CAP));
        const at = { x: place + 0.14, width: 0.72 };
        return [
          s("rect", { class: "day", "data-place": place, x: place, width: 1, y: 0, height: HIGH }),
          s("rect", { class: "bar", ...at, y: HIGH - high, height: high }),
          partly && s("rect", { class: "cap", ...at, y: HIGH - high - CAP, height: CAP - 1 }),
        ];
      }),
    );
    this.legend.hidden = !drawn.bars.some(({ partly }) => partly);
    say(this.top, drawn.top);
    say(this.first, dayName(days[0].day));
    say(this.last, dayName(days.at(-1).day));
    this.#point();
  }

  #point(place) {
    say(this.caption, place === undefined ? this.summary : dayInWords(this.days[place]));
  }

  #rows(rows, by) {
    say(this.head, by[0].toUpperCase() + by.slice(1));
    this.body.replaceChildren(
      ...rows.map((row) => {
        const told = figures(row);
        return h(
          "tr",
          {},
          h("th", { scope: "row" }, by === "day" ? row.day : row[by] || "\u2013"),
          ...CELLS.map((name) => h("td", { class: name }, told[name])),
        );
      }),
    );
  }
}
