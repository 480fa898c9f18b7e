// One run of a chat: its prompt, what its agent says as Markdown, calls of tools a line each, and how it ended. What
// others of the run are at is a row each while it lasts; the run's own page has it all.

import { h, mark, say } from "../../dom.js";
import { Follower } from "../../follow.js";
import { caller, line } from "../../model/format.js";
import { markdown, MarkdownView } from "../markdown.js";
import { blockView } from "../run/blocks.js";

const AT_WORK = 5; // rows of those who are at work

export class AnswerView {
  /** changed(): something looks different; aloud(text): a message has come to its end. */
  constructor(wire, item, { changed, aloud }) {
    Object.assign(this, { item, aloud, views: new Map(), said: false, over: false, coming: new WeakSet(), live: false });
    const href = `#/run/${encodeURIComponent(item.run)}`;
    this.state = h("span", { class: "meta" });
    this.prompt = h("div", { class: "prompt", dir: "auto" }, item.prompt);
    this.head = h(
      "header",
      {},
      h("strong", {}, item.title || "Answer"),
      this.state,
      h("a", { class: "open", href, "aria-label": `Open ${item.run}` }, "Open the run"),
    );
    this.host = h("div", { class: "blocks" });
    this.crew = h("ul", { class: "crew", hidden: true, "aria-label": "At work" });
    this.end = h("div", { class: "end", hidden: true });
    this.element = h("article", { class: "exchange", "data-run": item.run }, this.prompt, this.head, this.host, this.crew, this.end);
    this.follower = new Follower(wire, item.run, { panels: false });
    this.follower.addEventListener("change", () => (this.draw(), changed()));
    this.follower.addEventListener("problem", () => this.#problem(changed));
    this.draw();
  }

  get run() {
    return this.follower.state;
  }

  close() {
    this.follower.close();
  }

  draw() {
    if (this.over) return;
    const { run } = this;
    const changed = run.work.take();
    for (const block of changed) {
      if (!this.#shown(block)) continue;
      const view = this.views.get(block.key) ?? this.#made(block);
      view.update();
      if (block.type !== "text") continue;
      if (block.open) this.coming.add(block); // what was whole when the page came is not said aloud
      else if (this.coming.delete(block)) this.aloud(`${caller(block.actor)}: ${block.text}`);
    }
    this.#crew();
    say(this.state, this.#standing());
    mark(this.element, "data-status", run.standing);
    if (run.ended) this.#ended();
    this.live ||= run.seq > 0 && this.follower.behind === 0;
  }

  /** Whether the run's own agent says or does it; in a graph nobody does, and its result is what is said. */
  #shown(block) {
    if (block.type === "question") return !block.open; // open ones stand above, to be answered
    if (block.type === "note") return block.level === "warning";
    if (block.actor !== this.run.home) return false;
    return block.type === "tool" || Boolean(block.text || block.reasoning);
  }

  #made(block) {
    const view = block.type === "text" ? spoken(block) : blockView(block, () => {});
    this.said ||= block.type === "text" && Boolean(block.text);
    this.views.set(block.key, view);
    this.host.append(view.element);
    return view;
  }

  #crew() {
    const rows = [];
    for (const block of this.run.work.open.values()) {
      if (block.actor === this.run.home || block.type === "question") continue;
      if (rows.length === AT_WORK) break;
      rows.push(`${caller(block.actor)}: ${block.type === "tool" ? block.tool : line(block.text, 80) || "thinks"}`);
    }
    this.crew.hidden = rows.length === 0;
    if (this.shownCrew !== (this.shownCrew = rows.join("\n"))) this.crew.replaceChildren(...rows.map((row) => h("li", {}, row)));
  }

  #standing() {
    const { run } = this;
    if (run.ended) return "";
    if (run.standing === "waiting") return "waits for an answer";
    return [...run.work.open.values()].some((block) => block.actor === run.home && block.text) ? "" : "at work\u2026";
  }

  #ended() {
    this.over = true;
    const { outcome, status, home } = this.run;
    const parts = [];
    this.said ||= [...this.views.values()].some((view) => view.said);
    if (outcome?.output && (!home || !this.said)) parts.push(markdown(outcome.output));
    if (status === "failed") parts.push(h("pre", { class: "error" }, outcome?.error?.message ?? "The run failed."));
    else if (status === "cancelled") parts.push(h("p", { class: "hint" }, "Interrupted. What was said is kept."));
    else if (status === "interrupted") parts.push(h("p", { class: "hint" }, "The process has ended; the answer can go on."));
    else if (status === "lost") parts.push(h("p", { class: "hint" }, "The process that ran it was ended before the run was."));
    if (this.run.work.dropped) parts.push(h("p", { class: "hint" }, "The beginning is left out here; the run has it."));
    this.end.replaceChildren(...parts);
    this.end.hidden = parts.length === 0;
    if (outcome?.output && !this.said && this.live) this.aloud(outcome.output);
    this.follower.close();
  }

  #problem(changed) {
    say(this.state, `This run can't be shown: ${this.follower.problem.message}`);
    this.over = true;
    changed();
  }
}

/** What the agent says: its reasoning folded, its words as Markdown. */
function spoken(block) {
  const words = new MarkdownView();
  const thought = h("div", { class: "thought" });
  const thinking = h("details", { hidden: true }, h("summary", {}, "Reasoning"), thought);
  const cut = h("p", { class: "hint", hidden: true }, "The beginning is left out here; the run's events have it.");
  const element = h("div", { class: "spoken" }, thinking, cut, words.element);
  const view = {
    element,
    said: false,
    update() {
      view.said ||= Boolean(block.text);
      thinking.hidden = !block.reasoning;
      say(thought, block.reasoning);
      cut.hidden = !block.cut;
      words.put(block.text);
      mark(element, "data-open", block.open ? "" : null);
    },
  };
  return view;
}
