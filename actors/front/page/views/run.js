// One run: its head, its questions, and four panels. On a narrow screen one panel at a time, by tabs.

import { confirmed, h, mark, say, tell } from "../dom.js";
import { Follower } from "../follow.js";
import { cost, count, duration, instant, line, tokens } from "../model/format.js";
import { ENDED } from "../model/actors.js";
import { Aloud } from "./run/aloud.js";
import { EventsView } from "./run/events.js";
import { GraphView } from "./run/graph.js";
import { inspect } from "./run/inspect.js";
import { badge, setBadge } from "./marks.js";
import { QuestionsView } from "./run/questions.js";
import { isShortcut } from "./shortcuts.js";
import { showSteps } from "./run/steps.js";
import { TreeView } from "./run/tree.js";
import { WorkView } from "./run/work.js";

const TABS = ["Work", "Actors", "Graph", "Events"];
const ELSEWHERE =
  "This run goes on in another process. It can be watched here as it writes its log; to answer, pause or cancel, go to the page or the terminal of that process.";

export class RunView {
  constructor(wire, id) {
    this.wire = wire;
    this.follower = new Follower(wire, id);
    const { state } = this.follower;
    const acts = {
      select: (path) => this.select(path),
      cancel: (actor) => this.cancel(actor),
      pause: (actor) => this.pause(actor),
      inspect: (actor) =>
        inspect(
          actor,
          this.#call("_actor/inspect", { path: actor.path }).then((found) => found.actor),
          acts,
          this.#calls(actor.path),
        ),
      send: (path, text) => this.send(path, text),
    };
    this.tree = new TreeView(state.actors, acts);
    this.work = new WorkView(state, acts);
    this.graph = new GraphView(state.graph, (path) => this.select(path));
    this.events = new EventsView(state);
    this.questions = new QuestionsView(state, (question, value) => this.answer(question, value));
    this.views = [this.tree, this.work, this.graph, this.events, this.questions];
    this.#build();
    this.follower.addEventListener("change", () => this.draw());
    this.follower.addEventListener("problem", () => this.#problem());
    this.timer = setInterval(() => state.ended || (this.#head(), this.tree.draw()), 1000);
    this.heard = (event) => this.#key(event); // wherever the focus is: after a click it is nowhere
    document.addEventListener("keydown", this.heard);
    this.draw();
  }

  #build() {
    this.state = badge("running");
    this.name = h("h1");
    this.sub = h("p", { class: "sub" });
    this.numbers = h("dl", { class: "numbers" });
    this.figures = new Map(["Time", "Tokens", "Cost"].map((name) => [name, h("dd")]));
    for (const [name, value] of this.figures) this.numbers.append(h("div", {}, h("dt", {}, name), value));
    this.stop = h("button", { class: "quiet", onclick: () => this.stopRun() }, "Cancel run\u2026");
    this.again = h("button", { class: "primary", hidden: true, onclick: () => this.resumeRun() }, "Resume");
    this.steps = h(
      "button",
      { class: "quiet to-steps", hidden: true, onclick: () => this.showSteps() },
      "Steps\u2026",
    );
    this.behind = h("div", { class: "behind", role: "status", hidden: true });
    this.elsewhere = h("div", { class: "elsewhere", role: "status", hidden: true }, ELSEWHERE);
    this.tabs = h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "Parts of the run" },
      ...TABS.map((name) =>
        h(
          "button",
          {
            role: "tab",
            type: "button",
            "data-tab": name.toLowerCase(),
            onclick: () => this.show(name.toLowerCase()),
            onkeydown: (event) => this.#tabKey(event),
          },
          name,
        ),
      ),
    );
    this.grid = h(
      "div",
      { class: "grid" },
      this.tree.element,
      this.work.element,
      this.graph.element,
      this.events.element,
    );
    this.content = h(
      "div",
      { class: "run" },
      h(
        "div",
        { class: "head" },
        h("div", { class: "names" }, h("div", { class: "line" }, this.name, this.state), this.sub),
        this.numbers,
        this.steps,
        this.stop,
        this.again,
      ),
      this.behind,
      this.elsewhere,
      this.questions.element,
      this.tabs,
      this.grid,
    );
    this.missing = h("div", { class: "empty", hidden: true });
    this.aloud = new Aloud(this.follower.state);
    this.element = h("div", { class: "runpage" }, this.content, this.missing, this.aloud.element);
    this.show("work");
  }

  /** The status that the run has ended with; null as long as it goes on. */
  get ended() {
    const { state, elsewhere } = this.follower;
    if (state.ended) return state.standing;
    return this.wire.state === "lost" && this.wire.stopped && !elsewhere ? "cancelled" : null;
  }

  close() {
    clearInterval(this.timer);
    document.removeEventListener("keydown", this.heard);
    this.follower.close();
    for (const view of this.views) view.close();
  }

  /** Bring a panel to the front, where only one is seen. */
  show(tab) {
    this.grid.dataset.tab = tab;
    for (const button of this.tabs.children) {
      const chosen = button.dataset.tab === tab;
      mark(button, "aria-selected", String(chosen));
      mark(button, "tabindex", chosen ? "0" : "-1");
    }
    this.events.draw(true);
    this.tree.draw(true);
  }

  draw() {
    const { state, picture } = this.follower;
    this.#head();
    this.questions.draw();
    this.tree.draw();
    const changed = state.work.take();
    this.work.draw(changed);
    this.aloud.hear(changed, this.follower.behind === 0);
    if (picture) this.graph.picture(picture);
    this.graph.draw();
    this.events.draw();
    const elsewhere = this.follower.elsewhere && !state.ended;
    this.elsewhere.hidden = !elsewhere;
    this.questions.lock(elsewhere);
    const behind = this.follower.behind;
    this.behind.hidden = behind < 500;
    say(this.behind, `Catching up: ${count(behind)} events to go`);
  }

  #head() {
    const { state, info } = this.follower;
    const name = info?.title || state.name || info?.name || info?.target || state.id;
    say(this.name, name);
    const known = Boolean(state.seq || info);
    setBadge(this.state, this.ended ?? (state.seq || !info ? state.standing : info.status));
    this.state.hidden = !known;
    const model = state.model ?? info?.model;
    say(
      this.sub,
      [line(state.prompt || info?.prompt || "", 160), model, name === state.id ? "" : state.id]
        .filter(Boolean)
        .join("  \u00b7  "),
    );
    const end = state.ended ? instant(state.ended) : Date.now();
    const used = state.used;
    const seconds = (end - instant(state.started)) / 1000;
    say(
      this.figures.get("Time"),
      duration(state.ended || seconds < 1 ? Math.max(0, seconds) : Math.floor(seconds)) || "\u2013",
    );
    say(this.figures.get("Tokens"), tokens(used.input_tokens, used.output_tokens) || "\u2013");
    say(this.figures.get("Cost"), cost(used.cost, used.priced) || "\u2013");
    mark(
      this.numbers,
      "title",
      [...state.usage]
        .map(([id, each]) => `${id}: ${tokens(each.input_tokens, each.output_tokens)} ${cost(each.cost, each.priced)}`)
        .join("\n") || null,
    );
    this.stop.hidden = !known || Boolean(this.ended) || this.follower.elsewhere;
    this.steps.hidden = !known || this.wire.state !== "open";
    this.again.hidden = !(this.ended === "interrupted" && this.wire.state === "open");
  }

  #problem() {
    const { problem, run } = this.follower;
    const missing = problem.word === "not_found" || problem.code === -32004;
    this.content.hidden = true;
    this.missing.hidden = false;
    this.missing.replaceChildren(
      h("h1", {}, missing ? "There is no such run" : "This run can't be shown"),
      h(
        "p",
        {},
        missing
          ? `The server knows no run ${run}. It may have been removed: only the newest are kept.`
          : problem.message,
      ),
      h("a", { class: "button primary", href: "#/" }, "All runs"),
    );
  }

  select(path) {
    this.tree.set(path);
    this.work.select(path);
    if (path) this.show("work");
  }

  async #call(method, params) {
    return await this.wire.call(method, params);
  }

  /** What the models of an actor saw and said; see views/run/calls.js. */
  #calls(actor) {
    const run = this.follower.run;
    return {
      list: (after) => this.#call("_run/calls", { run, after, actor }),
      one: (number) => this.#call("_run/call", { run, number }).then((found) => found.call),
    };
  }

  async #tried(method, params, done) {
    try {
      const result = await this.#call(method, params);
      if (done) tell(done);
      return result ?? {};
    } catch (error) {
      tell(error.message, "error");
      return null;
    }
  }

  async cancel(actor) {
    if (!actor.parent) return this.stopRun();
    if (ENDED.has(actor.state)) return tell(`${actor.name} has ended already.`);
    const below = this.follower.state.actors.below(actor);
    const text = below
      ? `It and the ${below === 1 ? "one actor" : `${below} actors`} below it are stopped. What they have done so far stays.`
      : "It is stopped. What it has done so far stays.";
    if (await confirmed({ title: `Cancel ${actor.name}?`, text, yes: "Cancel it", no: "Let it work" }))
      await this.#tried("_actor/cancel", { path: actor.path });
  }

  async pause(actor) {
    if (ENDED.has(actor.state)) return tell(`${actor.name} has ended already.`);
    const paused = !actor.paused; // the census may say so before the answer comes
    if (!(await this.#tried(paused ? "_actor/pause" : "_actor/resume", { path: actor.path }))) return;
    actor.paused = paused;
    this.tree.draw(true);
  }

  async stopRun() {
    const text = "Everything in it is stopped. What it has done so far stays in the list.";
    if (await confirmed({ title: "Cancel this run?", text, yes: "Cancel the run", no: "Let it work" }))
      await this.#tried("_run/cancel", { run: this.follower.run });
  }

  async resumeRun() {
    this.again.disabled = true;
    if (await this.#tried("_run/resume", { run: this.follower.run })) await this.follower.again();
    this.again.disabled = false;
  }

  /** What it has done so far, and another run from there. */
  showSteps() {
    const { run, state } = this.follower;
    showSteps({
      isGraph: state.dialect === "graph",
      list: (after) => this.#call("_run/steps", { run, after }),
      fork: (wanted) => this.#call("_run/fork", { run, ...wanted }),
    });
  }

  async answer(question, value) {
    const result = await this.#call("_question/answer", { question, value });
    return result?.answered ?? true;
  }

  async send(path, text) {
    return (
      (await this.#tried("_actor/send", { path, text }, "Sent. It is read before the next request to the model.")) !==
      null
    );
  }

  #key(event) {
    if (!isShortcut(event)) return;
    const go = (tab, element) => () => (this.show(tab), element.focus());
    const act = {
      "/": go("actors", this.tree.filter),
      t: go("actors", this.tree.host),
      w: go("work", this.work.tail.element),
      g: go("graph", this.graph.canvas),
      e: go("events", this.events.host),
      a: () => this.questions.focus(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  #tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = TABS.map((name) => name.toLowerCase());
    const next = (names.indexOf(this.grid.dataset.tab) + step + names.length) % names.length;
    this.show(names[next]);
    this.tabs.children[next].focus();
  }
}
