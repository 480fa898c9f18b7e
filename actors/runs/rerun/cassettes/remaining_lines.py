"""Unused lines of a cassette, and the search among them.

A request is found by its contents, wherever it was recorded; among equal ones, the one recorded at the same position
is preferred. With `loose`, the next request recorded at the position is used, whatever its contents. If none is
found, the error shows the difference as lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from .....protocol.cassette import (
    AnswerLine,
    AnyLine,
    CassetteDiffers,
    DoneLine,
    Head,
    Piece,
    RecordedRequest,
    ReplyLine,
    ValueLine,
    WindowLine,
)
from .content import RequestContent, lines_of, lines_of_value

LONGEST = 60
"""Maximum of lines of a difference in a message."""

JUDGE = "callboard-judge"
"""Agent that judges the output of a case, in a run of its own after the case's run."""

_LIST = 12
"""Maximum of requests listed in a message if none is similar."""

Effects: TypeAlias = ReplyLine | DoneLine
T = TypeVar("T")


class RemainingLines:
    """Unused lines of a cassette.

    Args:
        lines: lines of the cassette.
        name: name of the cassette in messages.
        loose: match requests by position.

    Attributes:
        head: the first line.
    """

    def __init__(self, lines: Sequence[AnyLine], name: str, *, loose: bool) -> None:
        head = lines[0]
        assert isinstance(head, Head)
        self.head = head
        self._name = name
        self._loose = loose
        self._pieces: dict[str, Any] = {line.hash: line.value for line in lines if isinstance(line, Piece)}
        self._effects: list[Effects] = [line for line in lines if isinstance(line, ReplyLine | DoneLine)]
        self._values = [line for line in lines if isinstance(line, ValueLine)]
        self._answers = [line for line in lines if isinstance(line, AnswerLine)]
        self._windows = {line.model: line.tokens for line in lines if isinstance(line, WindowLine)}

    @property
    def left(self) -> str:
        """Description of the unused lines; "" if all were used."""
        names = [_what(line) for line in self._effects if not line.at.startswith(f"/{JUDGE}")]
        more = f" and {len(names) - _LIST} more" if len(names) > _LIST else ""
        return ", ".join(names[:_LIST]) + more

    def reply(self, at: str, content: RequestContent) -> ReplyLine:
        """Remove and return the recorded reply to this request.

        Raises:
            CassetteDiffers: it is not in the cassette.
        """
        line = self._found(at, content.hash, lambda line: isinstance(line, ReplyLine))
        if line is None:
            near = self._nearest(at, lambda line: isinstance(line, ReplyLine))
            was = None if near is None else lines_of(_asked(near), self._pieces)
            raise self._differs("request to a model", at, near, was, lines_of(content.asked, content.pieces))
        assert isinstance(line, ReplyLine)
        return line

    def done(self, at: str, kind: str, name: str, given: Any, digest: str) -> DoneLine:
        """Remove and return the recorded result of an effect. Raises as `reply` does."""

        def is_one(line: Effects) -> bool:
            return isinstance(line, DoneLine) and line.kind == kind and line.name == name

        line = self._found(at, digest, is_one)
        if line is None:
            near = self._nearest(at, is_one)
            was = lines_of_value(near.given) if isinstance(near, DoneLine) else None
            raise self._differs(f"{kind} '{name}'", at, near, was, lines_of_value(given))
        assert isinstance(line, DoneLine)
        return line

    def value(self, at: str, name: str) -> ValueLine | None:
        """Remove and return the next value of this name, preferably at this position; None if there is none."""
        return _taken(self._values, lambda line: line.name == name and line.at == at) or _taken(
            self._values, lambda line: line.name == name
        )

    def answer(self, at: str, text: str) -> AnswerLine | None:
        """Remove and return the next answer to this question, preferably at this position.

        With `loose`, the next answer to any question at this position is also accepted.
        """
        return (
            _taken(self._answers, lambda line: line.at == at and line.question == text)
            or _taken(self._answers, lambda line: line.question == text)
            or (_taken(self._answers, lambda line: line.at == at) if self._loose else None)
        )

    def window(self, model: str) -> int | None:
        """Return the recorded window of a model in tokens."""
        return self._windows.get(model)

    def _found(self, at: str, digest: str, is_one: Callable[[Effects], bool]) -> Effects | None:
        if self._loose:
            return _taken(self._effects, lambda line: is_one(line) and line.at == at) or _taken(self._effects, is_one)
        return _taken(self._effects, lambda line: is_one(line) and line.request == digest and line.at == at) or _taken(
            self._effects, lambda line: is_one(line) and line.request == digest
        )

    def _nearest(self, at: str, is_one: Callable[[Effects], bool]) -> Effects | None:
        """Return the recorded request to compare with one that was not found: at this position, else the next one."""
        there = [line for line in self._effects if is_one(line)]
        return next((line for line in there if line.at == at), there[0] if there else None)

    def _differs(
        self, what: str, at: str, near: Effects | None, was: Sequence[str] | None, now: Sequence[str]
    ) -> CassetteDiffers:
        where = at or "the run"
        if near is None or was is None:
            rest = f"what is left of it: {self.left}" if self._effects else "all that it has was asked for"
            return CassetteDiffers(
                f"the cassette {self._name} has no {what} of {where} any more; {rest}. What was asked for:\n"
                + "\n".join(f"  {line}" for line in now[:LONGEST])
                + f"\nRecord it anew (--record {self._name})"
            )
        there = "" if near.at == at else f" (the nearest is of {near.at or 'the run'})"
        difference = list(difflib.unified_diff(was, now, "recorded", "now", n=2, lineterm=""))
        shown = difference[:LONGEST]
        if len(difference) > len(shown):
            shown.append(f"... {len(difference) - len(shown)} more lines")
        return CassetteDiffers(
            f"the {what} of {where} is not that of the cassette {self._name}{there}:\n"
            + "\n".join(f"  {line}" for line in shown)
            + f"\nRecord it anew (--record {self._name}), or take what is at its place (--loose)"
        )


def _asked(line: Effects) -> RecordedRequest:
    assert isinstance(line, ReplyLine)
    return line.asked


def _what(line: Effects) -> str:
    if isinstance(line, ReplyLine):
        return f"a request of {line.at}"
    return f"{line.kind} '{line.name}' of {line.at}"


def _taken(lines: list[T], wanted: Callable[[T], bool]) -> T | None:
    """Remove and return the first matching line; None if there is none."""
    for place, line in enumerate(lines):
        if wanted(line):
            return lines.pop(place)
    return None
