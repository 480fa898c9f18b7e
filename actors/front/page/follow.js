// Follows one run: subscribes from where it is, asks again after a gap, a lag or a lost connection, and loses nothing.

import { RunState } from "./model/run.js";

const BATCH = 4000; // events that are applied in one frame at most

export class Follower extends EventTarget {
  /** Emits "change" at most once a frame, "problem" when the run can't be had. Without `panels` it follows the events
   *  alone. */
  constructor(wire, run, { frame = nextFrame, panels = true } = {}) {
    super();
    this.panels = panels; // whether the graph and the census of its actors are wanted, too
    this.wire = wire;
    this.state = new RunState(run);
    this.run = run;
    this.info = null; // as the server lists it
    this.picture = null; // its graph
    this.problem = null;
    this.elsewhere = false; // it goes on in another process: it can be watched, and nothing else
    this.behind = 0; // events that are known to be still to come
    this.queue = [];
    this.subscription = null;
    this.frame = frame;
    this.over = false;
    this.ends = [
      wire.on("_run/event", (params) => this.#ours(params) && this.#take(params.event)),
      wire.on("_run/lagged", (params) => this.#ours(params) && this.#resubscribe()),
      wire.on("_run/lost", (params) => this.#ours(params) && this.#take({ lostUpTo: params.last })),
      wire.on("_run/ended", (params) => this.#ours(params) && this.#take({ endedAs: params.status })),
      wire.on("_actor/changed", (params) => params.subscription === this.census && this.#overlay(params.changed)),
    ];
    const look = () => this.#connection();
    wire.addEventListener("state", look);
    this.ends.push(() => wire.removeEventListener("state", look));
    this.#connection();
  }

  /** Stop following. The run goes on. */
  close() {
    this.over = true;
    for (const end of this.ends) end();
    if (this.wire.state !== "open") return;
    if (this.subscription) this.wire.call("_run/unsubscribe", { subscription: this.subscription }).catch(() => {});
    if (this.census) this.wire.call("_actor/unsubscribe", { subscription: this.census }).catch(() => {});
  }

  #ours(params) {
    return params.run === this.run && params.subscription === this.subscription;
  }

  #connection() {
    this.subscription = null;
    this.census = null;
    if (this.wire.state === "open") this.#begin();
  }

  async #begin() {
    try {
      const found = await this.wire.call("_run/get", { run: this.run });
      this.info = found.run ?? found;
      this.problem = null;
      this.#changed();
      await this.#resubscribe();
      if (this.panels) await Promise.all([this.#graph(), this.#watch()]);
    } catch (error) {
      if (this.over || this.wire.state !== "open") return; // comes back with the connection
      this.problem = error;
      this.dispatchEvent(new Event("problem"));
    }
  }

  /** From now on only what belongs to the new subscription is heard: its answer comes before its first event. */
  async #resubscribe() {
    if (this.over || this.wire.state !== "open") return;
    this.subscription = null;
    const after = Math.max(this.state.seq, ...this.queue.slice(-1).map((event) => event.seq ?? event.lostUpTo ?? 0));
    const result = await this.wire.call("_run/subscribe", { run: this.run, after });
    this.subscription = result.subscription;
    this.newest = result.seq;
  }

  async #graph() {
    this.picture ??= await this.wire.call("_run/graph", { run: this.run }).catch(() => null);
    this.#changed();
  }

  async #watch() {
    if (this.info.ended || this.state.ended) return;
    const result = await this.wire.call("_actor/subscribe", { run: this.run, interval: 0.5 }).catch(() => null);
    if (!result) return;
    this.census = result.subscription;
    this.elsewhere = (result.actors ?? []).length === 0; // a run under way here has actors
    this.#overlay(result.actors ?? []);
  }

  #overlay(infos) {
    if (this.state.seq === 0)
      this.early = infos; // the tree itself comes with the events
    else this.state.actors.overlay(infos);
    this.#changed();
  }

  #take(event) {
    this.queue.push(event);
    this.#changed();
  }

  /** It goes on: hear of it again. */
  async again() {
    await this.#begin();
  }

  #changed() {
    if (this.due || this.over) return;
    this.due = true;
    this.frame(() => this.#apply());
  }

  #apply() {
    this.due = false;
    if (this.over) return;
    const batch = this.queue.splice(0, BATCH);
    for (const event of batch) {
      if (event.lostUpTo) this.state.skip(event.lostUpTo);
      else if (event.endedAs) this.#ended(event.endedAs);
      else if (!this.state.apply(event)) {
        this.#gap();
        break;
      }
    }
    if (this.early && this.state.seq) {
      this.state.actors.overlay(this.early);
      this.early = null;
    }
    this.behind = Math.max(0, (this.newest ?? 0) - this.state.seq);
    this.dispatchEvent(new Event("change"));
    if (this.queue.length) this.#changed();
  }

  #ended(status) {
    this.subscription = null;
    if (!this.state.ended) this.state.close(status, this.state.last);
  }

  /** Something is missing: what was queued is of no use, it comes again. */
  #gap() {
    const old = this.subscription;
    this.queue.length = 0;
    if (old && this.wire.state === "open") this.wire.call("_run/unsubscribe", { subscription: old }).catch(() => {});
    this.#resubscribe().catch(() => {});
  }
}

/** Before the next picture is drawn; in a page that nobody sees, soon. */
export function nextFrame(then) {
  if (globalThis.document?.hidden) setTimeout(then, 200);
  else requestAnimationFrame(then);
}
