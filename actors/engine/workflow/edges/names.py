"""`{{name}}` in the texts of a workflow: in templates of edges, and in the role of a node that runs once per unit.

A name stands for a text; `{{name.key}}` and `{{name[0]}}` look into it if that text is JSON. Nodes are called what
their authors like, `Article Writer` or `v1.2`, so whatever stands between the braces may be a name. One that stands for
nothing stays as it is written, since a prompt may well talk about templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from .....protocol.json_values import NotJson, decode
from ...graph.templates import MISSING, getter, render

_HOLE = re.compile(r"\{\{([^{}]*)\}\}")
_STEP = re.compile(r"[.\[]")

LONGEST = 1_000
"""Characters between braces that are looked at as a name."""

Lookup: TypeAlias = Callable[[str], str | None]
"""What a name stands for; None if for nothing."""


def filled(text: str, lookup: Lookup) -> str:
    """The text with its names put in, in one pass: what a name stands for is not looked at again."""

    def put(match: re.Match[str]) -> str:
        path = match[1].strip()
        if not path or len(path) > LONGEST:
            return match[0]
        value = lookup(path)
        if value is not None:
            return value
        found = _inside(path, lookup)
        return match[0] if found is MISSING else render(found)

    return _HOLE.sub(put, text) if "{{" in text else text


def names_in(text: str) -> dict[str, None]:
    """All that `filled` may look up for a text, in the order in which it is asked for."""
    asked: dict[str, None] = {}
    filled(text, lambda name: asked.setdefault(name))
    return asked


def _inside(path: str, lookup: Lookup) -> Any:
    """What stands at a path into a name's text; of names that begin alike, the longest is meant."""
    for step in reversed(list(_STEP.finditer(path))):
        text = lookup(path[: step.start()])
        if text is None:
            continue
        try:
            value = decode(text)
        except NotJson:
            return MISSING
        return getter("it" + path[step.start() :])({"it": value})
    return MISSING
