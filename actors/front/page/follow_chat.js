// Follows one chat: watches it from where it is, asks again after a lag or a lost connection, and sends its lines.
//
// The answer to `_chat/watch` has what was told before; what is told while it is on its way waits for it, as it is newer.

import { Listener } from "./listener.js";
import { ChatState, lacking } from "./model/chat.js";

const TO_SEND = ["run:agents", "read:runs", "write:runs"];
const TO_INTERRUPT = ["run:agents"];
const TO_ANSWER = ["answer:questions"];

export class ChatFollower extends Listener {
  /** Emits "change" at most once a frame. */
  constructor(wire, id, { frame } = {}) {
    super(wire, frame);
    this.state = new ChatState(id);
    this.id = id;
    this.scopes = null; // what the token may do; null as long as that is not known
    this.problem = null; // why it can't be watched
    this.watching = false;
    this.early = []; // told before the answer to `_chat/watch` was here
    const heard = (take) => (params) => this.#heard(params, take);
    const taking = {
      "_chat/began": heard((told) => this.state.began(told)),
      "_chat/said": heard((told) => this.state.said(told)),
      "_chat/changed": heard(({ chat }) => this.state.changed(chat)),
      "_chat/closed": heard(({ lagged }) => this.#closed(lagged)),
    };
    this.listen(taking, () => this.#connection());
  }

  close() {
    super.close();
    if (this.ready) this.wire.call("_chat/unwatch", { chat: this.id }).catch(() => {});
  }

  /** Why no line can be sent; "" if one can. */
  get locked() {
    if (this.state.closed) return "This chat has ended.";
    const missing = lacking(this.scopes ?? ["*"], TO_SEND);
    if (missing.length) return `You can read along. To send lines your token would need the scope ${missing.join(" and ")}.`;
    return "";
  }

  /** Whether the connection is there to send something on. */
  get ready() {
    return this.watching && this.wire.state === "open";
  }

  get mayInterrupt() {
    return this.scopes !== null && !lacking(this.scopes, TO_INTERRUPT).length && !this.state.closed;
  }

  get mayAnswer() {
    return this.scopes === null || !lacking(this.scopes, TO_ANSWER).length;
  }

  /** Send a line; resolves when all that it has begun is over, with where it leads: {leave} out of the chat, which has
   *  ended, {attach} to another one, or nowhere. */
  async send(text) {
    const line = this.state.sends(text);
    this.changed();
    try {
      const done = await this.wire.call("_chat/line", { chat: this.id, line: text }, { patience: 0 });
      this.state.settled(line, done.steered ? "steered" : done.status === "cancelled" && !done.run ? "interrupted" : "done");
      this.state.changed(done.chat);
      return done;
    } catch (error) {
      if (error.code === undefined) this.state.settled(line, "unknown"); // the connection went: see `caughtUp`
      else this.state.settled(line, "failed", error.message);
      return {};
    } finally {
      this.changed();
    }
  }

  async interrupt() {
    return (await this.wire.call("_chat/interrupt", { chat: this.id })).interrupted;
  }

  async end() {
    await this.wire.call("_chat/close", { chat: this.id });
  }

  #connection() {
    this.watching = false;
    if (this.wire.state === "open" && !this.state.closed) this.#begin();
    this.changed();
  }

  async #begin() {
    try {
      this.scopes = (await this.wire.call("_server/info")).scopes ?? [];
      await this.#watch();
    } catch (error) {
      if (this.over || this.wire.state !== "open") return; // comes back with the connection
      this.#failed(error);
    }
    this.changed();
  }

  async #watch() {
    this.watching = false;
    this.early = [];
    const { chat, told = [] } = await this.wire.call("_chat/watch", { chat: this.id, after: this.state.last });
    this.state.past = this.state.info === null;
    for (const { began, said } of told) {
      if (began) this.state.began(began);
      else if (said) this.state.said(said);
    }
    this.state.past = false;
    this.state.changed(chat);
    this.watching = true;
    this.problem = null;
    for (const take of this.early.splice(0)) take();
    this.state.caughtUp();
  }

  #failed(error) {
    const missing = error.word === "not_found" || error.code === -32004;
    if (missing && this.state.info) {
      this.state.closed = "missing";
      this.state.note(
        "The server knows this chat no more: it was closed, or the server was started again. What was said in a session can be gone on with in a new chat.",
        "warning",
      );
      this.state.caughtUp();
    } else this.problem = error;
  }

  #heard(params, take) {
    if ((params.chat?.chat ?? params.chat) !== this.id) return;
    if (this.watching) take(params);
    else this.early.push(() => take(params));
    this.changed();
  }

  #closed(lagged) {
    if (lagged) {
      this.state.note("The server had more to tell than came through in time. What was missed is asked for again.", "warning");
      this.#watch().catch((error) => this.wire.state === "open" && this.#failed(error));
      return;
    }
    this.watching = false;
    this.state.closed = "closed";
    this.state.note("This chat was closed. What was said in a session is kept there.");
  }
}
