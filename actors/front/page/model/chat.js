// All that is known of one chat: what was told, in order, each once. Pure: no DOM, no clock, no network.
//
// Its items: {type: "run", run, prompt, title}, {type: "said", kind, text}, {type: "line", text, state, why} for a line
// that was sent from here, and {type: "note", level, text} for what the page says itself. Each has a `key`.
//
// A line goes into the list when it is sent. If it is a prompt, the run that answers it takes its place; a command's
// stays, above what the command says.

const KEPT = 2000;

export class ChatState {
  constructor(id) {
    this.id = id;
    this.info = null; // as the server tells it
    this.items = [];
    this.last = 0; // the highest number that came: to ask for what is behind it
    this.dropped = 0; // older ones that are no longer kept
    this.past = false; // whether what is taken now was told before the page was there
    this.closed = null; // why it goes on no more: "closed", "missing"
    this.seen = new Set();
    this.runs = new Set();
    this.next = 1;
  }

  /** Take what was told; nothing happens if it came before. */
  began({ run, prompt, title = "", seq = 0 }) {
    if (!this.#isNew(seq) || this.runs.has(run)) return;
    this.runs.add(run);
    if (this.info) this.info = { ...this.info, run }; // until the server tells how the chat is
    const mine = this.items.findLast((item) => item.type === "line" && UNDER_WAY.has(item.state) && same(item.text, prompt));
    if (mine) {
      mine.run = run;
      mine.shown = false;
    }
    this.#add({ type: "run", run, prompt, title });
  }

  said({ kind, text, seq = 0 }) {
    if (this.#isNew(seq)) this.#add({ type: "said", kind, text });
  }

  note(text, level = "info") {
    this.#add({ type: "note", level, text });
  }

  changed(info) {
    this.info = info;
  }

  /** A line goes out; what to give `settled`. */
  sends(text) {
    return this.#add({ type: "line", text, state: "sent", why: "", run: null, shown: true });
  }

  /** What became of it: "done", "steered" (the agent at work reads it), "interrupted" without a run that says so, "failed"
   *  with why, or "unknown". */
  settled(line, state, why = "") {
    Object.assign(line, { state, why });
    line.version = (line.version ?? 0) + 1;
    if (state === "failed") line.shown = true; // also where its run is seen: this says why
  }

  /** The connection is there again, and all that was told meanwhile has been taken: what is unsure now stays so. */
  caughtUp() {
    for (const item of this.items) {
      if (item.type !== "line" || item.state !== "unknown") continue;
      const why = item.run ? "" : "The connection was lost before its answer came; it is not sent again by itself.";
      this.settled(item, item.run ? "done" : "unsure", why);
    }
  }

  /** Whether something is under way that can be interrupted. */
  get busy() {
    return Boolean(this.info?.run) || this.items.some((item) => item.type === "line" && item.state === "sent");
  }

  #isNew(seq) {
    if (!seq) return true;
    if (this.seen.has(seq)) return false;
    this.seen.add(seq);
    this.last = Math.max(this.last, seq);
    return true;
  }

  #add(item) {
    item.key = this.next++;
    item.past = this.past;
    this.items.push(item);
    if (this.items.length > KEPT * 1.25) {
      this.dropped += this.items.length - KEPT;
      this.items.splice(0, this.items.length - KEPT);
    }
    return item;
  }
}

const UNDER_WAY = new Set(["sent", "unknown"]);

function same(line, prompt) {
  const bare = line.trim().replace(/^:::\s*([\s\S]*?)\s*:::$/, "$1");
  return line === prompt || line.trim() === prompt.trim() || bare === prompt.trim();
}

/** What a chat is called: its title, else what answers in it. */
export function nameOf(info) {
  return info.title || info.agent || info.session || info.role || info.model || info.chat;
}

/** What it is in, in a few words. */
export function whereabouts(info) {
  return [
    info.agent && `agent ${info.agent}`,
    info.role ? `role ${info.role}` : info.role_prompt && "a role of its own",
    info.session && `session ${info.session}`,
    info.rag && `knowledge ${info.rag}`,
    info.model,
  ].filter(Boolean);
}

/** The scopes of these that the caller lacks. */
export function lacking(scopes, needed) {
  return scopes.includes("*") ? [] : needed.filter((scope) => !scopes.includes(scope));
}

/** The lines that were sent from a view, walked with the arrows: what was being typed is kept below them. */
export class History {
  constructor() {
    this.lines = [];
    this.at = 0;
    this.draft = "";
  }

  add(line) {
    if (line !== this.lines.at(-1)) this.lines.push(line);
    this.at = this.lines.length;
    this.draft = "";
  }

  /** The line before (-1) or behind (1) the one that `text` stands for; null if there is none. */
  step(by, text) {
    const at = this.at + by;
    if (at < 0 || at > this.lines.length) return null;
    if (this.at === this.lines.length) this.draft = text;
    this.at = at;
    return at === this.lines.length ? this.draft : this.lines[at];
  }
}
