// The list of chats that are open, and where one begins.

import { h, say } from "../dom.js";
import { cost, moment } from "../model/format.js";
import { lacking, nameOf, whereabouts } from "../model/chat.js";
import { ListView, fillCells } from "./list.js";
import { setBadge } from "./marks.js";
import { QuestionsView } from "./run/questions.js";

const TO_OPEN = ["run:agents", "read:runs"];
const HEADS = ["Status", "Chat", "Model", "Opened", "Answers", "Context", "Cost"];

export class ChatsView extends ListView {
  constructor(wire, desk) {
    super(wire, "chat", HEADS, "chats");
    Object.assign(this, { desk, chats: [] });
    this.#build();
    this.questions = new QuestionsView({ questions: desk.of(), id: "" }, async (id, value) => desk.answer(id, value));
    this.element.prepend(this.questions.element);
    this.ask = () => {
      this.questions.state.questions = desk.of();
      this.questions.draw();
    };
    desk.addEventListener("change", this.ask);
    this.ask();
    this.begin(() => this.#rights());
  }

  close() {
    super.close();
    this.desk.removeEventListener("change", this.ask);
    this.questions.close();
  }

  #build() {
    this.choices = h("datalist", { id: "chat-agents" });
    const field = (name, placeholder, list) =>
      h("input", { name, placeholder, list, "aria-label": placeholder, autocomplete: "off", spellcheck: "false" });
    this.agent = field("agent", "Agent (or none)", "chat-agents");
    this.model = field("model", "Model (as configured)");
    this.go = h("button", { class: "primary" }, "New chat");
    this.failed = h("div", { class: "problem", role: "alert", hidden: true });
    this.form = h("form", { class: "newchat", onsubmit: (event) => this.#open(event) }, this.agent, this.choices, this.model, this.go);
    this.element = h(
      "div",
      { class: "list" },
      h("div", { class: "titlebar" }, h("h1", {}, "Chats"), h("span", { class: "filler" }), this.form),
      this.failed,
      this.table,
      this.empty,
    );
  }

  /** What can be opened, and whether the token may. */
  async #rights() {
    if (this.wire.state !== "open") return;
    const [info, listed] = await Promise.all([
      this.wire.call("_server/info").catch(() => null),
      this.wire.call("_target/list").catch(() => ({ targets: [] })),
    ]);
    const names = (listed.targets ?? []).filter((each) => !each.problem && each.name);
    this.choices.replaceChildren(...names.map((each) => h("option", { value: each.name }, each.description ?? "")));
    const missing = lacking(info?.scopes ?? ["*"], TO_OPEN);
    for (const field of this.form.elements) field.disabled = missing.length > 0;
    if (missing.length) this.#fail(`To begin a chat your token would need the scope ${missing.join(" and ")}.`);
  }

  async fetch() {
    this.chats = (await this.wire.call("_chat/list")).chats ?? [];
  }

  draw() {
    const shown = [...this.chats].reverse(); // the newest first
    this.place(shown.map((info) => [info.chat, info]));
    this.empty.hidden = shown.length > 0 && !this.problem;
    const nothing = this.loaded
      ? "No chat is open. Begin one with the button above, or at a terminal: callboard chat --url, and this server's address."
      : this.waits;
    const text = this.problem || (shown.length ? "" : nothing);
    if (this.empty.textContent !== text) this.empty.replaceChildren(h("p", {}, text));
  }

  fill(row, info) {
    setBadge(row.state, info.run ? "running" : "idle");
    say(row.link, nameOf(info));
    say(row.sub, [...whereabouts({ ...info, model: null }), info.chat].join(" \u00b7 "));
    fillCells(row, [
      info.model ?? "",
      moment(info.started),
      String(info.turns ?? 0),
      info.percent === null || info.percent === undefined ? "\u2013" : `${info.percent}%`,
      cost(info.cost, info.priced) || "\u2013",
    ]);
  }

  async #open(event) {
    event.preventDefault();
    const wanted = { keep: true }; // else it would end with a reload of the page
    if (this.agent.value.trim()) wanted.agent = this.agent.value.trim();
    if (this.model.value.trim()) wanted.model = this.model.value.trim();
    this.failed.hidden = true;
    this.go.disabled = true;
    try {
      const { chat, notes = [] } = await this.wire.call("_chat/open", wanted, { patience: 0 });
      this.desk.notes.set(chat.chat, notes);
      if (this.element.isConnected) location.hash = `#/chat/${encodeURIComponent(chat.chat)}`;
    } catch (error) {
      this.#fail(error.message);
      this.agent.focus();
    } finally {
      this.go.disabled = false;
    }
  }

  #fail(text) {
    say(this.failed, text);
    this.failed.hidden = false;
  }
}
