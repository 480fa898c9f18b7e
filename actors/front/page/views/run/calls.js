// What the models of an actor saw and said: its calls, each opened and fetched when it is wanted.

import { h, mark, say } from "../../dom.js";
import { ending, figures, parts } from "../../model/calls.js";
import { caller, count } from "../../model/format.js";

/** An element with the calls. source: {list(after), one(number)}, both promises; of: the actor; over: it has ended. */
export function callsView(source, of, over) {
  const list = h("ol", { class: "calls" });
  const hint = h("p", { class: "hint" }, "Loading\u2026");
  const more = h("button", { class: "quiet small", type: "button", hidden: true, onclick: () => load() }, "More");
  const element = h("section", { class: "kept", "aria-label": "Requests to models" }, hint, list, more);
  let after = 0;
  const load = async () => {
    more.disabled = true;
    try {
      const page = await source.list(after);
      list.append(...page.calls.map((call) => row(call, of, over, source)));
      after = page.next ?? after;
      more.hidden = page.next === null;
      const dropped = page.dropped ? `The run's first ${count(page.dropped)} are no longer kept.` : "";
      say(hint, list.children.length ? dropped : "None of its own, and none below it.");
    } catch (error) {
      say(hint, error.message);
    }
    hint.hidden = !hint.textContent;
    more.disabled = false;
  };
  load();
  return element;
}

function row(call, of, over, source) {
  const body = h("div", { class: "call" });
  const who = call.actor === of ? "" : caller(call.actor);
  const head = h(
    "summary",
    {},
    h("span", { class: "number" }, String(call.number)),
    who && h("span", { class: "who", title: call.actor }, who),
    h("span", { class: "end" }, ending(call, over)),
    h("span", { class: "figures" }, figures(call)),
  );
  const details = h("details", { "data-status": call.status, "data-number": call.number }, head, body);
  details.addEventListener("toggle", () => details.open && !body.childElementCount && fetched(body, call.number, source));
  return h("li", {}, details);
}

async function fetched(body, number, source) {
  body.replaceChildren(h("p", { class: "hint" }, "Loading\u2026"));
  try {
    const found = parts(await source.one(number));
    body.replaceChildren(...found.map(section));
  } catch (error) {
    body.replaceChildren(); // the next time it is opened is another try
    body.parentElement.open = false;
    body.previousElementSibling.append(h("span", { class: "problem" }, error.message));
  }
}

function section({ title, text, tone, folded }) {
  const body = h("pre", { tabindex: "0", "aria-label": title }, text);
  if (folded) return h("details", { class: "part" }, h("summary", {}, title), body);
  const element = h("div", { class: "part" }, h("h4", {}, title), body);
  mark(element, "data-tone", tone || null);
  return element;
}
