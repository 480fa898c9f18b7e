// A box that grows at its end and shows it, until a person scrolls away; a button leads back there.

import { h } from "../dom.js";

const NEAR = 40; // pixels from the end that still are the end

export class Tail {
  /** label: what a screen reader calls it; watched: an element whose size changes, if not the box alone. */
  constructor(label, children, watched = null) {
    this.following = true;
    this.latest = h("button", { class: "latest", hidden: true, onclick: () => this.follow() }, "Latest \u2193");
    const attributes = { class: "scroll", tabindex: "0", role: "log", "aria-label": label, "aria-live": "off" };
    this.element = h("div", { ...attributes, onscroll: () => this.#scrolled() }, ...children);
    this.watcher = new ResizeObserver(() => this.grown());
    for (const each of [this.element, watched]) if (each) this.watcher.observe(each);
  }

  close() {
    this.watcher.disconnect();
  }

  /** There is more in it, or less. */
  grown() {
    if (this.following) this.#toEnd();
  }

  /** Show the end from now on. */
  follow() {
    this.following = true;
    this.latest.hidden = true;
    this.#toEnd();
  }

  /** `draw` shows more above: what is seen stays where it is. */
  above(draw) {
    const before = this.element.scrollHeight;
    this.following = false;
    draw();
    this.element.scrollTop += this.element.scrollHeight - before;
  }

  #toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    this.following = scrollTop + clientHeight >= scrollHeight - NEAR;
    this.latest.hidden = this.following;
  }
}
