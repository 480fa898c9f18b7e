// One connection to the server that comes back by itself: JSON-RPC 2.0 over a websocket.
//
// States: "none" (no token), "connecting", "open", "lost" (comes back at `retryAt`), "refused" (the server is there and
// does not let us in, most likely for the token: a browser is not told why a handshake failed, so we ask whether the page
// itself can be had).

import { protocols } from "./token.js";

const FIRST_WAIT = 300;
const LONGEST_WAIT = 10000;
const AFTER_REFUSAL = 15000;
const GOING_AWAY = 1001;
const PATIENCE = 30000; // for an answer

export class Refusal extends Error {
  /** What the server answered in place of a result. */
  constructor(error) {
    super(error.message || "the server gave no reason");
    this.code = error.code;
    this.word = error.data?.code ?? "";
  }
}

export class Wire extends EventTarget {
  constructor(url, { socket = (...given) => new WebSocket(...given), reachable = async () => true } = {}) {
    super();
    this.url = url;
    this.state = "none";
    this.retryAt = 0;
    this.tries = 0;
    this.stopped = false; // the server said that it ends, and with it the runs that it had under way
    this.token = "";
    this.makeSocket = socket;
    this.reachable = reachable;
    this.waiting = new Map(); // id -> {resolve, reject, timer}
    this.listeners = new Map(); // method -> Set of functions
    this.lastId = 0;
  }

  /** Connect with this token from now on. */
  use(token) {
    this.token = token;
    this.tries = 0;
    this.#drop();
    if (token) this.#connect();
    else this.#become("none");
  }

  /** Try again now. */
  again() {
    if (this.state === "open" || this.state === "connecting") return;
    this.use(this.token);
  }

  /** Ask, and wait for the result. Fails with a Refusal, or with an Error when the connection goes first. */
  call(method, params = {}) {
    if (this.state !== "open") return Promise.reject(new Error("There is no connection to the server just now."));
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        reject(new Error(`The server has not answered ${method} within ${PATIENCE / 1000} s.`));
      }, PATIENCE);
      this.waiting.set(id, { resolve, reject, timer });
      this.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** Hear notifications of this method; returns what ends it. */
  on(method, hear) {
    const set = this.listeners.get(method) ?? this.listeners.set(method, new Set()).get(method);
    set.add(hear);
    return () => set.delete(hear);
  }

  #become(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #connect() {
    this.#become("connecting");
    const socket = this.makeSocket(this.url, protocols(this.token));
    this.socket = socket;
    let opened = false;
    const mine = (then) => (event) => this.socket === socket && then(event);
    socket.onopen = mine(() => {
      opened = true;
      this.tries = 0;
      this.stopped = false;
      this.#become("open");
    });
    socket.onmessage = mine((event) => this.#receive(event.data));
    socket.onclose = mine((event) => this.#closed(opened, event?.code));
  }

  async #closed(opened, code) {
    this.socket = null;
    this.stopped ||= code === GOING_AWAY;
    this.#failAll("The connection to the server was lost.");
    const token = this.token;
    if (!opened && (await this.reachable())) {
      if (this.token !== token || this.socket !== null) return;
      this.timer = setTimeout(() => this.#connect(), AFTER_REFUSAL); // it may only have been too busy
      this.#become("refused");
      return;
    }
    if (this.token !== token || this.socket !== null) return;
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.tries++) * (0.8 + Math.random() * 0.4);
    this.retryAt = Date.now() + wait;
    this.timer = setTimeout(() => this.#connect(), wait);
    this.#become("lost");
  }

  #drop() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.#failAll("The connection was given up.");
  }

  #failAll(reason) {
    for (const { reject, timer } of this.waiting.values()) {
      clearTimeout(timer);
      reject(new Error(reason));
    }
    this.waiting.clear();
  }

  #receive(text) {
    const frame = JSON.parse(text);
    if (frame.method !== undefined) {
      if (frame.id !== undefined) this.#decline(frame.id, frame.method);
      for (const hear of this.listeners.get(frame.method) ?? []) hear(frame.params ?? {});
      return;
    }
    const asked = this.waiting.get(frame.id);
    if (!asked) return;
    this.waiting.delete(frame.id);
    clearTimeout(asked.timer);
    if (frame.error) asked.reject(new Refusal(frame.error));
    else asked.resolve(frame.result);
  }

  #decline(id, method) {
    const error = { code: -32601, message: `the page has no method ${method}` };
    this.socket?.send(JSON.stringify({ jsonrpc: "2.0", id, error }));
  }
}
