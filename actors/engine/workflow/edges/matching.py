"""Matching the regular expressions of a file, which may take for ever: `(a+)+$` does with thirty letters.

Python's matcher can't be interrupted, in no thread either. So what a pattern may cost is estimated from its form and
the length of the text; what is cheap is matched at once, anything else in a process of its own that has `SECONDS`, is
a child of the actor that asks, and ends with it. Its rights are the least: it gets pattern and text, and gives back
where matches are.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]  # the one parser that reads as `re` does
from re import _parser as parser  # type: ignore[attr-defined]  # the same
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.errors import GraphMistake, NodeFailed, TimedOut

if TYPE_CHECKING:
    from .....supervisors import Actor

WORKER = Path(__file__).parents[1] / "workers" / "matching.py"

SECONDS = 10.0
"""For one text, in the process."""

STEPS = 200_000_000
"""The most that may be reckoned for what is matched at once; in truth that is a fifth of a second."""

LONGEST = 4_000_000
"""Characters of a text that is searched at once by a pattern without repetitions."""

MEMORY = 1024 * 1024 * 1024
"""Bytes that the process may have."""

ANSWER = 64 * 1024 * 1024
"""Bytes of what it gives back, some three million matches."""

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

    async def is_in(self, text: str, me: Actor) -> bool:
        """Whether it matches somewhere. Raises like `each`."""
        if self.is_cheap(text):
            return self.compiled.search(text) is not None
        return bool(await self._far(text, me, 0, most=1))

    async def each(self, text: str, me: Actor, group: int | str = 0, *, most: int | None = None) -> list[str | None]:
        """What a group has matched, match by match.

        Raises:
            NodeFailed: the pattern has taken too long, or matches too often.
        """
        return [None if start < 0 else text[start:end] for start, end in await self.spans(text, me, group, most=most)]

    async def spans(
        self, text: str, me: Actor, group: int | str = 0, *, most: int | None = None
    ) -> list[tuple[int, int]]:
        """Where a group has matched; -1 where it had no part. Raises like `each`."""
        if not self.is_cheap(text):
            return await self._far(text, me, group, most)
        found: list[tuple[int, int]] = []
        for match in self.compiled.finditer(text):
            found.append(match.span(group))
            if len(found) == most:
                break
        return found

    async def _far(self, text: str, me: Actor, group: int | str, most: int | None) -> list[tuple[int, int]]:
        from .....supervisors.process import ProcessStop, run_process

        task: dict[str, Any] = {
            "pattern": self.compiled.pattern,
            "flags": int(self.flags),
            "text": text,
            "group": group,
            "most": most,
            "seconds": int(SECONDS) + 1,
            "memory": MEMORY,
        }
        data = await trio.to_thread.run_sync(_encoded, task)
        limiter = _AT_ONCE.get()
        if limiter is None:
            limiter = trio.CapacityLimiter(2)
            _AT_ONCE.set(limiter)
        shown = self.compiled.pattern if len(self.compiled.pattern) <= 100 else f"{self.compiled.pattern[:97]}..."
        what = f"the pattern '{shown}'"
        late = NodeFailed(
            f"{what} has not done with a text of {len(text)} characters within {SECONDS:g} s, and was ended: "
            "repetitions inside of repetitions, like `(a+)+`, take for ever"
        )
        async with limiter:
            try:
                done = await run_process(
                    me,
                    [sys.executable, "-I", "-S", WORKER],
                    name="matching",
                    input=data,
                    env={},
                    output_limit=ANSWER,
                    on_overflow="kill",
                    timeout=SECONDS,
                    stop=ProcessStop(eof=0, term=0),  # it has nothing to put away
                )
            except TimedOut:
                raise late from None
        if done.truncated:
            raise NodeFailed(f"{what} matches too often in a text of {len(text)} characters")
        if done.status == -signal.SIGXCPU:
            raise late
        if done.status != 0:
            told = done.stderr_tail.strip().rpartition("\n")[2] or f"its process ended with {done.status}"
            raise NodeFailed(f"{what} can't be matched with a text of {len(text)} characters: {told}")
        spans: list[tuple[int, int]] = msgspec.json.decode(done.stdout, type=list[tuple[int, int]])
        return spans


def _encoded(task: dict[str, Any]) -> bytes:
    """ASCII, so that half a character gets through as well."""
    return json.dumps(task).encode()


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
