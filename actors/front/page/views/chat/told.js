// What stands in a chat beside runs: what commands say, lines that were sent from here, notes of the page itself.

import { h, mark, say } from "../../dom.js";
import { lines } from "../../model/diff.js";
import { markdown } from "../markdown.js";

/** {element, update()} of an item that is no run. */
export function toldView(item) {
  if (item.type === "line") return sent(item);
  const element = item.type === "note" ? note(item) : said(item);
  return { element, update() {} };
}

function said({ kind, text }) {
  const element = h("div", { class: "said-by-command", "data-kind": kind });
  const trimmed = text.replace(/\n+$/, "");
  if (kind === "markdown") element.append(markdown(trimmed));
  else if (kind === "diff")
    element.append(h("pre", { class: "diff", tabindex: "0" }, ...lines(trimmed).map((row) => h("span", { "data-line": row.kind }, `${row.text}\n`))));
  else if (kind === "echo") element.append(h("p", { class: "prompt", dir: "auto" }, trimmed));
  else element.append(h("pre", { dir: "auto" }, LABELS[kind] ? h("span", { class: "label" }, `${LABELS[kind]}: `) : null, trimmed));
  return element;
}

/** Never by colour alone. */
const LABELS = { warning: "Warning", error: "Error" };

function note({ level, text }) {
  return h("p", { class: "aside", "data-tone": level === "warning" ? "waiting" : null }, text);
}

function sent(item) {
  const state = h("span", { class: "meta" });
  const why = h("p", { class: "problem", hidden: true });
  const element = h("article", { class: "line" }, h("div", { class: "prompt", dir: "auto" }, item.text), state, why);
  const update = () => {
    element.hidden = !item.shown;
    mark(element, "data-state", item.state);
    say(state, STATES[item.state] ?? "");
    say(why, item.why);
    why.hidden = !item.why;
  };
  return { element, update };
}

const STATES = {
  sent: "\u2026",
  steered: "The agent reads this before its next request.",
  interrupted: "Interrupted.",
  unknown: "The connection was lost.",
};
