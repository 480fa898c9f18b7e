// What is said while there is no connection, and what to do about it.

import { h, say } from "../dom.js";
import { keep } from "../token.js";

export class Gate {
  /** `ended` gives the status of the run that is shown, once it has ended; before, or without one, null. */
  constructor(wire, ended = () => null) {
    this.wire = wire;
    this.ended = ended;
    this.title = h("h2");
    this.text = h("p");
    this.field = h("input", {
      type: "password",
      name: "token",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "Token",
      "aria-label": "Token",
    });
    this.form = h(
      "form",
      { class: "row", onsubmit: (event) => this.#give(event) },
      this.field,
      h("button", { class: "primary" }, "Use this token"),
    );
    this.retry = h("button", { class: "quiet", onclick: () => wire.again() }, "Try again now");
    this.element = h(
      "section",
      { class: "gate", role: "status", hidden: true },
      this.title,
      this.text,
      this.form,
      this.retry,
    );
    wire.addEventListener("state", () => this.show());
    setInterval(() => wire.state === "lost" && this.show(), 1000);
    this.show();
  }

  show() {
    const ended = this.wire.state === "lost" ? this.ended() : null;
    const said = ended ? OVER : WORDS[this.wire.state];
    this.element.hidden = !said;
    document.body.dataset.connection = this.wire.state;
    if (!said) return;
    this.element.dataset.kind = this.wire.state;
    say(this.title, ended ? `The run has ended: ${ended}` : said.title);
    say(this.text, said.text(this.wire));
    this.form.hidden = !said.token;
    this.retry.hidden = !said.retry;
  }

  #give(event) {
    event.preventDefault();
    if (!this.field.value.trim()) return;
    keep(sessionStorage, this.field.value);
    this.wire.use(this.field.value.trim());
    this.field.value = "";
  }
}

/** A server that was there for this run alone (`callboard run --ui`) ends with it, and nothing is lost. */
const OVER = {
  text: () =>
    "What this page has heard of it stays here. The server has ended, too, or can't be reached just now; callboard runs show has the whole record.",
};

const WORDS = {
  none: {
    title: "This page needs a token",
    text: () =>
      "Open the address that callboard serve printed when it started; it ends in #token=\u2026. The token stays in this tab. Or put it in here.",
    token: true,
  },
  refused: {
    title: "The server does not let this page in",
    text: () =>
      "Most likely it does not know the token: it is mistyped, or the server was started again and has a new one. Open the address that callboard serve printed when it started, or put the new token in here. If it only has too many connections, the page gets in by itself. If the token is right, something between here and the server (a proxy, an extension) may not let websockets through.",
    token: true,
    retry: true,
  },
  lost: {
    title: "The connection is lost",
    text: (wire) =>
      `Runs go on without this page, and nothing is missed: it catches up when the server is back. Next try in ${Math.max(0, Math.ceil((wire.retryAt - Date.now()) / 1000))} s.`,
    retry: true,
  },
};
