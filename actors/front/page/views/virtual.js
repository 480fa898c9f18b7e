// A long list of which only the rows in sight are elements. Rows are of one height and are used again.

import { h } from "../dom.js";

const AROUND = 8; // rows above and below what is in sight

export class VirtualList {
  /** render(element, index): fill a row; make(): a new empty row. */
  constructor(host, { height, make, render }) {
    Object.assign(this, { host, height, make, render });
    this.count = 0;
    this.space = h("div", { class: "space", role: "presentation" });
    host.append(this.space);
    this.rows = [];
    host.addEventListener("scroll", () => this.draw(), { passive: true });
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(host);
  }

  /** How many rows there are now; all in sight are drawn anew. */
  update(count) {
    this.count = count;
    this.space.style.height = `${count * this.height}px`;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.host.scrollTop / this.height) - AROUND);
    const last = Math.min(this.count, Math.ceil((this.host.scrollTop + this.host.clientHeight) / this.height) + AROUND);
    const wanted = Math.max(0, last - first);
    while (this.rows.length < wanted) {
      const row = this.make();
      this.rows.push(row);
      this.space.append(row);
    }
    while (this.rows.length > wanted) this.rows.pop().remove();
    this.rows.forEach((row, place) => {
      const top = `translateY(${(first + place) * this.height}px)`;
      if (row.style.transform !== top) row.style.transform = top;
      this.render(row, first + place);
    });
  }

  /** Scroll as little as needed for a row to be seen. */
  reveal(index) {
    const top = index * this.height;
    if (top < this.host.scrollTop) this.host.scrollTop = top;
    else if (top + this.height > this.host.scrollTop + this.host.clientHeight)
      this.host.scrollTop = top + this.height - this.host.clientHeight;
  }

  get atEnd() {
    return this.host.scrollTop + this.host.clientHeight >= this.count * this.height - this.height * 2;
  }

  end() {
    this.host.scrollTop = this.count * this.height;
  }

  close() {
    this.watcher.disconnect();
  }
}
