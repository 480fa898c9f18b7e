// Starting a run: what, with which words, on which model, with which variables.

import { h, say } from "../dom.js";

export class StartView {
  constructor(wire) {
    this.wire = wire;
    this.targets = [];
    this.target = h("input", {
      name: "target",
      list: "targets",
      required: true,
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.#describe(),
      placeholder: "Name of an agent, a graph or a workflow",
    });
    this.choices = h("datalist", { id: "targets" });
    this.about = h("p", { class: "hint" });
    this.picks = h("div", { class: "picks", role: "group", "aria-label": "What can be started" });
    this.starters = h("div", { class: "starters", role: "group", "aria-label": "Prompts to begin with", hidden: true });
    this.prompt = h("textarea", {
      name: "prompt",
      rows: "5",
      placeholder: "What it is to do",
      onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.form.requestSubmit(),
    });
    this.model = h("input", {
      name: "model",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "As the file says",
    });
    this.title = h("input", { name: "title", autocomplete: "off", placeholder: "Shown in the list" });
    this.variables = h("div", { class: "variables" });
    this.problem = h("div", { class: "problem", role: "alert", hidden: true });
    this.go = h("button", { class: "primary" }, "Start");
    this.form = h(
      "form",
      { class: "start", novalidate: true, onsubmit: (event) => this.#submit(event) },
      field("What to run", this.target, this.choices, this.about),
      this.picks,
      field("Prompt", this.prompt),
      this.starters,
      h("div", { class: "two" }, field("Model", this.model), field("Title", this.title)),
      h(
        "fieldset",
        {},
        h("legend", {}, "Variables"),
        this.variables,
        h("button", { type: "button", class: "quiet small", onclick: () => this.#variable(true) }, "Add a variable"),
      ),
      this.problem,
      h("div", { class: "actions" }, h("a", { class: "button quiet", href: "#/" }, "Back"), this.go),
    );
    this.element = h("div", { class: "column" }, h("h1", {}, "New run"), this.form);
    this.hear = () => this.load();
    wire.addEventListener("state", this.hear);
    this.load();
  }

  focus() {
    this.target.focus();
  }

  close() {
    this.wire.removeEventListener("state", this.hear);
  }

  async load() {
    if (this.wire.state !== "open") return;
    const { targets } = await this.wire.call("_target/list").catch(() => ({ targets: [] }));
    this.targets = targets;
    this.choices.replaceChildren(...targets.map((each) => h("option", { value: each.name }, line(each))));
    this.picks.replaceChildren(
      ...targets.map((each) =>
        h(
          "button",
          { type: "button", class: "pick", "data-name": each.name, onclick: () => this.#choose(each) },
          h("span", { class: "name" }, each.name),
          h("span", { class: "kind" }, each.dialect ?? ""),
          h(
            "span",
            { class: "about", "data-tone": each.problem ? "failed" : null },
            each.problem || each.description || "",
          ),
        ),
      ),
    );
    this.#describe();
  }

  #choose(target) {
    this.target.value = target.name;
    this.#describe();
    this.prompt.focus();
  }

  #describe() {
    const found = this.targets.find((each) => each.name === this.target.value.trim());
    say(this.about, found?.problem ?? "");
    this.#suggest(found?.conversation_starters ?? []);
    for (const pick of this.picks.children)
      pick.setAttribute("aria-pressed", String(pick.dataset.name === found?.name));
  }

  #suggest(starters) {
    this.starters.hidden = !starters.length;
    this.starters.replaceChildren(
      ...starters.map((text) =>
        h("button", { type: "button", class: "quiet small", onclick: () => this.#begin(text) }, text),
      ),
    );
  }

  #begin(text) {
    this.prompt.value = text;
    this.prompt.focus();
  }

  #variable(focus) {
    const name = h("input", {
      "aria-label": "Name of the variable",
      placeholder: "name",
      spellcheck: "false",
      autocomplete: "off",
    });
    const value = h("input", { "aria-label": "Value of the variable", placeholder: "value", autocomplete: "off" });
    const row = h(
      "div",
      { class: "row" },
      name,
      value,
      h(
        "button",
        { type: "button", class: "quiet small", "aria-label": "Remove the variable", onclick: () => row.remove() },
        "\u00d7",
      ),
    );
    this.variables.append(row);
    if (focus) name.focus();
  }

  async #submit(event) {
    event.preventDefault();
    const target = this.target.value.trim();
    if (!target) return this.#failed("Say what to run: choose one of the names above.", this.target);
    const wanted = { target, prompt: this.prompt.value };
    if (this.model.value.trim()) wanted.model = this.model.value.trim();
    if (this.title.value.trim()) wanted.title = this.title.value.trim();
    const pairs = [...this.variables.children]
      .map((row) => [row.children[0].value.trim(), row.children[1].value])
      .filter(([name]) => name);
    if (pairs.length) wanted.variables = Object.fromEntries(pairs);
    this.problem.hidden = true;
    this.go.disabled = true;
    try {
      const result = await this.wire.call("_run/start", wanted);
      location.hash = `#/run/${encodeURIComponent(result.run?.run ?? result.run)}`;
    } catch (error) {
      this.#failed(error.message, this.target);
    } finally {
      this.go.disabled = false;
    }
  }

  #failed(text, field) {
    say(this.problem, text);
    this.problem.hidden = false;
    field.focus();
  }
}

function line(target) {
  return [target.dialect, target.description].filter(Boolean).join(": ");
}

function field(label, input, ...more) {
  return h("label", { class: "field" }, h("span", {}, label), input, ...more);
}
