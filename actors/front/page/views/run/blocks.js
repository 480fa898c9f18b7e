// What agents said and did, one block each: an element that is made once and brought up to date.

import { h, mark, say } from "../../dom.js";
import { caller, clock, count, duration } from "../../model/format.js";
import { asked } from "./asked.js";

/** An element for a block; `update()` brings it up to date. pick(path) follows the actor that it belongs to. */
export function blockView(block, pick) {
  const who = h(
    "button",
    { class: "who", type: "button", title: block.actor, onclick: () => pick(block.actor) },
    caller(block.actor),
  );
  const meta = h("span", { class: "meta" });
  const made = MAKERS[block.type](block);
  const time = h("time", { datetime: block.at, title: block.at }, clock(block.at));
  const element = h(
    "article",
    { class: `block ${block.type}`, "data-key": block.key },
    h("header", {}, who, made.head ?? null, meta, time),
    ...made.parts,
  );
  const update = () => {
    mark(element, "data-open", block.open ? "" : null);
    say(meta, made.meta());
    made.update();
  };
  update();
  return { element, update };
}

/** A text that mostly grows at its end. */
function growing(element) {
  const text = document.createTextNode("");
  element.append(text);
  return (whole) => {
    if (whole.length > text.length && whole.startsWith(text.data)) text.appendData(whole.slice(text.length));
    else if (whole !== text.data) text.data = whole;
  };
}

const MAKERS = {
  text(block) {
    const body = h("div", { class: "said" });
    const put = growing(body);
    const thought = h("div", { class: "thought" });
    const think = growing(thought);
    const thinking = h("details", { hidden: true }, h("summary", {}, "Reasoning"), thought);
    return {
      parts: [thinking, body],
      meta: () =>
        block.open
          ? block.text || block.reasoning
            ? ""
            : "is asked\u2026"
          : block.broken
            ? "broken off"
            : said(block),
      update() {
        thinking.hidden = !block.reasoning;
        think(block.reasoning);
        put(block.text);
        body.hidden = !block.text;
      },
    };
  },

  tool(block) {
    const args = h("pre", { class: "args" }, pretty(block.args));
    const printed = h("pre", { class: "printed" });
    const put = growing(printed);
    const error = h("pre", { class: "error" });
    const result = h("pre", { class: "given" });
    const bar = h("progress", { hidden: true, max: "1" });
    const details = h("details", {}, h("summary", {}, h("span", { class: "short" }, short(block.args))), args);
    details.hidden = !block.args;
    return {
      head: h("code", { class: "tool" }, block.tool),
      parts: [details, bar, printed, result, error],
      meta: () =>
        block.open
          ? block.progress?.message || "at work"
          : block.broken
            ? "broken off"
            : [block.error ? "failed" : "", linesOf(block.files), duration(block.seconds)]
                .filter(Boolean)
                .join(" \u00b7 "),
      update() {
        mark(this.parts[0].parentNode, "data-failed", block.error ? "" : null);
        const lines = block.lines.join("\n");
        put(block.cutLines ? `(${block.cutLines} lines before)\n${lines}` : lines);
        printed.hidden = !block.lines.length;
        say(result, block.result);
        result.hidden = !block.result || Boolean(block.error);
        say(error, block.error);
        error.hidden = !block.error;
        bar.hidden = !block.open || !block.progress;
        if (block.progress?.total) bar.value = block.progress.done / block.progress.total;
        else bar.removeAttribute("value");
      },
    };
  },

  question(block) {
    const answer = h("p", { class: "answer" });
    return {
      head: h("span", { class: "label" }, "asks"),
      parts: [...asked(block.question), answer],
      meta: () => (block.open ? "waits for an answer" : ""),
      update() {
        say(answer, answered(block));
        answer.hidden = block.open;
      },
    };
  },

  note(block) {
    return {
      head: h(
        "span",
        { class: "label", "data-tone": block.level === "warning" ? "waiting" : null },
        block.level === "warning" ? "warning" : "note",
      ),
      parts: [h("p", {}, block.text)],
      meta: () => "",
      update() {},
    };
  },
};

function said(block) {
  return [
    block.cut ? "beginning left out" : "",
    block.stop === "tools" && !block.text ? "calls tools" : "",
    `${count(block.input)} in, ${count(block.output)} out`,
    duration(block.seconds),
  ]
    .filter(Boolean)
    .join(" \u00b7 ");
}

function answered(block) {
  if (block.expired) return `Closed without an answer: ${block.expired}.`;
  if (block.broken) return "Closed: the run has ended.";
  const value = block.secret ? "(secret)" : Array.isArray(block.answer) ? block.answer.join(", ") : block.answer;
  return block.by ? `${value}   (${block.by})` : `${value}`;
}

/** `+3 -1`: the lines that a tool has put into files and taken out of them. */
function linesOf(files) {
  const known = files.filter((file) => typeof file.added === "number");
  const sum = (name) => known.reduce((all, file) => all + file[name], 0);
  return known.length ? `+${sum("added")} -${sum("removed")}` : "";
}

function short(args) {
  const flat = args.replace(/\s+/g, " ");
  return flat.length > 120 ? `${flat.slice(0, 119)}\u2026` : flat;
}

function pretty(args) {
  try {
    return JSON.stringify(JSON.parse(args), null, 2);
  } catch {
    return args;
  }
}
