// The graph of a run as SVG. The nodes that run are lit up; lines that were walked are drawn firmly.

import { h, mark, s, say } from "../../dom.js";
import { duration, line } from "../../model/format.js";
import { layout } from "../../model/layout.js";

const WIDEST = 190;
const TALL = 44;
const SMALLEST = 0.62; // of its natural size

export class GraphView {
  /** pick(path or null): somebody wants to see what this node's actor does. */
  constructor(state, pick) {
    Object.assign(this, { state, pick, drawn: -1, boxes: new Map(), lines: [] });
    this.canvas = h("div", { class: "canvas scroll", tabindex: "0", role: "group", "aria-label": "Graph of this run" });
    this.title = h("span", { class: "sum" });
    this.element = h(
      "section",
      { class: "panel graph", "aria-label": "Graph" },
      h("div", { class: "bar" }, h("h2", {}, "Graph"), this.title),
      this.canvas,
    );
    this.watcher = new ResizeObserver(() => this.#fit());
    this.watcher.observe(this.canvas);
  }

  close() {
    this.watcher.disconnect();
  }

  /** As large as there is room for; what would become too small to read is scrolled instead. */
  #fit() {
    if (!this.size || !this.canvas.clientWidth) return;
    const [width, height] = [this.canvas.clientWidth - 8, this.canvas.clientHeight - 8];
    const scale = Math.min(1, width / this.size.width, Math.max(SMALLEST, height / this.size.height));
    mark(this.svg, "width", Math.floor(this.size.width * Math.max(SMALLEST, scale)));
    mark(this.svg, "height", Math.floor(this.size.height * Math.max(SMALLEST, scale)));
    this.#reveal();
  }

  /** See to it that what is at work is in sight. */
  #reveal() {
    const busy = [...this.boxes]
      .filter(([id]) => ["running", "waiting"].includes(this.state.look(id)))
      .map(([id]) => id);
    if (!busy.length || busy.join() === this.revealed || !this.canvas.clientHeight) return;
    this.revealed = busy.join();
    const box = this.boxes.get(busy[0]).group.getBoundingClientRect();
    const frame = this.canvas.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom)
      this.canvas.scrollTop += box.top - frame.top - frame.height / 3;
    if (box.left < frame.left || box.right > frame.right)
      this.canvas.scrollLeft += box.left - frame.left - frame.width / 3;
  }

  /** The picture as the server gives it: nodes {id, type, title}, edges {from, to, label, dashed}. */
  picture(picture) {
    if (this.shown === picture) return;
    this.shown = picture;
    this.canvas.replaceChildren();
    this.boxes.clear();
    this.lines = [];
    this.words = []; // where labels stand: no other is put over them
    if (!picture || !picture.nodes.length)
      return void this.canvas.append(h("p", { class: "hint" }, "This run has no graph."));
    say(this.title, picture.nodes.length === 1 ? "" : `${picture.nodes.length} nodes`);
    const nodes = picture.nodes.map((node) => ({ ...node, width: widthOf(node), height: TALL }));
    const placed = layout(nodes, picture.edges);
    const margin = 14;
    const size = { width: Math.ceil(placed.width + 2 * margin), height: Math.ceil(placed.height + 2 * margin) };
    const sheet = s("g", { transform: `translate(${margin} ${margin})` });
    this.svg = s(
      "svg",
      {
        viewBox: `0 0 ${size.width} ${size.height}`,
        width: size.width,
        height: size.height,
        role: "list",
        "aria-label": "Nodes",
      },
      arrows(),
      sheet,
    );
    for (const each of placed.edges) this.#line(sheet, each);
    for (const node of nodes) this.#box(sheet, node, placed.nodes.get(node.id));
    this.size = size;
    this.canvas.append(this.svg);
    this.#fit();
    this.drawn = -1;
    this.draw();
  }

  draw() {
    if (this.drawn === this.state.version) return;
    this.drawn = this.state.version;
    for (const [id, box] of this.boxes) {
      const look = this.state.look(id);
      const node = this.state.nodes.get(id);
      mark(box.group, "data-state", look || "idle");
      mark(
        box.group,
        "aria-label",
        `${id}, ${box.type}, ${look || "not reached yet"}${node?.visits > 1 ? `, ${node.visits} visits` : ""}`,
      );
      const visits = node?.visits > 1 ? ` \u00d7${node.visits}` : "";
      const time = node && !node.running && node.seconds ? ` \u00b7 ${duration(node.seconds)}` : "";
      say(box.below, `${box.type}${visits}${time}`);
      say(box.tip, node?.error ? `${id}: ${node.error}` : id);
    }
    this.#reveal();
    for (const { edge, path } of this.lines)
      path.classList.toggle("walked", this.state.walked.has(`${edge.from}\n${edge.to}`));
  }

  #box(sheet, node, { x, y }) {
    const left = x - node.width / 2;
    const below = s("text", { x: left + 12, y: y + 14, class: "below" });
    const tip = s("title");
    const open = () => this.#open(node.id);
    const group = s(
      "g",
      {
        class: "node",
        role: "listitem",
        tabindex: "0",
        "data-node": node.id,
        onclick: open,
        onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), open()),
      },
      tip,
      s("rect", { x: left, y: y - TALL / 2, width: node.width, height: TALL, rx: 6 }),
      s("rect", { class: "edge", x: left, y: y - TALL / 2 + 8, width: 3, height: TALL - 16, rx: 1.5 }),
      s("text", { x: left + 12, y: y - 4, class: "title" }, line(node.title || node.id, 24)),
      below,
    );
    sheet.append(group);
    this.boxes.set(node.id, { group, below, tip, type: node.type });
  }

  #line(sheet, { edge, points, back }) {
    const path = s("path", {
      d: back ? angular(points) : curved(points),
      class: `way${edge.dashed ? " dashed" : ""}`,
      "marker-end": "url(#arrow)",
    });
    sheet.append(path);
    this.lines.push({ edge, path });
    if (!edge.label) return;
    const middle = back ? { x: points[1].x - 4, y: (points[1].y + points[2].y) / 2 } : between(points);
    while (this.words.some((word) => Math.abs(word.y - middle.y) < 11 && Math.abs(word.x - middle.x) < 56)) middle.y += 12;
    this.words.push(middle);
    const text = s(
      "text",
      { x: middle.x, y: middle.y, class: "word", "text-anchor": back ? "end" : "middle" },
      line(edge.label, 22),
    );
    sheet.append(text);
  }

  #open(id) {
    const path = this.state.last.get(id);
    if (path) this.pick(path);
  }
}

function widthOf(node) {
  const long = Math.max(line(node.title || node.id, 24).length * 7.4, (node.type.length + 17) * 6);
  return Math.min(WIDEST, Math.max(96, Math.ceil(long) + 24));
}

function arrows() {
  return s(
    "defs",
    {},
    s(
      "marker",
      {
        id: "arrow",
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 7,
        markerHeight: 7,
        orient: "auto-start-reverse",
      },
      s("path", { d: "M0 1L7 4L0 7z", class: "tip" }),
    ),
  );
}

function curved(points) {
  let d = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    const half = (a.y + b.y) / 2;
    d += `C${a.x} ${half} ${b.x} ${half} ${b.x} ${b.y}`;
  }
  return d;
}

function angular(points) {
  const [a, b, c, d] = points;
  const r = Math.min(8, Math.abs(b.y - c.y) / 2);
  const up = c.y < b.y ? -1 : 1;
  return `M${a.x} ${a.y}H${b.x - r}Q${b.x} ${b.y} ${b.x} ${b.y + up * r}V${c.y - up * r}Q${c.x} ${c.y} ${c.x - r} ${c.y}H${d.x}`;
}

function between(points) {
  const [a, b] = [points[0], points[1]];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 + 3 };
}
