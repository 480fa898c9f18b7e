// The log of events, with a filter. Only the rows in sight are elements.

import { h, mark, say } from "../../dom.js";
import { clock, count, leaf } from "../../model/format.js";
import { VirtualList } from "../virtual.js";

const HEIGHT = 22;

export class EventsView {
  constructor(state) {
    Object.assign(this, { state, rows: [], drawn: -1, following: true });
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter",
      title: "Words that a row must have; -word: must not have",
      "aria-label": "Filter events",
      spellcheck: "false",
      oninput: () => this.draw(true),
    });
    this.sum = h("span", { class: "sum" });
    this.host = h("div", {
      class: "scroll log",
      tabindex: "0",
      role: "log",
      "aria-live": "off",
      "aria-label": "Events",
    });
    this.element = h(
      "section",
      { class: "panel events", "aria-label": "Events" },
      h("div", { class: "bar" }, h("h2", {}, "Events"), this.sum, h("span", { class: "filler" }), this.filter),
      this.host,
    );
    this.list = new VirtualList(this.host, {
      height: HEIGHT,
      make: makeRow,
      render: (row, place) => this.#render(row, place),
    });
    this.host.addEventListener("scroll", () => (this.following = this.list.atEnd), { passive: true });
  }

  close() {
    this.list.close();
  }

  draw(force = false) {
    if (!force && this.drawn === this.state.log.version) return;
    this.drawn = this.state.log.version;
    if (this.host.clientHeight === 0) return; // nobody sees it; it is drawn when it is shown
    const follow = this.following;
    const filter = this.filter.value.trim();
    this.rows = this.state.log.matching(filter);
    const gone = this.state.log.dropped + this.state.missing;
    say(
      this.sum,
      `${count(this.state.seq)}${filter ? `, ${count(this.rows.length)} rows fit` : ""}${gone ? `, the oldest ${count(gone)} not kept` : ""}`,
    );
    this.list.update(this.rows.length);
    if (follow) this.list.end();
    this.following = follow;
  }

  #render(row, place) {
    const { seq, ts, kind, actor, text, pieces } = this.rows[place];
    const [number, time, what, who, says] = row.children;
    say(number, String(seq));
    say(time, clock(ts));
    say(what, pieces > 1 ? `${kind} \u00d7${pieces}` : kind);
    say(who, leaf(actor));
    mark(who, "title", actor);
    say(says, text);
    mark(says, "data-who", leaf(actor));
    mark(row, "data-tone", toneOf(kind));
    mark(row, "title", text);
  }
}

function makeRow() {
  const span = (name) => h("span", { class: name });
  return h("div", { class: "event" }, span("seq"), span("time"), span("kind"), span("who"), span("text"));
}

function toneOf(kind) {
  if (/failed$|stuck$|dead$/.test(kind)) return "failed";
  if (/^question\.asked|warning$|retry$|restarted$/.test(kind)) return "waiting";
  return null;
}
