// How the state of a run, an actor or a node is shown: a shape, a word, a colour (by class). Never by colour alone.

import { h, mark, say } from "../dom.js";

const SHAPES = {
  starting: "\u25cc",
  running: "\u25cf",
  waiting: "\u25d4",
  paused: "\u2016",
  stopping: "\u25cc",
  done: "\u2713",
  failed: "\u2715",
  cancelled: "\u2013",
  lost: "?",
  interrupted: "\u21bb",
  idle: "\u25cb",
};

/** The state that an actor is shown with. */
export function looks(actor) {
  if (actor.paused) return "paused";
  return actor.asked > 0 && actor.state === "running" ? "waiting" : actor.state;
}

export function shape(state) {
  const element = h("span", { class: "shape", role: "img" });
  setShape(element, state);
  return element;
}

export function setShape(element, state) {
  say(element, SHAPES[state] ?? "\u00b7");
  mark(element, "data-state", state);
  mark(element, "aria-label", state);
}

/** A shape and its word. */
export function badge(state) {
  const element = h("span", { class: "badge" }, h("span", { class: "shape", "aria-hidden": "true" }), h("span", {}));
  setBadge(element, state);
  return element;
}

export function setBadge(element, state) {
  say(element.firstChild, SHAPES[state] ?? "\u00b7");
  mark(element, "data-state", state);
  mark(element.firstChild, "data-state", state);
  say(element.lastChild, state);
}
