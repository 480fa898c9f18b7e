"""Parsers for docstrings and JSDoc comments: the description for the model, and the text about each parameter.

Docstrings may use the styles of Google (`Args:`), NumPy (`Parameters` over dashes) and Sphinx (`:param x:`). Text about
parameters moves to the schema. The description is the rest, including `Returns:` and `Raises:`, because a model
benefits from knowing the result before a call.
"""

from __future__ import annotations

import inspect
import re

import msgspec

_ARGS = re.compile(r"(Args|Arguments|Parameters|Params|Attributes|Fields)\s*:\s*$")
_ENTRY = re.compile(r"(\*{0,2}[A-Za-z_]\w*)\s*(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?\s*:(?:\s+(.*)|)$")


_UNDERLINE = re.compile(r"\s*-{3,}\s*$")
_NUMPY_ARGS = re.compile(r"(Other )?Parameters\s*$")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}[A-Za-z_]\w*(?:\s*,\s*\*{0,2}[A-Za-z_]\w*)*)\s*(?::\s*(.*))?$")
_SPHINX = re.compile(
    r":(param|parameter|arg|argument|key|keyword|type)\s+([^:]*?)\s*(\*{0,2}[A-Za-z_]\w*)\s*:(?:\s+(.*)|)$"
)


class DocumentedParameter(msgspec.Struct, frozen=True):
    """Documentation of one parameter.

    Attributes:
        text: its description.
        type: the text in parentheses, without "optional", or in the braces of JSDoc.
        optional: True if the comment marks it as optional, or for JSDoc a name in brackets, `{string=}` or `{?string}`.
    """

    text: str
    type: str = ""
    optional: bool = False


class Docstring(msgspec.Struct, frozen=True):
    """A parsed comment: the description for the model, and parameters by name (for JSDoc also nested, `options.depth`).

    Attributes:
        properties: `@property` of JSDoc, by name, for the type that `@typedef` names.
        typedef: that name, or "".
    """

    description: str = ""
    entries: dict[str, DocumentedParameter] = {}
    properties: dict[str, DocumentedParameter] = {}
    typedef: str = ""


def read_docstring(text: str | None) -> Docstring:
    """Parse a docstring. Accepts any text."""
    if not text:
        return Docstring()
    kept: list[str] = []
    entries: dict[str, DocumentedParameter] = {}
    # An escape can produce a lone surrogate, which no request can transmit.
    lines = inspect.cleandoc(text.encode(errors="replace").decode()).split("\n")
    at = 0
    while at < len(lines):
        if _ARGS.match(lines[at]):
            end = _end_of_block(lines, at + 1)
            entries.update(_entries(lines[at + 1 : end]))
        elif _NUMPY_ARGS.match(lines[at]) and at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]):
            end = at + 2
            while end < len(lines) and not (end + 1 < len(lines) and _UNDERLINE.match(lines[end + 1])):
                end += 1
            entries.update(_numpy_entries(lines[at + 2 : end]))
        elif field := _SPHINX.match(lines[at]):
            end = _end_of_block(lines, at + 1)
            while not lines[end - 1].strip():  # An empty line ends the field, and belongs to the description.
                end -= 1
            _add_sphinx(field, lines[at + 1 : end], entries)
        else:
            kept.append(lines[at].rstrip())
            end = at + 1
        at = end
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Docstring(description, entries)


def _end_of_block(lines: list[str], at: int) -> int:
    """Return the index of the first line from `at` on that is not indented."""
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        at += 1
    return at


def _numpy_entries(lines: list[str]) -> dict[str, DocumentedParameter]:
    """Return the parameters of a section: `name : type` at its margin, and the indented text below."""
    found: dict[str, tuple[str, list[str]]] = {}
    current: list[str] | None = None
    for line in lines:
        match = None if line[:1].isspace() else _NUMPY_ENTRY.match(line.strip())
        if match is not None:
            current = []
            for name in match[1].split(","):
                found[name.strip().lstrip("*")] = (match[2] or "", current)
        elif current is not None:
            current.append(line.strip())
    return {name: _entry(kind, text) for name, (kind, text) in found.items()}


def _add_sphinx(field: re.Match[str], below: list[str], entries: dict[str, DocumentedParameter]) -> None:
    """Add a field of a docstring in Sphinx's style; a parameter's type may have a field of its own."""
    name = field[3].lstrip("*")
    text = [field[4] or "", *(line.strip() for line in below)]
    known = entries.get(name, DocumentedParameter(""))
    if field[1] == "type":
        said = _entry(" ".join(text), [])
        entries[name] = DocumentedParameter(known.text, said.type, said.optional)
    else:
        said = _entry(field[2], text)
        entries[name] = DocumentedParameter(said.text, said.type or known.type, said.optional or known.optional)


def _entries(lines: list[str]) -> dict[str, DocumentedParameter]:
    """Return the parameters of a block. Each starts at the block's own indentation; deeper lines continue its text."""
    margin = next((len(line) - len(line.lstrip()) for line in lines if line.strip()), 0)
    found: dict[str, tuple[str, list[str]]] = {}
    current: list[str] | None = None
    for line in lines:
        # Only lines at the margin start an entry; a colon in a deeper line is text.
        indent = len(line) - len(line.lstrip())
        match = _ENTRY.match(line.strip()) if indent <= margin else None
        if match is not None:
            current = [match[3] or ""]
            found[match[1].lstrip("*")] = (match[2] or "", current)
        elif current is not None:
            current.append(line.strip())
    return {name: _entry(kind, text) for name, (kind, text) in found.items()}


def _entry(kind: str, text: list[str]) -> DocumentedParameter:
    words = [word.strip() for word in kind.split(",")]
    # Wrapped lines form one sentence; an empty line starts a paragraph.
    joined = "\n".join(" ".join(part.split("\n")) for part in "\n".join(text).strip().split("\n\n"))
    return DocumentedParameter(
        joined.strip(), ", ".join(word for word in words if word != "optional"), "optional" in words
    )


# --- JSDoc: the description precedes the first block tag; of the tags only `@param` reaches the schema

_BEGIN = re.compile(r"\s*\* ?")
_TAG = re.compile(r"@(\w+)\s*")
_BRACES = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*")
_NAME = re.compile(r"(\[?)([\w$.]+)(?:=[^\]]*)?\]?\s*(?:-\s+|-$|:\s+)?")


def read_jsdoc(comment: str) -> Docstring:
    """Parse a JSDoc comment. Any other comment (`// ...`) yields an empty result."""
    if not comment.startswith("/**") or not comment.endswith("*/") or len(comment) < 5:
        return Docstring()
    lines = comment[3:-2].split("\n")
    lines = [lines[0].strip(), *(_BEGIN.sub("", line, count=1).rstrip() for line in lines[1:])]
    description: list[str] = []
    params: dict[str, DocumentedParameter] = {}
    properties: dict[str, DocumentedParameter] = {}
    typedef = tag = ""
    below: list[str] = []
    for line in [*lines, "@end"]:
        match = _TAG.match(line)
        if match is None:
            (below if tag else description).append(line)
            continue
        if tag == "param":
            params.update(_param("\n".join(below)))
        elif tag in ("property", "prop"):
            properties.update(_param("\n".join(below)))
        elif tag == "typedef":
            typedef = next(iter(_param("\n".join(below))), "")
        tag, below = match[1], [line[match.end() :]]
    return Docstring("\n".join(description).strip(), params, properties, typedef)


def _param(text: str) -> dict[str, DocumentedParameter]:
    kind = ""
    if braces := _BRACES.match(text):
        kind, text = braces[1].strip(), text[braces.end() :]
    name = _NAME.match(text)
    if name is None:
        return {}
    optional = bool(name[1]) or kind.startswith("?") or kind.endswith("=")
    words = " ".join(text[name.end() :].split())
    return {name[2]: DocumentedParameter(words, kind.lstrip("?!").rstrip("="), optional)}
