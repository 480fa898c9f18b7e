// Events as rows of a log. Pieces of one text that come one after another are one row. Pure.

import { line } from "./format.js";

const KEPT_ROWS = 100000;
const STREAMED = new Set(["llm.delta", "llm.reasoning", "tool.call.delta"]);

export class Log {
  constructor() {
    this.rows = [];
    this.dropped = 0;
    this.version = 0;
  }

  apply(event) {
    this.version++;
    const last = this.rows.at(-1);
    if (STREAMED.has(event.kind) && last && last.kind === event.kind && last.actor === event.actor) {
      last.pieces++;
      if (last.text.length < 240) last.text = line(last.text + " " + (event.data.text ?? ""), 240);
      return;
    }
    this.rows.push({
      seq: event.seq,
      ts: event.ts,
      kind: event.kind,
      actor: event.actor,
      text: summary(event),
      pieces: 1,
    });
    if (this.rows.length > KEPT_ROWS * 1.1) {
      this.dropped += this.rows.length - KEPT_ROWS;
      this.rows.splice(0, this.rows.length - KEPT_ROWS);
    }
  }

  /** The rows that have all these words somewhere; a word that begins with "-" must be nowhere. */
  matching(filter) {
    const words = filter
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word && word !== "-");
    if (!words.length) return this.rows;
    const fits = (text) =>
      words.every((word) => (word[0] === "-" ? !text.includes(word.slice(1)) : text.includes(word)));
    return this.rows.filter((row) => fits(`${row.kind} ${row.actor} ${row.text}`.toLowerCase()));
  }
}

/** What an event says, on one line. */
export function summary({ kind, data }) {
  const said = SUMMARIES[kind]?.(data);
  if (said !== undefined) return line(said);
  const shown = Object.entries(data ?? {}).map(
    ([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`,
  );
  return line(shown.join("  "));
}

const SUMMARIES = {
  "llm.delta": (data) => data.text,
  "llm.reasoning": (data) => data.text,
  "tool.call.delta": (data) => data.text,
  "question.asked": (data) => data.question?.text ?? "",
  "run.finished": (data) => data.outcome?.output ?? "",
  "run.failed": (data) => data.outcome?.error?.message ?? "",
  "run.cancelled": () => "",
  "run.warning": (data) => data.message,
};
