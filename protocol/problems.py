"""Problem in a file: its position, the finding, the expectation, and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Literal, TypedDict

import msgspec

Severity = Literal["error", "warning"]


class Remedy(TypedDict, total=False):
    """Optional fields of a problem; see `Problem`."""

    expected: str | None
    hint: str | None


MOST_KNOWN = 500
"""Maximum of names compared with an unknown one. Comparing takes time, and an untrusted file may list any number."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Problem found in a file that a user wrote.

    Attributes:
        file: path as the user would type it.
        line: 1-based; 0 for the whole file.
        column: 1-based; 0 for the whole line.
        code: stable identifier of the kind of problem, `snake_case` (`unknown_key`, `missing_node`, ...).
        node: id of the graph node, if the problem belongs to one.
        key: dotted path of the key (`nodes.plan.next`).
        message: description of the problem, including the value found.
        expected: a correct value.
        hint: remedy, or "did you mean 'x'?".
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
    """Return `did you mean 'x'?` for the nearest known name; None if no name is near."""
    from difflib import get_close_matches

    near = get_close_matches(found, list(islice(known, MOST_KNOWN)), n=1, cutoff=0.6)
    return suggestion(near[0]) if near else None


def suggestion(name: str) -> str:
    """Return "did you mean '...'?" for a similar name."""
    return f"did you mean '{name}'?"


def slip_of(found: str, known: Iterable[str]) -> str | None:
    """Return the known name that `found` is probably a misspelling of; None if there is none.

    A misspelling has one letter too many, too few, or wrong, or two letters swapped (`peom` for `poem`). The
    similarity of `did_you_mean` rates these too low in short names. In long names a few more letters may differ.
    """
    from difflib import get_close_matches

    names = list(islice(known, MOST_KNOWN))
    if len(found) >= _SHORTEST:
        for name in names:
            if len(name) >= _SHORTEST and name != found and _one_slip_apart(found, name):
                return name
    near = get_close_matches(found, names, n=1, cutoff=0.8)
    return near[0] if near else None


_SHORTEST = 3
"""Minimum length of names to compare: `x1` and `x2` are different names."""


def _one_slip_apart(one: str, other: str) -> bool:
    """Return whether the Damerau–Levenshtein distance of two names is 1."""
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
    """Return the errors among the problems."""
    return [problem for problem in problems if problem.severity == "error"]
