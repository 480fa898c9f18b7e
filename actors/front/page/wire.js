// One connection to the server that comes back by itself: JSON-RPC 2.0 over a websocket.
//
// States: "none" (no token), "connecting", "open", "lost" (comes back at `retryAt`), "refused" (the server is there and
// does not let us in, most likely for the token: a browser is not told why a handshake failed, so we ask whether the page
// itself can be had).
//
// Both sides may ask. What the server asks of the page is answered by whom `serve` has named for its method, and declined
// where there is nobody; a request that the server takes back, or that goes with the connection, is told to them.

import { protocols } from "./token.js";

const FIRST_WAIT = 300;
const LONGEST_WAIT = 10000;
const AFTER_REFUSAL = 15000;
const GOING_AWAY = 1001;
const PATIENCE = 30000; // for an answer
const NO_METHOD = -32601;
const FAILED = -32603;
const TAKEN_BACK = -32800;

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
    this.servants = new Map(); // method -> who answers what the server asks
    this.asked = new Map(); // id -> AbortController of what the server has asked and waits for
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

  /** Ask, and wait for the result. Fails with a Refusal, or with an Error when the connection goes first. `patience` is
   *  how many milliseconds to wait; 0 for as long as it takes. */
  call(method, params = {}, { patience = PATIENCE } = {}) {
    if (this.state !== "open") return Promise.reject(new Error("There is no connection to the server just now."));
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      const late = () => {
        this.waiting.delete(id);
        reject(new Error(`The server has not answered ${method} within ${patience / 1000} s.`));
      };
      const timer = patience ? setTimeout(late, patience) : null;
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

  /** Answer requests of the server: answer(params, signal) gives the result, or throws why there is none. The signal
   *  says that the server does not wait for it any more. */
  serve(method, answer) {
    this.servants.set(method, answer);
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
    for (const controller of this.asked.values()) controller.abort();
    this.asked.clear();
  }

  #receive(text) {
    const frame = JSON.parse(text);
    if (frame.method !== undefined) {
      if (frame.id !== undefined) this.#answer(frame);
      else if (frame.method === "$/cancel_request") this.asked.get(frame.params?.requestId)?.abort();
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

  async #answer({ id, method, params }) {
    const { socket } = this;
    const controller = new AbortController();
    this.asked.set(id, controller);
    let said;
    try {
      const servant = this.servants.get(method);
      if (!servant) throw Object.assign(new Error(`the page has no method ${method}`), { code: NO_METHOD });
      said = { result: (await servant(params ?? {}, controller.signal)) ?? {} };
    } catch (error) {
      said = { error: { code: error.code ?? FAILED, message: error.message } };
    }
    if (this.socket !== socket) return; // who has asked is gone, and so is what it was asked for
    this.asked.delete(id);
    if (controller.signal.aborted) said = { error: { code: TAKEN_BACK, message: "the request was taken back" } };
    socket?.send(JSON.stringify({ jsonrpc: "2.0", id, ...said }));
  }
}
