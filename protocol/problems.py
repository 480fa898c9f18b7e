"""One finding about one file: where it is, what is wrong, what was expected, how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Literal, TypedDict

import msgspec

Severity = Literal["error", "warning"]


class Remedy(TypedDict, total=False):
    """What may be said beside the message of a problem; see there."""

    expected: str | None
    hint: str | None


MOST_KNOWN = 500
"""Names that are compared with one that is unknown; to compare takes its time, and a stranger may list any number."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem found in a file that a user wrote.

    Attributes:
        file: path as the user would type it.
        line: 1-based; 0 when the whole file is meant.
        column: 1-based; 0 when the whole line is meant.
        code: stable identifier of the kind of problem, `snake_case` (`unknown_key`, `missing_node`, ...).
        node: id of the graph node, if the problem belongs to one.
        key: dotted path of the key (`nodes.plan.next`).
        message: what is wrong, naming what was found.
        expected: what would have been right.
        hint: how to fix it, or "did you mean 'x'?".
    """

    severity: Severity
    file: str
    code: str
    message: str
    line: int = 0
    column: int = 0
    node: str | None = None
    key: str | None = None
    expected: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = self.file
        if self.line:
            where += f":{self.line}"
            if self.column:
                where += f":{self.column}"
        node = f"[{self.node}] " if self.node else ""
        text = f"{where}: {self.severity}: {node}{self.message}"
        if self.expected:
            text += f" (expected {self.expected})"
        if self.hint:
            text += f"\n    {self.hint}"
        return text


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?` for the nearest known name, or None when nothing is near."""
    near = get_close_matches(found, list(islice(known, MOST_KNOWN)), n=1, cutoff=0.6)
    return suggestion(near[0]) if near else None


def suggestion(name: str) -> str:
    """Return the question whether another name was meant."""
    return f"did you mean '{name}'?"


def slip_of(found: str, known: Iterable[str]) -> str | None:
    """The known name that `found` is a slip of the pen of; None if there is none.

    One letter too many, too few, another one, or two that changed places (`peom` for `poem`), which the likeness that
    `did_you_mean` goes by rates too low in a short name. In a long name a few more letters may differ.
    """
    names = list(islice(known, MOST_KNOWN))
    if len(found) >= _SHORTEST:
        for name in names:
            if len(name) >= _SHORTEST and name != found and _one_slip_apart(found, name):
                return name
    near = get_close_matches(found, names, n=1, cutoff=0.8)
    return near[0] if near else None


_SHORTEST = 3
"""Letters of a name that can be said to be like another: `x1` and `x2` are two names."""


def _one_slip_apart(one: str, other: str) -> bool:
    """Whether the Damerau distance of the two is 1."""
    short, long = sorted((one, other), key=len)
    if len(long) - len(short) > 1:
        return False
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    if len(short) < len(long):
        return short[start:] == long[start + 1 :]
    rest, twin = short[start:], long[start:]
    return rest[1:] == twin[1:] or (rest[2:] == twin[2:] and rest[:2] == twin[:2][::-1])


def errors_in(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that stop a run."""
    return [problem for problem in problems if problem.severity == "error"]
