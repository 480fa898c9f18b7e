// The supervision tree of one run, from its events; what the live census adds (mail, pauses, cost) is laid over it. Pure.

import { leaf } from "./format.js";

export const ENDED = new Set(["done", "failed", "cancelled", "interrupted"]);
const KEPT_ENDED = 5000;
const OVERLAID = [
  "paused",
  "mailbox",
  "doing",
  "doing_since",
  "turns",
  "input_tokens",
  "output_tokens",
  "cost",
  "priced",
  "restarts",
];

export class Actors {
  constructor(run) {
    this.root = `/${run}`;
    this.known = new Map();
    this.version = 0; // grows whenever a row may look different
    this.ended = []; // paths in the order in which they ended; the oldest are forgotten first
  }

  /** The actor at a path, made (with its ancestors) if it is new; null outside of this run. */
  at(path) {
    const found = this.known.get(path);
    if (found) return found;
    if (path !== this.root && !path.startsWith(`${this.root}/`)) return null;
    const parent = path === this.root ? null : this.at(path.slice(0, path.lastIndexOf("/")));
    const actor = {
      path,
      parent,
      name: leaf(path),
      kind: parent ? "actor" : "run",
      state: "running",
      since: null,
      until: null,
      children: [],
      doing: "",
      doing_since: null,
      turns: 0,
      input_tokens: 0,
      output_tokens: 0,
      cost: 0,
      priced: true,
      restarts: 0,
      mailbox: 0,
      paused: false,
      error: "",
      failed: false, // what it did last has failed, whatever becomes of the actor itself
      asked: 0,
    };
    this.known.set(path, actor);
    parent?.children.push(actor);
    this.version++;
    return actor;
  }

  apply(event) {
    const change = CHANGES[event.kind];
    if (!change) return;
    const actor = this.at(event.actor);
    if (!actor) return;
    change(actor, event.data, event, this);
    this.version++;
  }

  /** What the census says of actors that live. */
  overlay(infos) {
    for (const info of infos) {
      const actor = this.at(info.path);
      if (!actor || ENDED.has(actor.state)) continue;
      for (const field of OVERLAID) if (info[field] !== undefined) actor[field] = info[field];
      if (info.kind && info.kind !== "actor") actor.kind = info.kind;
      if (info.state && !ENDED.has(info.state)) actor.state = info.state;
      actor.since ??= info.since ?? null;
    }
    if (infos.length) this.version++;
  }

  end(actor, state, at) {
    if (ENDED.has(actor.state)) return;
    if (state === "done" && actor.failed) state = "failed"; // an actor brings its failure to its parent and ends normally
    Object.assign(actor, { state, until: at, doing: "", paused: false, mailbox: 0 });
    this.ended.push(actor.path);
    while (this.ended.length > KEPT_ENDED) this.#forget(this.ended.shift());
  }

  /** The run is over, as `run` says: whoever has not said so has ended too. */
  close(at, state, run) {
    for (const actor of this.known.values()) this.end(actor, state, at);
    const root = this.known.get(this.root);
    if (root) root.state = run;
    this.version++;
  }

  #forget(path) {
    const actor = this.known.get(path);
    if (!actor || !actor.parent || actor.children.length || !ENDED.has(actor.state)) return;
    actor.parent.children.splice(actor.parent.children.indexOf(actor), 1);
    this.known.delete(path);
  }

  /** How many live, and how many there are. */
  tally() {
    let live = 0;
    for (const actor of this.known.values()) live += ENDED.has(actor.state) ? 0 : 1;
    return { live, all: this.known.size };
  }

  /** The rows that a tree view shows from top to bottom.
   *  filter: only actors whose path, kind or state has this text, and who leads to them. live: only who has not ended. */
  rows({ collapsed = new Set(), filter = "", live = false } = {}) {
    const root = this.known.get(this.root);
    if (!root) return [];
    const wanted = filter || live ? this.#wanted(filter.toLowerCase(), live) : null;
    const rows = [];
    const walk = (actor, level, position, size) => {
      const children = wanted ? actor.children.filter((child) => wanted.has(child)) : actor.children;
      const open = children.length > 0 && (Boolean(filter) || !collapsed.has(actor.path));
      rows.push({ actor, level, position, size, expanded: children.length ? open : null });
      if (open) children.forEach((child, index) => walk(child, level + 1, index + 1, children.length));
    };
    walk(root, 1, 1, 1);
    return rows;
  }

  #wanted(filter, live) {
    const wanted = new Set();
    for (const actor of this.known.values()) {
      if (live && ENDED.has(actor.state)) continue;
      if (filter && !`${actor.path} ${actor.kind} ${actor.state}`.toLowerCase().includes(filter)) continue;
      for (let each = actor; each && !wanted.has(each); each = each.parent) wanted.add(each);
    }
    return wanted;
  }

  /** How many live below an actor, itself left out. */
  below(actor) {
    return actor.children.reduce((sum, child) => sum + this.below(child) + (ENDED.has(child.state) ? 0 : 1), 0);
  }
}

function doing(actor, what, at) {
  actor.doing = what;
  actor.doing_since = what ? at : null;
}

/** Its work is over: with this error, or done. The nodes of a map's item follow one another in one actor. */
function looked(actor, data) {
  actor.input_tokens += data.input_tokens || 0;
}

function over(actor, error) {
  Object.assign(actor, { error: error || "", failed: Boolean(error) });
}

const CHANGES = {
  "run.started": (actor, data, event) =>
    Object.assign(actor, { kind: "run", name: data.name || actor.name, since: event.ts }),
  "actor.spawned": (actor, data, event) => {
    const name = actor.parent ? leaf(actor.path) : actor.name;
    Object.assign(actor, { state: "running", since: event.ts, until: null, error: "", failed: false, name });
  },
  "actor.waiting": (actor, data) => Object.assign(actor, { state: "waiting", waits_on: data.on || "" }),
  "actor.busy": (actor) => Object.assign(actor, { state: "running", waits_on: "" }),
  "actor.restarted": (actor, data) =>
    Object.assign(actor, { state: "running", restarts: actor.restarts + 1, error: data.error || "", failed: false }),
  "actor.stuck": (actor, data) => Object.assign(actor, { error: `did not end within ${data.seconds} s` }),
  "actor.stopped": (actor, data, event, actors) =>
    actors.end(actor, (data.reason ?? "normal") === "normal" ? "done" : "cancelled", event.ts),
  "actor.failed": (actor, data, event, actors) => {
    actor.error = data.error || "";
    actors.end(actor, "failed", event.ts);
  },
  "question.asked": (actor) => Object.assign(actor, { asked: actor.asked + 1 }),
  "question.answered": (actor) => Object.assign(actor, { asked: Math.max(0, actor.asked - 1) }),
  "question.expired": (actor) => Object.assign(actor, { asked: Math.max(0, actor.asked - 1) }),
  "graph.started": (actor) => Object.assign(actor, { kind: "graph" }),
  "graph.finished": (actor, data) => over(actor, data.error),
  "node.entered": (actor, data) => {
    if (actor.kind !== "graph") Object.assign(actor, { kind: "node", detail: data.type }); // a graph plays its end nodes itself
  },
  "node.exited": (actor, data) => {
    if (actor.kind !== "graph") over(actor, data.error);
  },
  "agent.started": (actor) => Object.assign(actor, { kind: "agent" }),
  "agent.finished": (actor, data) => {
    actor.doing = "";
    over(actor, data.error);
  },
  "llm.request": (actor, data, event) => doing(actor, data.model, event.ts),
  "llm.response": (actor, data) => {
    actor.turns++;
    actor.input_tokens += data.input_tokens || 0;
    actor.output_tokens += data.output_tokens || 0;
    doing(actor, "", null);
  },
  "llm.embedding": looked,
  "llm.rerank": looked,
  "llm.retry": (actor, data, event) => doing(actor, "waits to ask again", event.ts),
  "llm.fallback": (actor, data, event) => doing(actor, data.next, event.ts),
  "llm.waiting": (actor, data, event) => doing(actor, `waits for ${data.model}`, event.ts),
  "tool.call.started": (actor, data, event) => {
    if (actor.kind === "actor") actor.kind = "tool";
    doing(actor, data.tool, event.ts);
  },
  "tool.call.finished": (actor, data) => {
    doing(actor, "", null);
    if (actor.kind === "tool") over(actor, data.error);
  },
};
