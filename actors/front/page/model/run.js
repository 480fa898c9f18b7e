// All that is known of one run, from its events in order. Pure: no DOM, no clock, no network.

import { Actors } from "./actors.js";
import { GraphState } from "./graph.js";
import { Log } from "./log.js";
import { Work } from "./work.js";

const ENDS = { "run.finished": "done", "run.failed": "failed", "run.cancelled": "cancelled" };

export class RunState {
  constructor(id) {
    this.id = id;
    this.seq = 0; // of the last event that was applied
    this.life = 1; // how many processes have played it
    this.status = "running";
    this.started = null;
    this.ended = null;
    this.last = null; // time of the last event
    this.name = "";
    this.target = "";
    this.dialect = "";
    this.model = null;
    this.prompt = "";
    this.outcome = null;
    this.home = null; // path of the agent that the run was started for; null in a graph or a workflow
    this.usage = new Map(); // model -> {input_tokens, output_tokens, cost, priced}
    this.questions = new Map(); // id -> {question, asked, closed: null or {by, reason, value}}
    this.warnings = 0;
    this.missing = 0; // events that nobody has any more
    this.actors = new Actors(id);
    this.graph = new GraphState(id);
    this.work = new Work();
    this.log = new Log();
  }

  /** Take the next event. False if it is not the next one: some are missing, and must be asked for again from `seq`.
   *  One that was there already is taken for granted. */
  apply(event) {
    if (event.seq <= this.seq) return true;
    const again = event.kind === "run.started" && this.started !== null; // another process goes on: its numbers are its own
    if (event.seq !== this.seq + 1 && !again) return false;
    if (again) this.#again(event.ts);
    this.seq = event.seq;
    this.last = event.ts;
    const full = event.data ? event : { ...event, data: {} };
    this.actors.apply(full);
    this.graph.apply(full);
    this.work.apply(full);
    this.log.apply(full);
    OWN[full.kind]?.(this, full.data, full);
    if (ENDS[full.kind]) this.#end(ENDS[full.kind], full);
    return true;
  }

  /** Events up to `seq` can't be had any more: the server could not write them down. */
  skip(seq) {
    if (seq <= this.seq) return;
    this.missing += seq - this.seq;
    this.seq = seq;
  }

  #end(status, event) {
    this.outcome = event.data.outcome ?? {};
    if (status === "cancelled" && this.outcome.resumable) status = "interrupted";
    this.status = status;
    this.ended = event.ts;
    this.close(status, event.ts);
  }

  /** What the process that played it before had under way is so no more. */
  #again(at) {
    this.close("interrupted", at);
    Object.assign(this, { status: "running", ended: null, outcome: null, home: null });
  }

  /** Nothing will follow: as the last event says, or, of a run that was lost, as the server says. */
  close(status, at) {
    this.status = status;
    this.ended ??= at;
    const rest = status === "done" ? "done" : "cancelled";
    this.actors.close(at, rest, status);
    this.graph.close(rest, status === "interrupted");
    this.work.close();
    const reason = status === "interrupted" ? "the process has ended" : "the run has ended";
    for (const entry of this.questions.values()) entry.closed ??= { reason };
  }

  /** Questions that wait for an answer, the oldest first. */
  get open() {
    return [...this.questions.values()].filter((entry) => entry.closed === null);
  }

  /** What was used so far, over all models. */
  get used() {
    const sum = { input_tokens: 0, output_tokens: 0, cost: 0 };
    for (const each of this.usage.values()) for (const field in sum) sum[field] += each[field];
    return { ...sum, priced: [...this.usage.values()].every((each) => each.priced) };
  }

  /** "waiting" while somebody is asked, and otherwise how it stands. */
  get standing() {
    return this.status === "running" && this.open.length ? "waiting" : this.status;
  }
}

const OWN = {
  "run.started": (run, data, event) => {
    run.started ??= event.ts;
    Object.assign(run, {
      name: data.name,
      target: data.target,
      dialect: data.dialect,
      model: data.model ?? null,
      prompt: data.prompt || "",
    });
  },
  "agent.started": (run, data, event) => {
    if (run.dialect === "agent" && !data.depth) run.home ??= event.actor;
  },
  "run.resumed": (run, data) => (run.life = data.life),
  "run.warning": (run) => run.warnings++,
  "usage.update": (run, data) =>
    run.usage.set(data.model, {
      input_tokens: data.input_tokens,
      output_tokens: data.output_tokens,
      cost: data.cost,
      priced: data.priced !== false, // logs of older versions do not say it
    }),
  "question.asked": (run, data, event) =>
    run.questions.set(event.id || data.question.id, { question: data.question, asked: event.ts, closed: null }),
  "question.answered": (run, data, event) => closed(run, event, { by: data.by, value: data.value }),
  "question.expired": (run, data, event) => closed(run, event, { reason: data.reason }),
};

function closed(run, event, how) {
  const entry = run.questions.get(event.id);
  if (entry) entry.closed = how;
}
