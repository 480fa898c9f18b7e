"""Paths into JSON values: `items[0].name`, `$.items[-1]['first name']`, `items[*].id`.

A step is a name, a name in quotes and brackets, a number in brackets (negative from the end), or `[*]` for all items
of a list.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

Step: TypeAlias = "str | int | None"
"""Name, index in a list, or all of a list (None)."""

_STEP = re.compile(r"""\.?([\w-]+)|\[(-?\d+)\]|\[(\*)\]|\[(?:'([^']*)'|"([^"]*)")\]""")


class BadPath(ValueError):
    """The text is not a path; the message shows the position."""


class Missing(LookupError):
    """The path leads to no value; the message shows how far it leads."""


def parsed(path: str) -> list[Step]:
    """Return the steps of a path.

    Raises:
        BadPath: the text is not a path.
    """
    text = path.strip().removeprefix("$")
    steps: list[Step] = []
    place = 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise BadPath(f"what is {text[place:]!r}? (items[0].name, items[*], ['a name'])")
        name, number, star, single, double = found.groups()
        if number is not None:
            steps.append(int(number))
        elif star is not None:
            steps.append(None)
        else:
            steps.append(next(each for each in (name, single, double) if each is not None))
        place = found.end()
    return steps


def at(value: Any, path: str) -> Any:
    """Return the value at a path; a list for `[*]`.

    Raises:
        BadPath: the text is not a path.
        Missing: the path leads to no value.
    """
    return _at(value, parsed(path), "$")


def _at(value: Any, steps: list[Step], where: str) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if step is None:
        if not isinstance(value, list):
            raise Missing(f"{where} is no list")
        return [_at(each, rest, f"{where}[{number}]") for number, each in enumerate(value)]
    if isinstance(step, int):
        if not isinstance(value, list) or not -len(value) <= step < len(value):
            raise Missing(f"{where} has no [{step}]")
        return _at(value[step], rest, f"{where}[{step}]")
    if not isinstance(value, dict) or step not in value:
        raise Missing(f"{where} has no '{step}'")
    return _at(value[step], rest, f"{where}.{step}")
