// What a durable run has done, step by step; from each of them another run can go on, with other words if wanted (a fork).

import { h, mark, say } from "../../dom.js";

/** Show the steps in a dialog. source: {isGraph, list(after), fork({at, ...})}, the latter both promises. */
export function showSteps(source) {
  const list = h("ol", { class: "steps" });
  const hint = h("p", { class: "hint" }, "Loading\u2026");
  const more = h("button", { class: "quiet small", type: "button", hidden: true, onclick: () => load() }, "More");
  const place = h("div", { class: "fork", hidden: true });
  const close = h("button", { class: "quiet", type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { class: "inspect steps", "aria-label": "Steps of the run" },
    h("header", {}, h("h2", {}, "Steps")),
    h("p", { class: "hint" }, "Another run can go on from any of them. This one stays as it is."),
    h("div", { class: "inside" }, hint, list, more),
    place,
    h("div", { class: "actions" }, h("span", { class: "filler" }), close),
  );
  let after = 0;
  const load = async () => {
    more.disabled = true;
    try {
      const page = await source.list(after);
      list.append(...page.steps.map((step) => row(step, (chosen) => open(chosen))));
      after = page.next ?? after;
      more.hidden = page.next === null;
      say(hint, "");
    } catch (error) {
      say(hint, error.message);
    }
    hint.hidden = !hint.textContent;
    more.disabled = false;
  };
  const open = (step) => {
    for (const each of list.children) mark(each, "data-chosen", Number(each.dataset.row) === step.row || null);
    place.replaceChildren(form(step, source, () => dialog.close()));
    place.hidden = false;
    place.querySelector("textarea").focus();
  };
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
  load();
}

function row(step, open) {
  const go = h("button", { class: "quiet small", type: "button", onclick: () => open(step) }, "Go on from here\u2026");
  mark(go, "aria-label", `Go on from step ${step.row}`);
  return h(
    "li",
    { "data-row": step.row, "data-place": step.place || null },
    h("span", { class: "number" }, String(step.row)),
    h("span", { class: "where" }, step.where),
    h("span", { class: "what" }, step.what),
    h("span", { class: "text", title: step.text }, step.text),
    go,
  );
}

/** What is to be different, and what the new run does again. */
function form(step, source, done) {
  const words = h("textarea", { name: "prompt", rows: "2", placeholder: "As they were" });
  const model = h("input", { name: "model", autocomplete: "off", spellcheck: "false", placeholder: "As it was" });
  const state = h("textarea", { name: "state", rows: "2", spellcheck: "false", placeholder: '{"topic": "cats"}' });
  const again = h("div", { class: "again" });
  const problem = h("div", { class: "problem", role: "alert", hidden: true });
  const go = h("button", { class: "primary" }, "Go on from here");
  const fail = (error) => {
    say(problem, error.message);
    problem.hidden = false;
  };
  const submit = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    go.disabled = true;
    try {
      const wanted = { at: step.row };
      if (words.value.trim()) wanted.prompt = words.value;
      if (model.value.trim()) wanted.model = model.value.trim();
      if (state.value.trim()) wanted.state = JSON.parse(state.value);
      const { run } = await source.fork(wanted);
      done();
      location.hash = `#/run/${run.run}`;
    } catch (error) {
      fail(error instanceof SyntaxError ? new Error(`The state is no JSON object: ${error.message}`) : error);
    }
    go.disabled = false;
  };
  source.fork({ at: step.row, dry_run: true }).then(
    (found) =>
      found.again.length &&
      again.replaceChildren(
        h("p", {}, "It does again what the run did behind this step:"),
        h("ul", {}, ...found.again.map((each) => h("li", {}, each))),
      ),
    fail,
  );
  return h(
    "form",
    { onsubmit: submit },
    h("h3", {}, `Go on from step ${step.row}${step.place ? `, before ${step.place}` : ""}`),
    h("label", {}, h("span", {}, "Other words"), words),
    source.isGraph ? h("label", {}, h("span", {}, "Other state (JSON)"), state) : null,
    h("label", {}, h("span", {}, "Other model"), model),
    again,
    problem,
    h("div", { class: "actions" }, go),
  );
}
