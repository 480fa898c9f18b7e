// Follows one run: subscribes from where it is, asks again after a gap, a lag or a lost connection, and loses nothing.

import { Listener } from "./listener.js";
import { RunState } from "./model/run.js";

const BATCH = 4000; // events that are applied in one frame at most

export class Follower extends Listener {
  /** Emits "change" at most once a frame, "problem" when the run can't be had. Without `panels` it follows the events
   *  alone. */
  constructor(wire, run, { frame, panels = true } = {}) {
    super(wire, frame);
    this.panels = panels; // whether the graph and the census of its actors are wanted, too
    this.state = new RunState(run);
    this.run = run;
    this.info = null; // as the server lists it
    this.picture = null; // its graph
    this.problem = null;
    this.elsewhere = false; // it goes on in another process: it can be watched, and nothing else
    this.behind = 0; // events that are known to be still to come
    this.queue = [];
    this.subscription = null;
    const ours = (take) => (params) => this.#ours(params) && take(params);
    const taking = {
      "_run/event": ours(({ event }) => this.#take(event)),
      "_run/lagged": ours(() => this.#resubscribe()),
      "_run/lost": ours(({ last }) => this.#take({ lostUpTo: last })),
      "_run/ended": ours(({ status }) => this.#take({ endedAs: status })),
      "_actor/changed": (params) => params.subscription === this.census && this.#overlay(params.changed),
    };
    this.listen(taking, () => this.#connection());
  }

  close() {
    super.close();
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
      this.changed();
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
    this.changed();
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
    this.changed();
  }

  #take(event) {
    this.queue.push(event);
    this.changed();
  }

  /** It goes on: hear of it again. */
  async again() {
    await this.#begin();
  }

  /** What has come by now. */
  apply() {
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
    super.apply();
    if (this.queue.length) this.changed();
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
