// The line of input: Enter sends it, Shift+Enter begins a row, the arrows bring back what was sent before. Tab leads from
// an empty line to a question, as at the terminal: on the way back there is the whole conversation.

import { h, mark, say } from "../../dom.js";
import { History } from "../../model/chat.js";

export class LineView {
  /** send(text): takes it; interrupt(): stops what is under way; ask(): to a question, false if there is none. */
  constructor({ send, interrupt, ask }) {
    Object.assign(this, { give: send, ask, history: new History() });
    this.field = h("textarea", {
      rows: "1",
      name: "line",
      "aria-label": "Line",
      placeholder: "A prompt, or a command (.help)",
      onkeydown: (event) => this.#key(event),
    });
    this.go = h("button", { class: "primary" }, "Send");
    this.stop = h("button", { type: "button", class: "quiet", hidden: true, title: "Esc", onclick: interrupt }, "Interrupt");
    this.why = h("p", { class: "hint", id: "line-locked", hidden: true });
    this.element = h(
      "form",
      { class: "entry", onsubmit: (event) => (event.preventDefault(), this.#send()) },
      this.why,
      h("div", { class: "row" }, this.field, this.stop, this.go),
    );
  }

  focus() {
    if (!this.field.disabled) this.field.focus();
  }

  /** locked: why nothing can be sent, or ""; ready: whether there is a connection; busy: whether something is under way. */
  draw({ locked, ready, busy, mayInterrupt }) {
    this.ready = ready && !locked;
    this.field.disabled = Boolean(locked);
    this.go.disabled = !this.ready;
    this.stop.hidden = !busy || !mayInterrupt;
    this.stop.disabled = !ready;
    this.why.hidden = !locked;
    say(this.why, locked);
    mark(this.field, "aria-describedby", locked ? "line-locked" : null);
  }

  #key(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#send();
    } else if (event.key === "Tab" && !event.shiftKey && !this.field.value) this.ask() && event.preventDefault();
    else if (event.key === "ArrowUp" && !this.#before().includes("\n")) this.#step(event, -1);
    else if (event.key === "ArrowDown" && !this.#behind().includes("\n")) this.#step(event, 1);
  }

  #before() {
    return this.field.value.slice(0, this.field.selectionStart);
  }

  #behind() {
    return this.field.value.slice(this.field.selectionEnd);
  }

  #step(event, by) {
    const line = this.history.step(by, this.field.value);
    if (line === null) return;
    event.preventDefault();
    this.field.value = line;
    this.field.setSelectionRange(line.length, line.length);
  }

  #send() {
    const text = this.field.value;
    if (!text.trim() || !this.ready) return; // without a connection it stays where it is
    this.history.add(text);
    this.field.value = "";
    this.give(text);
  }
}
