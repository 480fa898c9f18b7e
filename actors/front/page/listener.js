// What those who follow something share: they hear the server and the connection until they are closed, and say that
// something has changed at most once a frame.

export class Listener extends EventTarget {
  /** frame: has a function called before the next picture. */
  constructor(wire, frame = nextFrame) {
    super();
    this.wire = wire;
    this.frame = frame;
    this.over = false;
    this.ends = [];
  }

  /** From now on hear these notifications, each by what takes its parameters; `connected` is called now, and whenever
   *  the connection is another. */
  listen(taking, connected) {
    this.ends = Object.entries(taking).map(([method, take]) => this.wire.on(method, take));
    this.wire.addEventListener("state", connected);
    this.ends.push(() => this.wire.removeEventListener("state", connected));
    connected();
  }

  /** Stop. What is followed goes on. */
  close() {
    this.over = true;
    for (const end of this.ends) end();
  }

  /** Something has changed: `apply` is called soon. */
  changed() {
    if (this.due || this.over) return;
    this.due = true;
    this.frame(() => {
      this.due = false;
      if (!this.over) this.apply();
    });
  }

  /** Emits "change". */
  apply() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Before the next picture is drawn; in a page that nobody sees, soon. */
function nextFrame(then) {
  if (globalThis.document?.hidden) setTimeout(then, 200);
  else requestAnimationFrame(then);
}
