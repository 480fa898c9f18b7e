// One chat: what was told in it and what is told now, what it asks, and the line that goes to it.

import { confirmed, h, say, tell } from "../dom.js";
import { ChatFollower } from "../follow_chat.js";
import { cost, count, line } from "../model/format.js";
import { nameOf, whereabouts } from "../model/chat.js";
import { AnswerView } from "./chat/answer.js";
import { LineView } from "./chat/line.js";
import { toldView } from "./chat/told.js";
import { badge, setBadge } from "./marks.js";
import { QuestionsView } from "./run/questions.js";
import { isShortcut } from "./shortcuts.js";
import { Tail } from "./tail.js";

const SHOWN = 40; // items at first; each run among them is followed. "Earlier" shows as many more
const UNANSWERED = "To answer questions your token would need the scope answer:questions.";
const LONGEST = 400; // characters of what is said aloud

export class ChatView {
  constructor(wire, desk, id) {
    Object.assign(this, { wire, desk, id, views: new Map(), most: SHOWN });
    this.follower = new ChatFollower(wire, id);
    this.line = new LineView({ send: (text) => this.#send(text), interrupt: () => this.#interrupt(), ask: () => this.questions.focus() });
    const waiting = { questions: new Map(), id: "" };
    this.questions = new QuestionsView(waiting, (question, value) => this.#answer(question, value));
    this.questions.next = () => this.line.focus();
    this.#build();
    for (const text of desk.notes.get(id) ?? []) this.follower.state.note(text);
    desk.notes.delete(id);
    this.asked = () => this.draw();
    desk.addEventListener("change", this.asked);
    this.follower.addEventListener("change", () => this.draw());
    this.heard = (event) => this.#key(event);
    document.addEventListener("keydown", this.heard);
    this.draw();
  }

  #build() {
    this.state = badge("idle");
    this.name = h("h1");
    this.sub = h("p", { class: "sub" });
    this.figures = new Map(["Answers", "Context", "Cost"].map((name) => [name, h("dd")]));
    const numbers = [...this.figures].map(([name, value]) => h("div", {}, h("dt", {}, name), value));
    this.shut = h("button", { class: "quiet", onclick: () => this.#close() }, "Close chat\u2026");
    this.earlier = h("button", { class: "quiet small earlier", hidden: true, onclick: () => this.#more() }, "Earlier");
    this.host = h("div", { class: "told" });
    this.none = h("p", { class: "hint none", hidden: true }, "Nothing has been said yet.");
    const inside = h("div", { class: "inside" }, this.earlier, this.none, this.host);
    this.tail = new Tail("Conversation", [inside], inside);
    this.unanswered = h("p", { class: "elsewhere", hidden: true }, UNANSWERED);
    this.aloud = h("div", { class: "aloud", role: "status", "aria-live": "polite" });
    this.content = h(
      "div",
      { class: "chat" },
      h(
        "div",
        { class: "head" },
        h("div", { class: "names" }, h("div", { class: "line" }, this.name, this.state), this.sub),
        h("dl", { class: "numbers" }, ...numbers),
        this.shut,
      ),
      this.questions.element,
      this.unanswered,
      h("div", { class: "talk" }, this.tail.element, this.tail.latest),
      this.line.element,
    );
    this.missing = h("div", { class: "empty", hidden: true });
    this.element = h("div", { class: "chatpage" }, this.content, this.missing, this.aloud);
  }

  focus() {
    this.line.focus();
  }

  close() {
    document.removeEventListener("keydown", this.heard);
    this.desk.removeEventListener("change", this.asked);
    this.follower.close();
    this.questions.close();
    this.tail.close();
    for (const view of this.views.values()) view.close?.();
  }

  draw() {
    const { state, problem } = this.follower;
    if (problem && !state.info) return this.#problem(problem);
    this.missing.hidden = true;
    this.content.hidden = false;
    this.#items();
    this.#ask();
    this.#head(state.info);
    const { locked, ready, mayInterrupt } = this.follower;
    const focused = this.line.field.disabled;
    this.line.draw({ locked, ready, busy: state.busy, mayInterrupt });
    if (focused && document.activeElement === document.body) this.line.focus();
    this.tail.grown();
  }

  #head(info) {
    const { state, mayInterrupt } = this.follower;
    say(this.name, info ? nameOf(info) : this.id);
    const waits = [...this.questions.state.questions.values()].some((entry) => entry.closed === null);
    setBadge(this.state, state.closed ? "done" : waits ? "waiting" : info?.run ? "running" : "idle");
    if (state.closed) say(this.state.lastChild, "closed");
    this.state.hidden = !info;
    const name = info && nameOf(info);
    say(this.sub, info ? [...whereabouts(info).filter((text) => text !== name), this.id].join(" \u00b7 ") : "");
    say(this.figures.get("Answers"), String(info?.turns ?? 0));
    const percent = info?.percent ?? null;
    const tokens = info?.tokens ? count(info.tokens) : "\u2013";
    say(this.figures.get("Context"), percent === null ? tokens : `${tokens} (${percent}%)`);
    say(this.figures.get("Cost"), (info && cost(info.cost, info.priced)) || "\u2013");
    this.shut.hidden = !mayInterrupt;
  }

  #items() {
    const { items, dropped } = this.follower.state;
    const shown = items.slice(-this.most);
    const keys = new Set(shown.map((item) => item.key));
    for (const [key, view] of this.views)
      if (!keys.has(key) && !view.live) {
        view.close?.();
        view.element.remove();
        this.views.delete(key);
      }
    let last = null;
    for (const item of shown) {
      let view = this.views.get(item.key);
      if (!view) {
        view = this.#made(item);
        this.views.set(item.key, view);
        if (last) last.after(view.element);
        else this.host.prepend(view.element);
      }
      view.update?.();
      last = view.element;
    }
    this.none.hidden = items.length > 0 || !this.follower.watching;
    this.earlier.hidden = items.length <= this.most && !dropped;
    this.earlier.disabled = items.length <= this.most;
    say(this.earlier, items.length > this.most ? "Earlier" : `${dropped} older ones are no longer kept in this page`);
  }

  #made(item) {
    if (item.type === "run")
      return new AnswerView(this.wire, item, {
        changed: () => (this.#ask(), this.#head(this.follower.state.info), this.tail.grown()),
        aloud: (text) => this.#tell(text),
      });
    if (item.type === "said" && !item.past) this.#tell(item.text);
    return toldView(item);
  }

  /** Questions of the runs that are shown, and of commands. */
  #ask() {
    const all = new Map(this.desk.of(this.id));
    for (const view of this.views.values())
      if (view.run) for (const [id, entry] of view.run.questions) all.set(id, Object.assign(entry, { run: view.run.id }));
    this.questions.state.questions = all;
    this.questions.draw();
    const locked = !this.follower.mayAnswer && this.desk.of(this.id).size === 0;
    this.questions.lock(locked);
    this.unanswered.hidden = !locked || this.questions.element.hidden;
  }

  async #answer(id, value) {
    if (this.desk.questions.has(id)) return this.desk.answer(id, value);
    const result = await this.wire.call("_question/answer", { question: id, value });
    return result?.answered ?? true;
  }

  async #send(text) {
    this.tail.follow();
    const { leave, attach } = await this.follower.send(text);
    if (!this.element.isConnected || !(leave || attach)) return;
    if (leave) tell("The chat is closed.");
    location.hash = attach ? `#/chat/${encodeURIComponent(attach)}` : "#/chats";
  }

  async #interrupt() {
    try {
      if (!(await this.follower.interrupt())) tell("There was nothing to interrupt any more.");
    } catch (error) {
      tell(error.message, "error");
    }
  }

  async #close() {
    const text = "What is under way in it is stopped. What was said in a session that is kept stays there; the rest is forgotten.";
    if (!(await confirmed({ title: "Close this chat?", text, yes: "Close it", no: "Keep it open" }))) return;
    try {
      await this.follower.end();
      location.hash = "#/chats";
    } catch (error) {
      tell(error.message, "error");
    }
  }

  #problem(problem) {
    const none = problem.word === "not_found" || problem.code === -32004;
    this.content.hidden = true;
    this.missing.hidden = false;
    this.missing.replaceChildren(
      h("h1", {}, none ? "There is no such chat" : "This chat can't be shown"),
      h("p", {}, none ? `The server knows no chat ${this.id}. It was closed, or the server was started again.` : problem.message),
      h("a", { class: "button primary", href: "#/chats" }, "All chats"),
    );
  }

  /** For who hears the page: whole messages, and nothing of what had been before. */
  #tell(text) {
    say(this.aloud, line(text, LONGEST));
  }

  #key(event) {
    if (document.querySelector("dialog")) return;
    if (event.key === "Escape") return this.#escape(event);
    if (!isShortcut(event)) return;
    const act = { l: () => this.line.focus(), a: () => this.questions.focus() }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  #escape(event) {
    if (event.isComposing) return;
    if (event.target.closest?.(".question")) return this.line.focus();
    if (this.follower.state.busy && this.follower.mayInterrupt) this.#interrupt();
  }

  #more() {
    this.most += SHOWN;
    this.tail.above(() => this.draw());
  }
}
