"""Google-style docstrings and JSDoc comments: the text for the model, and what they say about each parameter.

The `Args:` block of a docstring reaches the schema, so the description is everything else, `Returns:` and `Raises:`
included: what comes back is worth knowing before a call.
"""

from __future__ import annotations

import inspect
import re

import msgspec

_ARGS = re.compile(r"(Args|Arguments|Parameters|Params|Attributes|Fields)\s*:\s*$")
_ENTRY = re.compile(r"(\*{0,2}[A-Za-z_]\w*)\s*(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?\s*:(?:\s+(.*)|)$")


class Entry(msgspec.Struct, frozen=True):
    """One parameter, as the comment has it.

    Attributes:
        text: what it means.
        type: what stands in parentheses, without "optional", or in the braces of JSDoc.
        optional: whether "optional" stands there, or for JSDoc a name in brackets, `{string=}` or `{?string}`.
    """

    text: str
    type: str = ""
    optional: bool = False


class Docstring(msgspec.Struct, frozen=True):
    """The text for the model, and parameters by name (for JSDoc `options.depth` too, a nested one)."""

    description: str = ""
    entries: dict[str, Entry] = {}


def read_docstring(text: str | None) -> Docstring:
    """Take a docstring apart. Any text will do."""
    if not text:
        return Docstring()
    kept: list[str] = []
    entries: dict[str, Entry] = {}
    # An escape can write a lone surrogate, which no request can carry.
    lines = inspect.cleandoc(text.encode(errors="replace").decode()).split("\n")
    at = 0
    while at < len(lines):
        heading = _ARGS.match(lines[at])
        if heading is None:
            kept.append(lines[at].rstrip())
            at += 1
            continue
        end = at + 1
        while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
            end += 1
        entries.update(_entries(lines[at + 1 : end]))
        at = end
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Docstring(description, entries)


def _entries(lines: list[str]) -> dict[str, Entry]:
    """The parameters of a block: each begins at the block's own indentation, deeper lines go on with its text."""
    margin = next((len(line) - len(line.lstrip()) for line in lines if line.strip()), 0)
    found: dict[str, tuple[str, list[str]]] = {}
    current: list[str] | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        match = _ENTRY.match(line.strip()) if indent <= margin else None
        if match is not None:
            current = [match[3] or ""]
            found[match[1].lstrip("*")] = (match[2] or "", current)
        elif current is not None:
            current.append(line.strip())
    return {name: _entry(kind, text) for name, (kind, text) in found.items()}


def _entry(kind: str, text: list[str]) -> Entry:
    words = [word.strip() for word in kind.split(",")]
    # Wrapped lines are one sentence; an empty line begins a paragraph.
    joined = "\n".join(" ".join(part.split("\n")) for part in "\n".join(text).strip().split("\n\n"))
    return Entry(joined.strip(), ", ".join(word for word in words if word != "optional"), "optional" in words)


# --- JSDoc: the description stands above the first block tag; of the tags only `@param` reaches the schema

_BEGIN = re.compile(r"\s*\* ?")
_TAG = re.compile(r"@(\w+)\s*")
_BRACES = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*")
_NAME = re.compile(r"(\[?)([\w$.]+)(?:=[^\]]*)?\]?\s*(?:-\s+|-$|:\s+)?")


def read_jsdoc(comment: str) -> Docstring:
    """Take a comment apart. One that is no JSDoc (`// ...`) says nothing."""
    if not comment.startswith("/**") or not comment.endswith("*/") or len(comment) < 5:
        return Docstring()
    lines = comment[3:-2].split("\n")
    lines = [lines[0].strip(), *(_BEGIN.sub("", line, count=1).rstrip() for line in lines[1:])]
    description: list[str] = []
    params: dict[str, Entry] = {}
    tag = ""
    below: list[str] = []
    for line in [*lines, "@end"]:
        match = _TAG.match(line)
        if match is None:
            (below if tag else description).append(line)
            continue
        if tag == "param":
            params.update(_param("\n".join(below)))
        tag, below = match[1], [line[match.end() :]]
    return Docstring("\n".join(description).strip(), params)


def _param(text: str) -> dict[str, Entry]:
    kind = ""
    if braces := _BRACES.match(text):
        kind, text = braces[1].strip(), text[braces.end() :]
    name = _NAME.match(text)
    if name is None:
        return {}
    optional = bool(name[1]) or kind.startswith("?") or kind.endswith("=")
    words = " ".join(text[name.end() :].split())
    return {name[2]: Entry(words, kind.lstrip("?!").rstrip("="), optional)}
