// What a screen reader is told: whole messages and the end of the run, not every piece of a text as it comes, and nothing
// of what had happened before the page was there.

import { h, say } from "../../dom.js";
import { caller, line } from "../../model/format.js";

const LONGEST = 400; // characters of a message

export class Aloud {
  constructor(state) {
    Object.assign(this, { state, coming: new WeakSet(), there: false });
    this.element = h("div", { class: "aloud", role: "status", "aria-live": "polite" });
  }

  /** changed: the blocks that look different; now: whether they have only just happened. */
  hear(changed, now) {
    let told = "";
    for (const block of changed) {
      if (block.type !== "text") continue;
      if (block.open) this.coming.add(block);
      else if (this.coming.delete(block) && block.text) told = `${caller(block.actor)}: ${line(block.text, LONGEST)}`;
    }
    const { ended, status } = this.state;
    if (ended && !this.ended && this.there) told = `The run is over: ${status}. ${told}`;
    this.ended = Boolean(ended);
    if (told && this.there) say(this.element, told);
    this.there ||= now && this.state.seq > 0;
  }
}
