// The bar on top: where one is, how the connection stands, questions that wait, light or dark.

import { h, mark, say } from "../dom.js";
import { shortcuts } from "./shortcuts.js";
import { nextTheme, theme } from "./theme.js";

const WORDS = {
  none: "No token",
  connecting: "Connecting",
  open: "Connected",
  lost: "Connection lost",
  refused: "Refused",
};
const THEMES = { system: "Auto", light: "Light", dark: "Dark" };
const SIGNS = { system: "\u25d0", light: "\u25cb", dark: "\u25cf" };

export class Header {
  constructor(host, wire) {
    this.wire = wire;
    this.open = new Map(); // questions that wait, of all runs
    this.crumb = h("span", { class: "crumb" });
    this.chats = h("a", { class: "place", href: "#/chats" }, "Chats");
    this.usage = h("a", { class: "place", href: "#/usage" }, "Usage");
    this.asking = h("a", { class: "asking", hidden: true, href: "#/" });
    this.state = h(
      "span",
      { class: "connection", role: "status" },
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("span", { class: "word" }),
    );
    this.keys = h(
      "button",
      { class: "quiet small", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: shortcuts },
      "?",
    );
    this.theme = h("button", { class: "quiet small theme", onclick: () => this.#theme(nextTheme()) });
    host.append(
      h(
        "a",
        { class: "brand", href: "#/", "aria-label": "Callboard: all runs" },
        h("img", { src: "ui/icon.svg", alt: "", width: "20", height: "20" }),
        h("span", {}, "Callboard"),
      ),
      this.crumb,
      h("span", { class: "filler" }),
      this.chats,
      this.usage,
      this.asking,
      this.state,
      this.keys,
      this.theme,
    );
    this.#theme(theme());
    wire.addEventListener("state", () => this.#connection());
    wire.on("_question/asked", (params) => params.subscription === this.subscription && this.#asked(params.question));
    wire.on("_question/closed", (params) => params.subscription === this.subscription && this.#closed(params.question));
    wire.on("_question/lagged", (params) => params.subscription === this.subscription && this.#watch());
    this.#connection();
  }

  place(text) {
    say(this.crumb, text);
    mark(this.usage, "aria-current", location.hash.startsWith(this.usage.hash) ? "page" : null);
    mark(this.chats, "aria-current", location.hash.startsWith("#/chat") ? "page" : null);
    document.title = text ? `${text} \u00b7 Callboard` : "Callboard";
  }

  #theme(chosen) {
    say(this.theme, `${SIGNS[chosen]} ${THEMES[chosen]}`);
    mark(this.theme, "aria-label", `Colours: ${THEMES[chosen]}. Change`);
    mark(this.theme, "title", "Colours: as the system, light, dark");
  }

  #connection() {
    mark(this.state, "data-connection", this.wire.state);
    say(this.state.lastChild, WORDS[this.wire.state]);
    mark(this.state, "title", WORDS[this.wire.state]);
    if (this.wire.state === "open") this.#watch();
  }

  #watch() {
    this.open.clear();
    this.#count();
    this.wire.call("_question/subscribe").then(
      (result) => (this.subscription = result.subscription),
      () => {},
    );
  }

  #asked(question) {
    this.open.set(question.id, question);
    this.#count();
  }

  #closed(id) {
    this.open.delete(id);
    this.#count();
  }

  #count() {
    const number = this.open.size;
    this.asking.hidden = number === 0;
    say(this.asking, number === 1 ? "1 question" : `${number} questions`);
    const [first] = this.open.values();
    mark(this.asking, "href", first?.run ? `#/run/${encodeURIComponent(first.run)}` : "#/");
  }
}
