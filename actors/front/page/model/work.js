// What agents say and do, as blocks in the order in which they began: text, tool calls, questions, notes. Pure.

import { leaf } from "./format.js";

const KEPT_BLOCKS = 4000;
const KEPT_TEXT = 60000; // characters of one block; the beginning of more is left out
const KEPT_LINES = 200; // of what one tool prints

export class Work {
  constructor() {
    this.blocks = [];
    this.open = new Map(); // by actor and id: the block that further events belong to
    this.dropped = 0; // how many of the oldest are no longer kept
    this.changed = new Set(); // blocks that look different since a view last took them
    this.next = 1;
  }

  apply(event) {
    STEPS[event.kind]?.(this, event.data, event);
  }

  /** What has changed since the last time. */
  take() {
    const changed = this.changed;
    this.changed = new Set();
    return changed;
  }

  add(type, event, fields) {
    const block = { key: this.next++, type, actor: event.actor, at: event.ts, ...fields };
    this.blocks.push(block);
    this.changed.add(block);
    if (this.blocks.length > KEPT_BLOCKS * 1.25) {
      this.dropped += this.blocks.length - KEPT_BLOCKS;
      this.blocks.splice(0, this.blocks.length - KEPT_BLOCKS);
    }
    return block;
  }

  begin(type, event, fields) {
    const block = this.add(type, event, { open: true, ...fields });
    this.open.set(`${type} ${event.actor} ${event.id || ""}`, block);
    return block;
  }

  /** The block that this event goes on with. */
  found(type, event) {
    let block = this.open.get(`${type} ${event.actor} ${event.id || ""}`);
    if (!block && type === "tool" && !event.id) block = this.#playedBy(event.actor); // what the tool itself tells
    if (block) this.changed.add(block);
    return block;
  }

  #playedBy(actor) {
    for (const block of this.open.values()) if (block.type === "tool" && block.playedBy === actor) return block;
    return undefined;
  }

  finish(type, event, fields) {
    const block = this.found(type, event);
    if (block) Object.assign(block, { open: false, ...fields });
    this.open.delete(`${type} ${event.actor} ${event.id || ""}`);
    return block;
  }

  /** Nothing goes on any more. */
  close() {
    for (const block of this.open.values()) {
      Object.assign(block, { open: false, broken: true });
      this.changed.add(block);
    }
    this.open.clear();
  }
}

function append(block, field, text) {
  const whole = block[field] + text;
  block[field] = whole.length > KEPT_TEXT ? whole.slice(-KEPT_TEXT * 0.8) : whole;
  if (block[field] !== whole) block.cut = true;
}

/** Whose work a tool call is: a call has an actor of its own below the agent's. */
function caller(event) {
  const own = leaf(event.actor).replace(/#\d+$/, "") === event.data.tool;
  return own ? event.actor.slice(0, event.actor.lastIndexOf("/")) : event.actor;
}

function said(work, field, data, event) {
  const block = work.found("text", event) ?? work.begin("text", event, { text: "", reasoning: "", model: "" });
  append(block, field, data.text);
}

const STEPS = {
  "llm.request": (work, data, event) => {
    const block = work.open.get(`text ${event.actor} ${event.id || ""}`);
    if (block)
      Object.assign(block, { text: "", reasoning: "", model: data.model }); // asked again: what came before does not count
    else work.begin("text", event, { text: "", reasoning: "", model: data.model });
  },
  "llm.delta": (work, data, event) => said(work, "text", data, event),
  "llm.reasoning": (work, data, event) => said(work, "reasoning", data, event),
  "llm.response": (work, data, event) =>
    work.finish("text", event, {
      seconds: data.seconds,
      input: data.input_tokens || 0,
      output: data.output_tokens || 0,
      stop: data.stop || "",
    }),
  "llm.retry": (work, data, event) =>
    work.add("note", event, {
      level: "warning",
      text: `${data.model}: try ${data.attempt} failed, the next in ${data.wait.toFixed(1)} s. ${data.error}`,
    }),
  "llm.fallback": (work, data, event) =>
    work.add("note", event, {
      level: "warning",
      text: `${data.model} ${data.asked === false ? "is passed over" : "did not answer"}, ${data.next} is asked. ${data.error}`,
    }),
  "llm.waiting": (work, data, event) => {
    if (data.error)
      work.add("note", event, {
        level: "info",
        text: `${data.model} waits ${data.wait.toFixed(1)} s for its turn. ${data.error}`,
      });
  },
  "tool.call.started": (work, data, event) =>
    work.begin("tool", event, {
      actor: caller(event),
      tool: data.tool,
      args: data.arguments || "",
      lines: [],
      cutLines: 0,
      progress: null,
      error: "",
      result: "",
      files: [],
      playedBy: event.actor,
    }),
  "file.changed": (work, data, event) => {
    const block = work.found("tool", event);
    if (block && block.files.length < KEPT_LINES) block.files.push(data);
  },
  "tool.call.delta": (work, data, event) => {
    const block = work.found("tool", event);
    if (!block) return;
    block.lines.push(data.text.length > 2000 ? `${data.text.slice(0, 2000)}\u2026` : data.text);
    if (block.lines.length > KEPT_LINES)
      block.cutLines += block.lines.splice(0, block.lines.length - KEPT_LINES).length;
  },
  "tool.call.progress": (work, data, event) => {
    const block = work.found("tool", event);
    if (block) block.progress = { done: data.progress, total: data.total ?? null, message: data.message ?? "" };
  },
  "tool.call.finished": (work, data, event) =>
    work.finish("tool", event, {
      seconds: data.seconds,
      error: data.error || "",
      result: data.result || "",
      exit: data.status ?? null,
    }),
  "question.asked": (work, data, event) => work.begin("question", event, { question: data.question, answer: null }),
  "question.answered": (work, data, event) =>
    work.finish("question", event, {
      answer: data.value,
      by: data.by,
      secret: data.value === undefined || data.value === null,
    }),
  "question.expired": (work, data, event) => work.finish("question", event, { expired: data.reason }),
  "run.warning": (work, data, event) =>
    work.add("note", event, { level: "warning", text: data.message, code: data.code }),
  "history.compacted": (work, data, event) =>
    work.add("note", event, {
      level: "info",
      text: data.results
        ? `Of ${data.results} results of tools only beginning and end are kept (${data.tokens} tokens, now ${data.tokens_now}).`
        : `${data.turns} older turns were replaced by a summary of ${data.summary_tokens} tokens.`,
    }),
  "agent.continued": (work, data, event) =>
    work.add("note", event, {
      level: "info",
      text: `${data.agent} stopped with ${data.open} open todos and is told to go on (${data.count} of ${data.most}).`,
    }),
  "node.exited": (work, data, event) => {
    if (data.error) work.add("note", event, { level: "warning", text: `${data.node} failed: ${data.error}` });
  },
  "actor.restarted": (work, data, event) =>
    work.add("note", event, { level: "warning", text: `${leaf(event.actor)} was started again: ${data.error}` }),
  "mcp.failed": (work, data, event) =>
    work.add("note", event, { level: "warning", text: `MCP server ${data.server}: ${data.error}` }),
};
