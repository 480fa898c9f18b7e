// The keys that do something, listed.

import { h } from "../dom.js";

const KEYS = {
  "Everywhere": [
    ["?", "this list"],
    ["r", "all runs"],
    ["n", "start a run"],
    ["c", "chats"],
    ["u", "usage: what models have cost"],
    ["Tab", "from one thing to the next"],
    ["Esc", "closes a dialog, empties a filter"],
  ],
  "In a run": [
    ["a", "answer: to the first question"],
    ["w", "to the work"],
    ["g", "to the graph; Enter on a node shows its work"],
    ["e", "to the events"],
    ["t", "to the tree of actors"],
    ["/", "filter the actors"],
  ],
  "In a chat": [
    ["Enter", "sends the line; Shift+Enter is a new row"],
    ["\u2191 \u2193", "lines that were sent before"],
    ["Tab", "from an empty line to the first question; Esc leads back"],
    ["Esc", "interrupts what is under way"],
    ["l", "to the line"],
    ["a", "answer: to the first question"],
  ],
  "In the tree of actors": [
    ["\u2191 \u2193", "move; \u2190 \u2192 fold and unfold; Home, End, Page keys"],
    ["Enter", "only the work of this actor and those below it; again: all"],
    ["i", "inspect"],
    ["p", "pause, or resume"],
    ["c", "cancel, after a question"],
  ],
};

/** Show them in a dialog. */
export function shortcuts() {
  if (document.querySelector("dialog")) return;
  const before = document.activeElement;
  const close = h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close");
  const lists = Object.entries(KEYS).flatMap(([place, keys]) => [
    h("h3", {}, place),
    h("dl", {}, ...keys.flatMap(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])),
  ]);
  const dialog = h(
    "dialog",
    { class: "shortcuts", "aria-label": "Keyboard shortcuts" },
    h("h2", {}, "Keyboard shortcuts"),
    ...lists,
    h("div", { class: "actions" }, close),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}

/** Whether a key pressed here is meant as a shortcut, and not as text or for the browser. */
export function isShortcut(event) {
  const { ctrlKey, metaKey, altKey, target } = event;
  return !(ctrlKey || metaKey || altKey || target.closest?.("input, textarea, select, dialog"));
}
