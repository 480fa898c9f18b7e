"""Paths into JSON values: `items[0].name`, `$.items[-1]['first name']`, `items[*].id`.

A name, or one in quotes and brackets; a number in brackets, from the end if it is negative; `[*]` for all of a list.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

Step: TypeAlias = "str | int | None"
"""A name, a place in a list, or all of it (None)."""

_STEP = re.compile(r"""\.?([\w-]+)|\[(-?\d+)\]|\[(\*)\]|\[(?:'([^']*)'|"([^"]*)")\]""")


class BadPath(ValueError):
    """It is no path; the text says where."""


class Missing(LookupError):
    """Nothing is there; the text says how far the path leads."""


def parsed(path: str) -> list[Step]:
    """The steps of a path.

    Raises:
        BadPath: it is none.
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
    """What is at a path; a list where it says `[*]`.

    Raises:
        BadPath: it is none.
        Missing: nothing is there.
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
