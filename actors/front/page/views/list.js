// A list that is asked for again every few seconds: a table with a row for each of its things, which leads to it.
//
// A view of one says what there is (`fetch`), what is shown of it (`draw`, which calls `place`), and what stands in a row.

import { h, say } from "../dom.js";
import { badge } from "./marks.js";

const EVERY = 2000;
const CLASSES = ["model", "when", "num", "num", "num"]; // of the cells behind the name

export class ListView {
  /** kind: "run" or "chat", in addresses and attributes; heads: of the columns; named: further classes of the table. */
  constructor(wire, kind, heads, named = "") {
    Object.assign(this, { wire, kind, rows: new Map(), loaded: false, problem: "" });
    this.body = h("tbody");
    this.table = h(
      "table",
      { class: `runs ${named}`.trim(), hidden: true },
      h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))),
      this.body,
    );
    this.empty = h("div", { class: "empty" });
  }

  /** From now on it is asked for; `connected` is called as well when the connection has changed. */
  begin(connected = () => {}) {
    this.hear = () => (connected(), this.load());
    this.wire.addEventListener("state", this.hear);
    this.timer = setInterval(() => document.hidden || this.load(), EVERY);
    this.hear();
  }

  close() {
    this.wire.removeEventListener("state", this.hear);
    clearInterval(this.timer);
  }

  async load() {
    if (this.wire.state !== "open" || this.loading) return this.draw();
    this.loading = true;
    try {
      await this.fetch();
      this.loaded = true;
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    } finally {
      this.loading = false;
    }
    this.draw();
  }

  /** What to say where nothing is there yet; "" while there is no connection. */
  get waits() {
    return this.wire.state === "open" || this.wire.state === "connecting" ? "Loading\u2026" : "";
  }

  /** Have these shown, in this order: [id, what `fill` puts into its row]. */
  place(shown) {
    const ids = new Set(shown.map(([id]) => id));
    for (const [id, row] of this.rows)
      if (!ids.has(id)) {
        row.element.remove();
        this.rows.delete(id);
      }
    shown.forEach(([id, each], place) => {
      const row = this.rows.get(id) ?? this.#row(id);
      this.fill(row, each);
      if (this.body.children[place] !== row.element) this.body.insertBefore(row.element, this.body.children[place] ?? null);
    });
    this.table.hidden = shown.length === 0;
  }

  #row(id) {
    const cells = CLASSES.map((name) => h("td", { class: name }));
    const link = h("a", { href: `#/${this.kind}/${encodeURIComponent(id)}` });
    const sub = h("div", { class: "sub" });
    const state = badge("idle");
    const element = h(
      "tr",
      { [`data-${this.kind}`]: id, onclick: (event) => event.target.closest("a") || (location.hash = link.hash) },
      h("td", {}, state),
      h("td", { class: "name" }, link, sub),
      ...cells,
    );
    const row = { element, link, sub, state, cells };
    this.rows.set(id, row);
    return row;
  }
}

/** The texts of a row's cells behind the name. */
export function fillCells(row, texts) {
  texts.forEach((text, place) => say(row.cells[place], text));
}
