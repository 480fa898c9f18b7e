// Questions that wait for a person. Several may be open; each is answered on its own.

import { h, mark, say } from "../../dom.js";
import { duration, instant, within } from "../../model/format.js";
import { asked } from "./asked.js";

const FAREWELL = 4000; // milliseconds for which it is told who else has answered

export class QuestionsView {
  /** answer(id, value) -> promise of whether it was taken. */
  constructor(state, answer) {
    Object.assign(this, { state, answer, cards: new Map(), locked: false, next: () => this.focus() });
    this.element = h("section", { class: "questions", "aria-label": "Questions", "aria-live": "polite", hidden: true });
    this.timer = setInterval(() => this.#times(), 1000);
  }

  close() {
    clearInterval(this.timer);
  }

  draw() {
    for (const [id, entry] of this.state.questions) {
      const card = this.cards.get(id);
      if (!card && entry.closed === null) this.#open(id, entry);
      else if (card && entry.closed && !card.closed) this.#shut(card, entry.closed);
    }
    this.element.hidden = this.cards.size === 0;
  }

  /** To where the first question is answered; whether there is one. */
  focus() {
    const first = this.element.querySelector(".question:not([data-closed]) :is(button, input, textarea):enabled");
    first?.focus();
    return Boolean(first);
  }

  /** With `yes`, the questions can be read and not be answered: somebody else has to. */
  lock(yes) {
    if (this.locked === yes) return;
    this.locked = yes;
    for (const card of this.cards.values()) card.busy(yes);
  }

  #open(id, entry) {
    const card = new Card(entry, entry.run ?? this.state.id, (value) => this.#give(card, id, value));
    this.cards.set(id, card);
    if (this.locked) card.busy(true);
    this.element.append(card.element);
  }

  #shut(card, how) {
    card.shut(how);
    const gone = () => {
      card.element.remove();
      this.cards.delete(card.question.id);
      this.element.hidden = this.cards.size === 0;
    };
    if (card.ours || this.state.ended) gone();
    else setTimeout(gone, FAREWELL);
  }

  async #give(card, id, value) {
    card.busy(true);
    try {
      card.ours = await this.answer(id, value);
      if (!card.ours) card.note("It was answered or withdrawn already.");
      else if (leftBy(card)) this.next();
    } catch (error) {
      card.note(error.message);
      card.busy(false);
    }
  }

  #times() {
    for (const card of this.cards.values()) card.tick();
  }
}

/** Whether the focus is nowhere, or still on what has just been locked: a browser takes it from there in its own time. */
function leftBy(card) {
  const { activeElement } = document;
  return activeElement === document.body || card.element.contains(activeElement);
}

class Card {
  constructor(entry, run, give) {
    this.question = entry.question;
    this.asked = instant(entry.asked);
    this.give = give;
    const { question } = this;
    const from = question.permission
      ? `${question.permission} asks for permission`
      : question.from || question.node || within(question.actor, run);
    this.rest = h("span", { class: "meta" });
    this.hint = h("p", { class: "problem", role: "alert", hidden: !question.problem }, question.problem ?? "");
    this.form = h(
      "form",
      { class: `answer ${question.kind ?? "text"}`, onsubmit: (event) => event.preventDefault() },
      ...INPUTS[question.kind ?? "text"](question, give),
      question.skip ? h("button", { type: "button", class: "quiet small none", onclick: () => give(null) }, question.skip) : null,
    );
    this.element = h(
      "article",
      { class: "question", "data-question": question.id },
      h(
        "header",
        {},
        h("span", { class: "shape", "data-state": "waiting", "aria-hidden": "true" }, "\u25d4"),
        h("strong", {}, from),
        this.rest,
      ),
      ...asked(question),
      question.rule ? h("p", { class: "hint" }, question.rule) : null,
      this.hint,
      this.form,
    );
    this.tick();
  }

  tick() {
    if (!this.question.timeout || this.closed) return;
    const left = this.asked / 1000 + this.question.timeout - Date.now() / 1000;
    say(this.rest, left > 0 ? `closes in ${duration(Math.ceil(left))}` : "is closing");
  }

  busy(yes) {
    for (const input of this.form.elements) input.disabled = yes;
  }

  note(text) {
    say(this.hint, text);
    this.hint.hidden = false;
  }

  shut(how) {
    this.closed = true;
    this.busy(true);
    mark(this.element, "data-closed", "");
    this.form.hidden = true;
    this.hint.hidden = true;
    const value = Array.isArray(how.value) ? how.value.join(", ") : how.value;
    say(
      this.rest,
      how.by !== undefined
        ? `answered${how.by ? ` by ${how.by}` : ""}${value ? `: ${value}` : ""}`
        : `closed: ${how.reason}`,
    );
  }
}

const button = (text, value, give, main) =>
  h("button", { type: "button", class: main ? "primary" : "", onclick: () => give(value) }, text);

/** Options as buttons, each with what it is about where that is said. */
function choice(question, option, at, give) {
  const made = button(option, option, give, option === question.default);
  const about = question.about?.[at];
  if (about) made.append(h("span", { class: "about" }, about));
  return made;
}

const INPUTS = {
  choice(question, give) {
    const options = question.options ?? [];
    const choices = h(
      "div",
      { class: "choices" },
      ...options.map((option, at) => choice(question, option, at, give)),
    );
    return question.free === false ? [choices] : [choices, ...INPUTS.text(question, give, "Something else")];
  },

  confirm(question, give) {
    return [
      h(
        "div",
        { class: "choices" },
        button("Yes", "yes", give, question.default === "yes"),
        button("No", "no", give, question.default === "no"),
      ),
    ];
  },

  text(question, give, placeholder = "Answer") {
    const field = question.secret
      ? h("input", {
          type: "password",
          "aria-label": placeholder,
          placeholder: "Not shown, and not kept",
          autocomplete: "off",
        })
      : h("textarea", {
          rows: "1",
          "aria-label": placeholder,
          placeholder: question.default && placeholder === "Answer" ? `Empty: ${question.default}` : placeholder,
        });
    const send = () => give(field.value);
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      send();
    });
    return [
      h(
        "div",
        { class: "row" },
        field,
        h("button", { type: "button", class: placeholder === "Answer" ? "primary" : "", onclick: send }, "Answer"),
      ),
    ];
  },

  edit(question, give) {
    const field = h("textarea", { rows: "8", "aria-label": question.text, spellcheck: "false" });
    field.value = question.body;
    return [field, h("button", { type: "button", class: "primary", onclick: () => give(field.value) }, "Save")];
  },

  checkbox(question, give) {
    const boxes = (question.options ?? []).map((option) => ({ option, box: h("input", { type: "checkbox" }) }));
    const send = () => give(boxes.filter(({ box }) => box.checked).map(({ option }) => option));
    return [
      h("div", { class: "boxes" }, ...boxes.map(({ option, box }) => h("label", { class: "check" }, box, option))),
      h("button", { type: "button", class: "primary", onclick: send }, "Answer"),
    ];
  },
};
