// The work: what agents say and do, as it comes; of all of them, or of one and those below it.

import { h, say } from "../../dom.js";
import { caller } from "../../model/format.js";
import { ENDED } from "../../model/actors.js";
import { Tail } from "../tail.js";
import { blockView } from "./blocks.js";

const SHOWN = 250; // blocks that are elements at a time; "Earlier" shows as many more
const CROWD = 12;

export class WorkView {
  /** acts: {select(path or null), inspect(actor), send(path, text) -> promise}. */
  constructor(state, acts) {
    Object.assign(this, { state, acts, selected: null, most: SHOWN, views: new Map() });
    this.scope = h("span", { class: "sum" });
    this.all = h("button", { class: "quiet small", hidden: true, onclick: () => acts.select(null) }, "Show all");
    this.look = h(
      "button",
      { class: "quiet small", hidden: true, onclick: () => acts.inspect(this.state.actors.known.get(this.selected)) },
      "Inspect",
    );
    this.earlier = h("button", { class: "quiet small earlier", hidden: true, onclick: () => this.#more() }, "Earlier");
    this.host = h("div", { class: "blocks" });
    this.result = h("section", { class: "result", hidden: true, "aria-label": "Result" });
    this.tail = new Tail("Work", [this.earlier, this.host, this.result]);
    this.words = h("textarea", { rows: "1", "aria-label": "Message", onkeydown: (event) => this.#typed(event) });
    this.message = h(
      "form",
      { class: "message row", hidden: true, onsubmit: (event) => this.#send(event) },
      this.words,
      h("button", { class: "primary" }, "Send"),
    );
    this.element = h(
      "section",
      { class: "panel work", "aria-label": "Work" },
      h("div", { class: "bar" }, h("h2", {}, "Work"), this.scope, h("span", { class: "filler" }), this.look, this.all),
      this.tail.element,
      this.tail.latest,
      this.message,
    );
  }

  close() {
    this.tail.close();
  }

  select(path) {
    this.selected = path;
    this.most = SHOWN;
    this.tail.following = true;
    this.views.clear();
    this.host.replaceChildren();
    this.first = null;
    this.draw(new Set());
  }

  #fits(block) {
    return this.selected === null || block.actor === this.selected || block.actor.startsWith(`${this.selected}/`);
  }

  /** changed: the blocks that look different since the last time. */
  draw(changed) {
    const shown = [];
    let more = false;
    const crowded = this.selected === null && this.state.work.open.size > CROWD; // then who has said nothing yet is left out
    const blocks = this.state.work.blocks;
    for (let place = blocks.length - 1; place >= 0; place--) {
      const block = blocks[place];
      if (!this.#fits(block) || (block.type === "question" && block.open)) continue; // open ones are above, to be answered
      if (block.type === "text" && !block.text && !block.reasoning && !(block.open && !crowded)) continue;
      if (shown.length === this.most) {
        more = true;
        break;
      }
      shown.push(block);
    }
    shown.reverse();
    this.#place(shown, changed);
    this.earlier.hidden = !more && !(this.state.work.dropped && shown.length);
    this.earlier.disabled = !more;
    say(this.earlier, more ? "Earlier" : `${this.state.work.dropped} older ones are no longer kept in this page`);
    this.#heads(shown.length);
    this.#result();
    this.tail.grown();
  }

  #place(shown, changed) {
    const keys = new Set(shown.map((block) => block.key));
    for (const [key, view] of this.views)
      if (!keys.has(key)) {
        view.element.remove();
        this.views.delete(key);
      }
    let last = null;
    for (const block of shown) {
      const known = this.views.get(block.key);
      if (known && changed.has(block)) known.update();
      const view = known ?? blockView(block, (path) => this.acts.select(path));
      if (!known) {
        this.views.set(block.key, view);
        if (last) last.after(view.element);
        else this.host.prepend(view.element);
      }
      last = view.element;
    }
  }

  #heads(number) {
    const actor = this.selected && this.state.actors.known.get(this.selected);
    say(this.scope, this.selected ? `of ${caller(this.selected)}` : "");
    this.all.hidden = this.selected === null;
    this.look.hidden = !actor;
    const agent =
      actor && !ENDED.has(actor.state) && (actor.kind === "agent" || actor.detail === "llm" || actor.turns > 0);
    if (this.message.hidden !== !agent) this.message.hidden = !agent;
    if (agent) this.words.placeholder = `Message to ${actor.name}; it reads it before its next request`;
    if (!number && !this.state.ended)
      say(
        (this.none ??= this.host.appendChild(h("p", { class: "hint" }))),
        !this.state.seq ? "" : this.selected ? "Nothing yet from this actor." : "Nothing has been said yet.",
      );
    else {
      this.none?.remove();
      this.none = null;
    }
  }

  #result() {
    const { outcome, status } = this.state;
    if (!this.state.ended) {
      this.result.hidden = true; // it goes on after all
      this.shown = null;
      return;
    }
    if (this.shown === status) return;
    this.shown = status;
    const error = outcome?.error;
    const titles = { done: "Result", failed: "Failed", cancelled: "Cancelled", lost: "Lost", interrupted: "Interrupted" };
    const parts = [h("h3", {}, titles[status] ?? status)];
    if (error)
      parts.push(
        h("pre", { class: "error" }, error.message),
        h("p", { class: "hint" }, [error.node && `at ${error.node}`, error.code && `error code: ${error.code}`].filter(Boolean).join(" \u00b7 ")),
      );
    if (outcome?.output) parts.push(h("pre", { class: "output" }, outcome.output));
    if (status === "lost") parts.push(h("p", {}, "The process that ran it was ended before the run was."));
    if (status === "interrupted") parts.push(h("p", {}, "Its process has ended. What it has done is kept, so it can go on."));
    if (status === "cancelled" && !error) parts.push(h("p", {}, "It was stopped before it had a result."));
    if (status === "done" && !outcome?.output) parts.push(h("p", { class: "hint" }, "It ended without a text."));
    this.result.dataset.status = status;
    this.result.replaceChildren(...parts);
    this.result.hidden = false;
  }

  #more() {
    this.most += SHOWN;
    this.tail.above(() => this.draw(new Set()));
  }

  #typed(event) {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.message.requestSubmit();
  }

  async #send(event) {
    event.preventDefault();
    const text = this.words.value.trim();
    if (!text || !this.selected) return;
    if (await this.acts.send(this.selected, text)) this.words.value = "";
    this.words.focus();
  }
}
