// One actor, looked at closely: what the census says of it, what its models saw, where its task stands, its newest events.

import { h } from "../../dom.js";
import { clock, cost, duration, instant, tokens } from "../../model/format.js";
import { summary } from "../../model/log.js";
import { ENDED } from "../../model/actors.js";
import { badge, looks, setBadge } from "../marks.js";
import { callsView } from "./calls.js";

const TALKS = new Set(["run", "graph", "node", "agent"]);

/** Show the actor in a dialog. acts: {cancel(actor), pause(actor)}; detail: promise of what the server says; calls: see there. */
export function inspect(actor, detail, acts, calls) {
  const state = badge("running");
  setBadge(state, looks(actor));
  const body = h("div", { class: "body" }, h("p", { class: "hint" }, "Loading\u2026"));
  const close = h("button", { class: "quiet", type: "button", onclick: () => dialog.close() }, "Close");
  const act = (text, then) =>
    h("button", { type: "button", class: "quiet", onclick: () => (dialog.close(), then(actor)) }, text);
  const live = !ENDED.has(actor.state);
  const actions = live ? [act(actor.paused ? "Resume" : "Pause", acts.pause), act("Cancel\u2026", acts.cancel)] : [];
  const requests = TALKS.has(actor.kind) ? [h("h3", {}, "Requests to models"), callsView(calls, actor.path, !live)] : [];
  const dialog = h(
    "dialog",
    { class: "inspect", "aria-label": `Actor ${actor.path}` },
    h("header", {}, h("h2", {}, actor.name), state),
    h("code", { class: "path" }, actor.path),
    h("div", { class: "inside" }, body, ...requests),
    h("div", { class: "actions" }, ...actions, h("span", { class: "filler" }), close),
  );
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
  detail.then(
    (found) => body.replaceChildren(...facts({ ...actor, ...found, error: actor.error })),
    (error) => body.replaceChildren(...(live ? [h("p", { class: "hint" }, error.message)] : []), ...facts(actor)),
  );
}

function facts(actor) {
  const end = actor.until ? instant(actor.until) : Date.now();
  const pairs = [
    ["Kind", actor.kind],
    ["Since", clock(actor.since)],
    ["Time", duration((end - instant(actor.since)) / 1000)],
    ["At", actor.doing],
    ["Waits on", actor.waits_on],
    ["Mailbox", actor.mailbox ? `${actor.mailbox} waiting` : ""],
    ["Turns", actor.turns || ""],
    ["Tokens", tokens(actor.input_tokens, actor.output_tokens)],
    ["Cost", cost(actor.cost, actor.priced)],
    ["Restarts", actor.restarts || ""],
    ["Error", actor.error],
  ].filter(([, value]) => value);
  const parts = [h("dl", {}, ...pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]))];
  if (actor.stack) parts.push(h("h3", {}, "Where it stands"), h("pre", {}, actor.stack));
  if (actor.recent?.length) {
    const rows = actor.recent
      .slice(-50)
      .map((event) =>
        h(
          "li",
          {},
          h("span", { class: "time" }, clock(event.ts)),
          h("span", { class: "kind" }, event.kind),
          h("span", {}, summary(event)),
        ),
      );
    parts.push(h("h3", {}, "Newest events"), h("ol", { class: "recent" }, ...rows));
  }
  return parts;
}
