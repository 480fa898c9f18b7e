// The words of a question: its text, and the diff of what a tool would change.

import { h } from "../../dom.js";
import { parted } from "../../model/diff.js";

/** Elements for the text of a question. */
export function asked(question) {
  const { text, lines } = parted(question);
  const words = h("p", { class: "asked" }, text);
  if (!lines.length) return [words];
  const rows = lines.map(({ kind, text }) => h("span", { "data-line": kind }, `${text}\n`));
  return [words, h("pre", { class: "diff", tabindex: "0", "aria-label": "What it would change" }, ...rows)];
}
