"""JSDoc comments: the text for the model, and what `@param` says about each parameter.

The description is the text above the first block tag. `@param` reaches the schema; other tags (`@returns`, `@example`)
are for programmers.
"""

from __future__ import annotations

import re

import msgspec

_BEGIN = re.compile(r"\s*\* ?")
_TAG = re.compile(r"@(\w+)\s*")
_BRACES = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*")
_NAME = re.compile(r"(\[?)([\w$.]+)(?:=[^\]]*)?\]?\s*(?:-\s+|-$|:\s+)?")


class Param(msgspec.Struct, frozen=True):
    """One `@param`.

    Attributes:
        text: what it means.
        type: what stands in braces.
        optional: whether the name stands in brackets, or the type says so (`{string=}`, `{?string}`).
    """

    text: str
    type: str = ""
    optional: bool = False


class JSDoc(msgspec.Struct, frozen=True):
    """A comment's description and its parameters, by name (`options.depth` for a nested one)."""

    description: str = ""
    params: dict[str, Param] = {}


def read_jsdoc(comment: str) -> JSDoc:
    """Take a comment apart. One that is no JSDoc (`// ...`) says nothing."""
    if not comment.startswith("/**") or not comment.endswith("*/") or len(comment) < 5:
        return JSDoc()
    lines = comment[3:-2].split("\n")
    lines = [lines[0].strip(), *(_BEGIN.sub("", line, count=1).rstrip() for line in lines[1:])]
    description: list[str] = []
    params: dict[str, Param] = {}
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
    return JSDoc("\n".join(description).strip(), params)


def _param(text: str) -> dict[str, Param]:
    kind = ""
    if braces := _BRACES.match(text):
        kind, text = braces[1].strip(), text[braces.end() :]
    name = _NAME.match(text)
    if name is None:
        return {}
    optional = bool(name[1]) or kind.startswith("?") or kind.endswith("=")
    words = " ".join(text[name.end() :].split())
    return {name[2]: Param(words, kind.lstrip("?!").rstrip("="), optional)}
