// The diff that a question of a tool ends with: what it would change, line by line.

const KINDS = { "+": "added", "-": "removed", "@": "hunk", "\\": "note" };
const HEAD = /^(--- |\+\+\+ |Binary files )/;

/** {text, lines: [{kind, text}]}: the question's text without the diff, and the diff's lines; none without a diff. */
export function parted(question) {
  const { text = "", diff = "" } = question ?? {};
  if (!diff || !text.endsWith(diff)) return { text, lines: [] };
  return { text: text.slice(0, -diff.length).replace(/\n$/, ""), lines: lines(diff) };
}

/** The lines of a unified diff, each with its kind: head, hunk, added, removed, same or note. */
export function lines(diff) {
  let body = false;
  return diff
    .replace(/\n$/, "")
    .split("\n")
    .map((text) => {
      body ||= text.startsWith("@@");
      return { text, kind: !body && HEAD.test(text) ? "head" : (KINDS[text[0]] ?? "same") };
    });
}
