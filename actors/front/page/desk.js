// What belongs to the page's connection and not to one view: what the server asks of the person for a command of a chat
// (`_chat/ask`, `_chat/edit`, `_chat/copy`), and what a chat that was just opened says first.
//
// A question waits here until it is answered, is taken back, or the connection goes; views show those of their chat, by
// the entries that runs have for theirs (`RunState.questions`).

export class Desk extends EventTarget {
  /** Emits "change". copy(text) -> promise: puts a text into the clipboard. */
  constructor(wire, copy) {
    super();
    this.questions = new Map(); // id -> {question, asked, closed, chat, settle}
    this.notes = new Map(); // chat -> what to read first
    this.last = 0;
    wire.serve("_chat/ask", (asked, signal) => this.#ask(asked, ofCommand(asked), signal, (value) => ({ value })));
    wire.serve("_chat/edit", (asked, signal) => this.#ask(asked, ofText(asked), signal, (text) => ({ text })));
    wire.serve("_chat/copy", async ({ text }) => {
      await copy(text);
      return {};
    });
  }

  /** Answer one; null is no answer. False if it was taken back meanwhile. */
  answer(id, value) {
    const entry = this.questions.get(id);
    if (!entry || entry.closed) return false;
    entry.closed = { by: "" };
    entry.settle(value);
    this.#gone(id);
    return true;
  }

  /** Those of one chat, or of all. */
  of(chat = null) {
    return new Map([...this.questions].filter(([, entry]) => chat === null || entry.chat === chat));
  }

  #ask({ chat }, question, signal, result) {
    const id = `ask-${++this.last}`;
    return new Promise((resolve, reject) => {
      const entry = { question: { ...question, id }, asked: null, closed: null, chat, settle: (value) => resolve(result(value)) };
      this.questions.set(id, entry);
      signal.addEventListener("abort", () => {
        entry.closed ??= { reason: "it was taken back" };
        reject(new Error("taken back"));
        this.#gone(id);
      });
      this.dispatchEvent(new Event("change"));
    });
  }

  #gone(id) {
    this.dispatchEvent(new Event("change")); // while it is still there, closed: its card goes
    this.questions.delete(id);
  }
}

function ofCommand({ text, kind = "text", options = [], about = [], default: preset = null, secret = false }) {
  return { text, kind, options, about, default: preset, secret, free: false, from: "The chat asks", skip: "No answer" };
}

function ofText({ name, text, problem = null }) {
  return { text: `Edit ${name}`, kind: "edit", body: text, problem, from: "The chat asks", skip: "Leave it as it is" };
}
