"""Matching the regular expressions of a file, which may take for ever: `(a+)+$` does with thirty letters.

Python's matcher can't be interrupted, in no thread either. So what a pattern may cost is estimated from its form and
the length of the text; what is cheap is matched at once, anything else in a process of its own that has `SECONDS` and
ends with whoever waits for it. Its rights are the least: it gets pattern and text, and gives back where matches are.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]  # the one parser that reads as `re` does
from re import _parser as parser  # type: ignore[attr-defined]  # the same
from typing import Any

import msgspec
import trio

from ....protocol.errors import GraphMistake

WORKER = Path(__file__).parents[1] / "workers" / "matching.py"

SECONDS = 10.0
"""For one text, in the process."""

STEPS = 200_000_000
"""The most that may be reckoned for what is matched at once; in truth that is a fifth of a second."""

LONGEST = 4_000_000
"""Characters of a text that is searched at once by a pattern without repetitions."""


_AT_ONCE: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("callboard.matching", None)


class Pattern:
    """A compiled pattern, and how its cost grows with the text.

    Raises:
        GraphMistake: it is no regular expression.
    """

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        try:
            self.compiled = re.compile(pattern, flags)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise GraphMistake(f"'{pattern}' is no regular expression: {error}") from None
        self.flags = flags
        self.degree = _degree(pattern, flags)

    def is_cheap(self, text: str) -> bool:
        """Whether it takes no time worth speaking of."""
        length = len(text)
        return self.degree is not None and length <= LONGEST and (length + 2) ** self.degree <= STEPS

    async def is_in(self, text: str) -> bool:
        """Whether it matches somewhere. Raises like `each`."""
        if self.is_cheap(text):
            return self.compiled.search(text) is not None
        return bool(await self._far(text, 0, most=1))

    async def each(self, text: str, group: int | str = 0, *, most: int | None = None) -> list[str | None]:
        """What a group has matched, match by match.

        Raises:
            GraphMistake: the pattern has taken too long.
        """
        return [None if start < 0 else text[start:end] for start, end in await self.spans(text, group, most=most)]

    async def spans(self, text: str, group: int | str = 0, *, most: int | None = None) -> list[tuple[int, int]]:
        """Where a group has matched; -1 where it had no part. Raises like `each`."""
        if not self.is_cheap(text):
            return await self._far(text, group, most)
        found: list[tuple[int, int]] = []
        for match in self.compiled.finditer(text):
            found.append(match.span(group))
            if len(found) == most:
                break
        return found

    async def _far(self, text: str, group: int | str, most: int | None) -> list[tuple[int, int]]:
        task: dict[str, Any] = {
            "pattern": self.compiled.pattern,
            "flags": int(self.flags),
            "text": text,
            "group": group,
            "most": most,
            "seconds": int(SECONDS) + 1,
        }
        limiter = _AT_ONCE.get()
        if limiter is None:
            limiter = trio.CapacityLimiter(2)
            _AT_ONCE.set(limiter)
        async with limiter:
            with trio.move_on_after(SECONDS):
                done = await trio.run_process(
                    [sys.executable, "-I", "-S", WORKER],
                    stdin=json.dumps(task).encode(),  # ASCII, so that half a character gets through as well
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    env={},
                )
                if done.returncode == 0:
                    spans: list[tuple[int, int]] = msgspec.json.decode(done.stdout, type=list[tuple[int, int]])
                    return spans
        shown = self.compiled.pattern if len(self.compiled.pattern) <= 100 else f"{self.compiled.pattern[:97]}..."
        raise GraphMistake(
            f"the pattern '{shown}' has not done with a text of {len(text)} characters within {SECONDS:g} s, and was "
            "ended: repetitions inside of repetitions, like `(a+)+`, take for ever"
        )


def _degree(pattern: str, flags: re.RegexFlag) -> int | None:
    """The power of the text's length that the matcher's steps stay below; None if there is none."""
    try:
        return 1 + _loops(parser.parse(pattern, int(flags)), inside=False)
    except _NoEnd:
        return None


class _NoEnd(Exception):
    """Repetitions inside of repetitions."""


def _loops(items: Any, *, inside: bool) -> int:
    """How many of a pattern's parts may match texts of several lengths.

    Raises:
        _NoEnd: such a part is repeated.
    """
    count = 0
    for op, value in items:
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            low, high, body = value
            if inside and low != high:
                raise _NoEnd
            count += (low != high) + _loops(body, inside=inside or high > 1)
        elif op is codes.BRANCH:
            if inside:
                raise _NoEnd
            count += len(value[1]) - 1 + sum(_loops(each, inside=inside) for each in value[1])
        elif op is codes.SUBPATTERN:
            count += _loops(value[-1], inside=inside)
        elif op is codes.ATOMIC_GROUP:
            count += _loops(value, inside=inside)
        elif op in (codes.ASSERT, codes.ASSERT_NOT):
            count += _loops(value[1], inside=inside)
        elif op is codes.GROUPREF_EXISTS:
            if inside:
                raise _NoEnd
            count += 1 + sum(_loops(each, inside=inside) for each in value[1:] if each is not None)
        elif op is codes.GROUPREF:
            count += 1
    return count
