"""`{{name}}` in the texts of a workflow: in templates of edges, and in the role of a node that runs once per unit.

A name stands for a text; `{{name.key}}` and `{{name[0]}}` look into it if that text is JSON. A name that stands for
nothing stays as it is written, since a prompt may well talk about templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from ...graph.json_values import NotJson, decode
from ...graph.templates import MISSING, getter, render, root_of

_TOKEN = re.compile(r"\{\{\s*([a-zA-Z0-9_][a-zA-Z0-9_.\[\]-]*)\s*\}\}")


Lookup: TypeAlias = Callable[[str], str | None]
"""What a name stands for; None if for nothing."""


def filled(text: str, lookup: Lookup) -> str:
    """The text with its names put in, in one pass: what a name stands for is not looked at again."""

    def put(match: re.Match[str]) -> str:
        path = match[1]
        value = lookup(path)
        if value is not None:
            return value
        found = _inside(path, lookup)
        return match[0] if found is MISSING else render(found)

    return _TOKEN.sub(put, text) if "{{" in text else text


def _inside(path: str, lookup: Lookup) -> Any:
    """What stands at a path into a name's text."""
    root = root_of(path)
    text = lookup(root) if root != path else None
    if text is None:
        return MISSING
    try:
        value = decode(text)
    except NotJson:
        return MISSING
    return getter("it" + path[len(root) :])({"it": value})
