// A text in Markdown as elements. While it grows only its last block is made anew.

import { h } from "../dom.js";
import { blocks, inline } from "../model/markdown.js";

export class MarkdownView {
  constructor() {
    this.element = h("div", { class: "markdown", dir: "auto" });
    this.text = "";
    this.made = []; // {block, at, element} of each block, in order
  }

  /** Show this text. */
  put(text) {
    if (text === this.text) return;
    const grows = this.made.length > 0 && text.startsWith(this.text);
    const kept = grows ? this.made.slice(0, -1) : [];
    const from = grows ? this.made.at(-1).at : 0;
    const last = grows ? this.made.at(-1) : null;
    for (const { element } of this.made.slice(kept.length)) if (element !== last?.element) element.remove();
    this.text = text;
    this.made = kept;
    for (const block of blocks(text.slice(from))) {
      const at = from + block.at;
      if (last && at === from && grew(last, block)) this.made.push({ ...last, block });
      else {
        const element = elementOf(block);
        this.made.push({ block, at, element });
        this.element.append(element);
        if (last && at === from) last.element.replaceWith(element);
      }
    }
  }
}

/** A text that is whole. */
export function markdown(text) {
  const view = new MarkdownView();
  view.put(text);
  return view.element;
}

/** Code that goes on is added to: a long one would be laid out anew with each word. */
function grew({ block: before, element }, block) {
  if (before.type !== "code" || block.type !== "code" || before.lang !== block.lang) return false;
  if (!block.text.startsWith(before.text)) return false;
  element.firstChild.firstChild.appendData(block.text.slice(before.text.length));
  return true;
}

const MAKERS = {
  heading: ({ level, text }) => h(`h${Math.min(6, level + 2)}`, {}, ...nodes(text)),
  paragraph: ({ text }) => h("p", { dir: "auto" }, ...nodes(text)),
  rule: () => h("hr"),
  code: ({ lang, text }) =>
    h("pre", { tabindex: "0", "aria-label": lang ? `Code: ${lang}` : "Code", dir: "ltr" }, h("code", {}, document.createTextNode(text))),
  quote: ({ blocks }) => h("blockquote", {}, ...blocks.map(elementOf)),
  list: ({ ordered, start, loose, items }) =>
    h(
      ordered ? "ol" : "ul",
      { start: ordered && start !== 1 ? String(start) : null, class: loose ? "loose" : null },
      ...items.map((item) => h("li", { dir: "auto" }, ...inItem(item, loose))),
    ),
  table: ({ head, align, rows }) =>
    h(
      "div",
      { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...head.map((cell, at) => h("th", { scope: "col", class: align[at] }, ...nodes(cell))))),
        h(
          "tbody",
          {},
          ...rows.map((row) => h("tr", {}, ...row.map((cell, at) => h("td", { class: align[at] }, ...nodes(cell))))),
        ),
      ),
    ),
};

function elementOf(block) {
  return MAKERS[block.type](block);
}

/** In a tight list the paragraphs of an item are its text. */
function inItem(item, loose) {
  return item.flatMap((block) => (block.type === "paragraph" && !loose ? nodes(block.text) : [elementOf(block)]));
}

function nodes(text) {
  return inline(text).map(node);
}

function node(found) {
  if (typeof found === "string") return document.createTextNode(found);
  const { tag, href, children } = found;
  const given = tag === "a" ? { href, title: href, target: "_blank", rel: "noopener noreferrer" } : {};
  return h(tag, given, ...children.map(node));
}
