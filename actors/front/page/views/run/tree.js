// The supervision tree: an ARIA tree of which only the rows in sight are elements. The focus stays on the tree itself.

import { h, mark, say } from "../../dom.js";
import { duration, instant, count } from "../../model/format.js";
import { ENDED } from "../../model/actors.js";
import { looks, setShape, shape } from "../marks.js";
import { VirtualList } from "../virtual.js";

const HEIGHT = 28;

export class TreeView {
  /** acts: {select(path or null), cancel(actor), pause(actor), inspect(actor)}. */
  constructor(actors, acts) {
    Object.assign(this, { actors, acts, selected: null, collapsed: new Set(), rows: [], index: 0, drawn: -1 });
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter  /",
      "aria-label": "Filter actors",
      spellcheck: "false",
      oninput: () => this.draw(true),
      onkeydown: (event) => this.#filterKey(event),
    });
    this.live = h("input", { type: "checkbox", onchange: () => this.draw(true) });
    this.sum = h("span", { class: "sum" });
    this.host = h("div", {
      class: "tree scroll",
      role: "tree",
      tabindex: "0",
      "aria-label": "Actors",
      onkeydown: (event) => this.#key(event),
      onfocus: () => this.#focused(),
    });
    this.host.addEventListener("click", (event) => this.#click(event));
    this.host.addEventListener("dblclick", () => this.#current() && this.acts.inspect(this.#current().actor));
    const keys = h(
      "p",
      { class: "keys" },
      ...Object.entries({ Enter: "follow", i: "inspect", p: "pause", c: "cancel", "/": "filter", "?": "all keys" }).map(
        ([key, does]) => h("span", {}, h("kbd", {}, key), does),
      ),
    );
    this.element = h(
      "section",
      { class: "panel actors", "aria-label": "Actors" },
      h(
        "div",
        { class: "bar" },
        h("h2", {}, "Actors"),
        this.sum,
        h("span", { class: "filler" }),
        h("label", { class: "check" }, this.live, "live only"),
        this.filter,
      ),
      this.host,
      keys,
    );
    this.list = new VirtualList(this.host, {
      height: HEIGHT,
      make: () => makeRow(),
      render: (row, place) => this.#render(row, place),
    });
  }

  close() {
    this.list.close();
  }

  /** Draw what has changed; with `force`, everything. */
  draw(force = false) {
    if (!force && this.drawn === this.actors.version) return this.list.draw(); // the times go on
    this.drawn = this.actors.version;
    const path = this.rows[this.index]?.actor.path;
    this.rows = this.actors.rows({
      collapsed: this.collapsed,
      filter: this.filter.value.trim(),
      live: this.live.checked,
    });
    const same = this.rows.findIndex((row) => row.actor.path === path);
    this.index = same >= 0 ? same : Math.min(this.index, Math.max(0, this.rows.length - 1));
    const { live, all } = this.actors.tally();
    say(this.sum, all ? `${live} of ${all} live` : "");
    this.list.update(this.rows.length);
    this.#point();
  }

  #render(row, place) {
    const { actor, level, position, size, expanded } = this.rows[place];
    const look = looks(actor);
    row.id = `row-${place}`;
    row.dataset.place = place;
    mark(row, "data-path", actor.path);
    mark(row, "data-state", look);
    mark(row, "aria-level", level);
    mark(row, "aria-posinset", position);
    mark(row, "aria-setsize", size);
    mark(row, "aria-expanded", expanded === null ? null : String(expanded));
    mark(row, "aria-selected", String(actor.path === this.selected));
    row.classList.toggle("current", place === this.index);
    const [indent, twist, state, name, kind, doing, use] = row.children;
    indent.style.width = `${(level - 1) * 14}px`;
    say(twist, expanded === null ? "" : expanded ? "\u25be" : "\u25b8");
    setShape(state, look);
    say(name, actor.name);
    say(kind, actor.kind === "actor" ? "" : actor.detail && actor.kind === "node" ? actor.detail : actor.kind);
    say(doing, actor.error && ENDED.has(actor.state) ? actor.error : doingOf(actor));
    say(use, useOf(actor));
    mark(row, "title", `${actor.path}\n${look}${actor.error ? `: ${actor.error}` : ""}`);
  }

  #current() {
    return this.rows[this.index];
  }

  #point() {
    mark(this.host, "aria-activedescendant", this.rows.length ? `row-${this.index}` : null);
  }

  #go(place) {
    if (!this.rows.length) return;
    this.index = Math.max(0, Math.min(this.rows.length - 1, place));
    this.list.reveal(this.index);
    this.list.draw();
    this.#point();
  }

  #focused() {
    if (this.rows.length) this.list.reveal(this.index);
  }

  #click(event) {
    const row = event.target.closest("[role=treeitem]");
    if (!row) return;
    this.#go(Number(row.dataset.place));
    if (event.target.classList.contains("twist") && this.#current().expanded !== null)
      this.#fold(this.#current(), this.#current().expanded);
    else this.choose(this.#current().actor);
  }

  /** Show only what this actor and those below it do; the same again shows all. */
  choose(actor) {
    this.selected = this.selected === actor.path || !actor.parent ? null : actor.path;
    this.acts.select(this.selected);
    this.list.draw();
  }

  /** What the other views say is meant. */
  set(path) {
    this.selected = path;
    const place = this.rows.findIndex((row) => row.actor.path === path);
    if (place >= 0) this.#go(place);
    else this.list.draw();
  }

  #fold(row, closed) {
    if (closed) this.collapsed.add(row.actor.path);
    else this.collapsed.delete(row.actor.path);
    this.draw(true);
  }

  #filterKey(event) {
    if (event.key === "Escape") {
      this.filter.value = "";
      this.draw(true);
    } else if (event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault();
    this.host.focus();
  }

  #key(event) {
    const row = this.#current();
    if (event.ctrlKey || event.metaKey || event.altKey || !row) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act(this, row);
  }

  static #right(view, row) {
    if (row.expanded === false) view.#fold(row, false);
    else if (row.expanded) view.#go(view.index + 1);
  }

  static #left(view, row) {
    if (row.expanded && !view.filter.value) view.#fold(row, true);
    else if (row.actor.parent) view.#go(view.rows.findIndex((each) => each.actor === row.actor.parent));
  }

  static keys = {
    ArrowDown: (view) => view.#go(view.index + 1),
    ArrowUp: (view) => view.#go(view.index - 1),
    ArrowRight: TreeView.#right,
    ArrowLeft: TreeView.#left,
    Home: (view) => view.#go(0),
    End: (view) => view.#go(view.rows.length - 1),
    PageDown: (view) => view.#go(view.index + Math.floor(view.host.clientHeight / HEIGHT)),
    PageUp: (view) => view.#go(view.index - Math.floor(view.host.clientHeight / HEIGHT)),
    Enter: (view, row) => view.choose(row.actor),
    " ": (view, row) => view.choose(row.actor),
    Escape: (view) => view.selected && view.choose({ path: view.selected, parent: true }),
    c: (view, row) => view.acts.cancel(row.actor),
    p: (view, row) => view.acts.pause(row.actor),
    i: (view, row) => view.acts.inspect(row.actor),
    "/": (view) => view.filter.focus(),
  };
}

const KEYS = TreeView.keys;

function makeRow() {
  const span = (name) => h("span", { class: name });
  return h(
    "div",
    { class: "actor", role: "treeitem" },
    span("indent"),
    h("span", { class: "twist", "aria-hidden": "true" }),
    shape("running"),
    span("name"),
    span("kind"),
    span("doing"),
    span("use"),
  );
}

function doingOf(actor) {
  if (actor.mailbox > 0 && !actor.doing) return `${actor.mailbox} in its mailbox`;
  if (!actor.doing || actor.doing === actor.name) return actor.restarts ? `restarted ${actor.restarts}\u00d7` : "";
  return actor.doing;
}

/** How long it has been at what it does; of one that has ended, its tokens, or else its time. */
function useOf(actor) {
  const tokens = actor.input_tokens + actor.output_tokens;
  if (tokens && actor.until) return `${count(tokens)} tok`;
  const begun = instant((!actor.until && actor.doing_since) || actor.since);
  const time = ((actor.until ? instant(actor.until) : Date.now()) - begun) / 1000;
  return duration(actor.until || time < 1 ? Math.max(0, time) : Math.floor(time));
}
