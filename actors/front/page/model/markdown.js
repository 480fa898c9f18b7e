// Markdown as blocks, and what stands in them as nodes. Pure, and in time proportional to the text whatever is in it: it
// is a model's, and comes a word at a time.
//
//   blocks(text) -> [{type, at, ...}]   `at`: where the block begins in the text
//     heading {level, text}  paragraph {text}  code {lang, text}  rule  quote {blocks}
//     list {ordered, start, loose, items: [blocks]}  table {head: [text], align: [side], rows: [[text]]}
//   inline(text) -> [string | {tag, href?, children}]   tag: em, strong, del, code, a, br
//
// No HTML, no images (a picture from elsewhere tells who has read it), no footnotes: those stay as they were written.

const DEEPEST = 8; // quotes and lists within each other; what is deeper is text
const LONGEST_ADDRESS = 2000;
const MOST_CELLS = 60;

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|\t|$)(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** The blocks of a text. */
export function blocks(text, depth = 0) {
  const found = [];
  const lines = text.split("\n");
  const starts = [0];
  for (const line of lines) starts.push(starts.at(-1) + line.length + 1);
  let place = 0;
  while (place < lines.length) {
    if (!lines[place].trim()) {
      place++;
      continue;
    }
    const [block, next] = one(lines, place, depth);
    found.push({ ...block, at: starts[place] });
    place = next;
  }
  return found;
}

/** The block that begins in this line, and the line behind it. */
function one(lines, place, depth) {
  const line = lines[place];
  const fence = line.match(FENCE);
  if (fence) return code(lines, place, fence);
  const heading = line.match(HEADING);
  if (heading) return [{ type: "heading", level: heading[1].length, text: heading[2] ?? "" }, place + 1];
  if (RULE.test(line)) return [{ type: "rule" }, place + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, place, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, place, depth);
  if (isTable(lines, place)) return table(lines, place);
  if (/^(?: {4}|\t)/.test(line)) return indented(lines, place);
  return paragraph(lines, place, depth);
}

function code(lines, place, [, indent, mark, info]) {
  const end = new RegExp(`^ {0,3}${mark[0] === "`" ? "`" : "~"}{${mark.length},}[ \\t]*$`);
  const body = [];
  let next = place + 1;
  while (next < lines.length && !end.test(lines[next])) {
    const line = lines[next++];
    let cut = 0;
    while (cut < indent.length && line[cut] === " ") cut++;
    body.push(line.slice(cut));
  }
  return [{ type: "code", lang: info.trim().split(/\s/)[0], text: body.join("\n") }, next + 1];
}

function indented(lines, place) {
  const body = [];
  let next = place;
  while (next < lines.length && (/^(?: {4}|\t)/.test(lines[next]) || !lines[next].trim()))
    body.push(lines[next++].replace(/^(?: {1,4}|\t)/, ""));
  return [{ type: "code", lang: "", text: body.join("\n").trimEnd() }, next];
}

function quote(lines, place, depth) {
  const body = [];
  let next = place;
  while (next < lines.length && lines[next].trim() && (QUOTE.test(lines[next]) || !interrupts(lines, next, depth)))
    body.push(lines[next++].replace(QUOTE, ""));
  return [{ type: "quote", blocks: blocks(body.join("\n"), depth + 1) }, next];
}

function list(lines, place, depth) {
  const [, , first] = lines[place].match(ITEM);
  const kind = first.at(-1);
  const items = [];
  let loose = false;
  let next = place;
  while (next < lines.length) {
    const item = lines[next].match(ITEM);
    if (!item || item[2].at(-1) !== kind || RULE.test(lines[next])) break;
    const [body, behind] = itemBody(lines, next, item, depth);
    items.push(blocks(body.join("\n"), depth + 1));
    let after = behind;
    while (after < lines.length && !lines[after].trim()) after++;
    const more = after < lines.length && lines[after].match(ITEM)?.[2].at(-1) === kind;
    if (after > behind && more) loose = true;
    loose ||= body.includes("") && items.at(-1).filter((block) => block.type === "paragraph").length > 1;
    next = more ? after : behind;
    if (!more) break;
  }
  const ordered = /\d/.test(first);
  return [{ type: "list", ordered, start: ordered ? Number.parseInt(first, 10) : 1, loose, items }, next];
}

/** The lines of an item without their indentation, and the line behind it. */
function itemBody(lines, place, [whole, indent, mark, gap, rest], depth) {
  const wide = indent.length + mark.length + (rest && gap.length <= 4 && gap !== "\t" ? gap.length : 1);
  const body = [whole.slice(wide)];
  let next = place + 1;
  while (next < lines.length) {
    const line = lines[next];
    if (!line.trim()) {
      let after = next;
      while (after < lines.length && !lines[after].trim()) after++;
      if (after === lines.length || depthOf(lines[after]) < wide) break;
      while (next < after) body.push((next++, ""));
      continue;
    }
    if (depthOf(line) >= wide) body.push(line.replace(/^\t/, "    ").slice(wide));
    else if (!ITEM.test(line) && !interrupts(lines, next, depth) && body.at(-1).trim()) body.push(line.trimStart());
    else break;
    next++;
  }
  return [body, next];
}

function depthOf(line) {
  const found = line.match(/^[ \t]*/)[0];
  return found.includes("\t") ? found.replaceAll("\t", "    ").length : found.length;
}

function paragraph(lines, place, depth) {
  const body = [lines[place].trimStart()];
  let next = place + 1;
  while (next < lines.length && lines[next].trim() && !interrupts(lines, next, depth)) {
    if (/^ {0,3}(=+|-+)[ \t]*$/.test(lines[next])) {
      const level = lines[next].trim()[0] === "=" ? 1 : 2;
      return [{ type: "heading", level, text: body.join(" ") }, next + 1];
    }
    body.push(lines[next++].trimStart());
  }
  return [{ type: "paragraph", text: body.join("\n") }, next];
}

/** Whether a line ends the paragraph before it. */
function interrupts(lines, place, depth) {
  const line = lines[place];
  if (FENCE.test(line) || HEADING.test(line) || (RULE.test(line) && !/^ {0,3}-+[ \t]*$/.test(line))) return true;
  if (depth < DEEPEST && QUOTE.test(line)) return true;
  const item = depth < DEEPEST && line.match(ITEM);
  if (item) return Boolean(item[4]) && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2]) || depth > 0);
  return isTable(lines, place);
}

function isTable(lines, place) {
  const head = lines[place];
  const under = lines[place + 1];
  if (!under || !head.includes("|") || !under.includes("-") || !DELIMITER.test(under)) return false;
  return cells(head).length === cells(under).length;
}

function table(lines, place) {
  const head = cells(lines[place]);
  const align = cells(lines[place + 1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left",
  );
  const rows = [];
  let next = place + 2;
  while (next < lines.length && lines[next].includes("|") && lines[next].trim())
    rows.push(head.map(((row) => (_, at) => row[at] ?? "")(cells(lines[next++]))));
  return [{ type: "table", head, align, rows }, next];
}

/** The cells of a row: `\|` and what stands between backticks does not part them. */
function cells(line) {
  const found = [""];
  let quoted = false;
  for (let at = 0; at < line.length; at++) {
    if (line[at] === "\\" && line[at + 1] === "|") found[found.length - 1] += line[++at];
    else if (line[at] === "|" && !quoted && found.length < MOST_CELLS) found.push("");
    else {
      if (line[at] === "`") quoted = !quoted && line.includes("`", at + 1);
      found[found.length - 1] += line[at];
    }
  }
  const trimmed = found.map((cell) => cell.trim());
  if (trimmed.length > 1 && trimmed[0] === "") trimmed.shift();
  if (trimmed.length > 1 && trimmed.at(-1) === "") trimmed.pop();
  return trimmed;
}

// --- within a block ------------------------------------------------------------------------------------------------------

const MARKS = { "*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del" };
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const ADDRESS = /^(?:https?:\/\/|mailto:)[^\s<>\x00-\x1f]+$/i;
const BARE = /https?:\/\/[^\s<>"'`\])}*\x00-\x1f]+/y;
const DEEPEST_INLINE = 40;

/** What stands in a block, as nodes. */
export function inline(text) {
  return new Inline(text).parse();
}

/** Whether a link may lead there. */
export function leadsOut(href) {
  return ADDRESS.test(href) && href.length <= LONGEST_ADDRESS;
}

class Inline {
  constructor(text) {
    this.text = text;
    this.frames = [{ mark: "", children: [] }]; // what is open, the outermost first
    this.open = new Map(); // mark -> how many frames have it
    this.ticks = null; // length of a run of backticks -> where there are such, the last first
  }

  parse() {
    let at = 0;
    while (at < this.text.length) at = this.#step(at);
    while (this.frames.length > 1) this.#giveUp();
    return this.frames[0].children;
  }

  #step(at) {
    const { text } = this;
    const char = text[at];
    if (char === "\\") return this.#escape(at);
    if (char === "`") return this.#code(at);
    if (char === "\n") return this.#newline(at);
    if (char === "*" || char === "_" || char === "~") return this.#emphasis(at);
    if (char === "[") return this.#enter("[", at, 1);
    if (char === "]") return this.#link(at);
    if (char === "<") return this.#angle(at);
    if (char === "h" && !/\w/.test(text[at - 1] ?? "") && !this.open.get("[")) {
      BARE.lastIndex = at;
      const found = BARE.exec(text)?.[0].replace(/[.,:;!?]+$/, "");
      if (found && leadsOut(found)) {
        this.#put({ tag: "a", href: found, children: [found] });
        return at + found.length;
      }
    }
    let end = at + 1;
    while (end < text.length && !"\\`\n*_~[]<h".includes(text[end])) end++;
    this.#put(text.slice(at, end));
    return end;
  }

  #put(node) {
    const { children } = this.frames.at(-1);
    if (typeof node === "string" && typeof children.at(-1) === "string") children[children.length - 1] += node;
    else children.push(node);
  }

  #escape(at) {
    const next = this.text[at + 1] ?? "";
    if (next === "\n") {
      this.#put({ tag: "br", children: [] });
      return at + 2;
    }
    const escaped = PUNCTUATION.test(next);
    this.#put(escaped ? next : "\\");
    return at + (escaped ? 2 : 1);
  }

  #newline(at) {
    const { children } = this.frames.at(-1);
    const last = children.at(-1);
    if (typeof last === "string" && / {2,}$/.test(last.slice(-3))) {
      children[children.length - 1] = last.trimEnd();
      this.#put({ tag: "br", children: [] });
    } else this.#put("\n");
    return at + 1;
  }

  #code(at) {
    this.ticks ??= this.#allTicks();
    let end = at;
    while (this.text[end] === "`") end++;
    const places = this.ticks.get(end - at) ?? [];
    while (places.length && places.at(-1) < end) places.pop();
    if (!places.length) {
      this.#put(this.text.slice(at, end));
      return end;
    }
    const close = places.at(-1);
    const inside = this.text.slice(end, close).replaceAll("\n", " ");
    const padded = /^ .*[^ ].* $/.test(inside) || /^ `|` $/.test(inside);
    this.#put({ tag: "code", children: [padded ? inside.slice(1, -1) : inside] });
    return close + (end - at);
  }

  #allTicks() {
    const found = new Map();
    for (const { 0: run, index } of this.text.matchAll(/`+/g))
      (found.get(run.length) ?? found.set(run.length, []).get(run.length)).push(index);
    for (const places of found.values()) places.reverse();
    return found;
  }

  #emphasis(at) {
    const { text } = this;
    const char = text[at];
    let end = at;
    while (text[end] === char) end++;
    const [before, after] = [text[at - 1] ?? " ", text[end] ?? " "];
    const closes = !/\s/.test(before) && (char !== "_" || !/[\p{L}\p{N}]/u.test(after));
    const opens = !/\s/.test(after) && (char !== "_" || !/[\p{L}\p{N}]/u.test(before));
    while (at < end) {
      const two = char + char;
      const left = end - at;
      const mark = closes && this.#closed(char, left);
      if (mark) {
        this.#leave(mark);
        at += mark.length;
      } else if (opens && left <= 3 && (char !== "~" || left >= 2)) {
        const wide = left >= 2 ? 2 : 1;
        this.#enter(wide === 2 ? two : char, at, wide);
        at += wide;
      } else {
        this.#put(text.slice(at, end));
        at = end;
      }
    }
    return end;
  }

  /** What so many of these close: rather what was opened last. */
  #closed(char, left) {
    const two = char + char;
    if (char !== "~" && this.frames.at(-1).mark === char) return char;
    if (left >= 2 && this.open.get(two)) return two;
    return char !== "~" && this.open.get(char) ? char : null;
  }

  #enter(mark, at, wide) {
    if (this.frames.length >= DEEPEST_INLINE) this.#put(mark);
    else {
      this.frames.push({ mark, children: [] });
      this.open.set(mark, (this.open.get(mark) ?? 0) + 1);
    }
    return at + wide;
  }

  #pop() {
    const frame = this.frames.pop();
    this.open.set(frame.mark, this.open.get(frame.mark) - 1);
    return frame;
  }

  /** The innermost frame was opened by what nothing closes: it is text. */
  #giveUp() {
    const { mark, children } = this.#pop();
    this.#put(mark);
    for (const child of children) this.#put(child);
  }

  #leave(mark) {
    while (this.frames.at(-1).mark !== mark) this.#giveUp();
    const { children } = this.#pop();
    this.#put({ tag: MARKS[mark], children });
  }

  #link(at) {
    if (!this.open.get("[")) {
      this.#put("]");
      return at + 1;
    }
    const rest = this.text.slice(at + 1, at + 2 + LONGEST_ADDRESS + 200);
    const found = rest.match(/^\([ \t]*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'))?[ \t]*\)/);
    while (this.frames.at(-1).mark !== "[") this.#giveUp();
    if (!found || !leadsOut(found[1])) {
      this.#giveUp();
      this.#put("]");
      return at + 1;
    }
    const { children } = this.#pop();
    this.#put({ tag: "a", href: found[1], children: children.length ? children : [found[1]] });
    return at + 1 + found[0].length;
  }

  #angle(at) {
    const found = this.text.slice(at, at + LONGEST_ADDRESS).match(/^<([^\s<>]+)>/)?.[1];
    if (found && leadsOut(found)) {
      this.#put({ tag: "a", href: found, children: [found] });
      return at + found.length + 2;
    }
    this.#put("<");
    return at + 1;
  }
}
