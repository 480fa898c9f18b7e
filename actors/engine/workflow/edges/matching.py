"""Matching the regular expressions of a file, which may take for ever: `(a|aa)+$` does with thirty letters.

Python's own matcher can't be interrupted, in no thread either, so `regex` matches: it has a time limit and gives up the
GIL. A short text is tried at once, for `AT_ONCE`; whatever takes longer goes on in a thread, for `SECONDS`. `regex`
counts the CPU time of the whole process, so who waits looks at the clock as well.

`re` still decides what a pattern is, and what `regex` alone would read into it (`x{e}`, `[[:alpha:]]`) stands for
itself. Of 160,000 random patterns and texts both found the same; known to differ are U+001C to U+001F, which are no
white space for `regex`, and `(?i)` with dotted and dotless i.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable

import regex
import trio

from .....protocol.errors import GraphMistake, NodeFailed
from .....protocol.workflow.edges import ByMatch, RegexExtract

AT_ONCE = 0.002
"""Seconds that a match may hold up all others."""

SHORT = 10_000
"""Characters of a text that is tried at once: it has too few matches to take long in between."""

SECONDS = 10.0
"""For one text, in a thread."""

WORK = 8_000_000
"""The most of characters times groups (and one): `regex` takes up to 85 bytes of memory for each of them."""

MATCHES = 3_000_000
"""The most that are taken of one text."""

_THREADS: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("callboard.matching", None)
_OWN = re.compile(r"\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?!(?:\d+|\d*,\d*)\})", re.DOTALL)
"""Escapes, sets, and braces that repeat nothing."""

_FLAGS = {
    re.IGNORECASE: regex.IGNORECASE,
    re.MULTILINE: regex.MULTILINE,
    re.DOTALL: regex.DOTALL,
    re.VERBOSE: regex.VERBOSE,
    re.ASCII: regex.ASCII,
}

Span = tuple[int, int]


class Pattern:
    """A compiled pattern.

    Attributes:
        groups: how many it has.
        names: those of its groups.

    Raises:
        GraphMistake: it is no regular expression.
    """

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        try:
            known = re.compile(pattern, flags)
            translated = pattern if known.flags & re.VERBOSE else _OWN.sub(_as_itself, pattern)
            given = sum(there for each, there in _FLAGS.items() if flags & each)
            self._compiled = regex.compile(translated, given | regex.VERSION0)
        except (re.error, regex.error, ValueError, OverflowError, RecursionError) as error:
            raise GraphMistake(f"'{pattern}' is no regular expression: {error}") from None
        self._pattern = pattern
        self.groups = known.groups
        self.names = known.groupindex.keys()

    def is_in(self, text: str) -> bool | Awaitable[bool]:
        """Whether it matches somewhere; known at once, unless that takes long. Raises like `each`."""
        found = self._at_once(text, 0, 1)
        return self._is_in_later(text) if found is None else bool(found)

    async def each(self, text: str, group: int | str = 0, *, most: int | None = None) -> list[str | None]:
        """What a group has matched, match by match; None where it had no part.

        Raises:
            NodeFailed: the pattern takes too long, or matches too often, or the text is too long for it.
        """
        return [None if start < 0 else text[start:end] for start, end in await self.spans(text, group, most=most)]

    async def spans(self, text: str, group: int | str = 0, *, most: int | None = None) -> list[Span]:
        """Where a group has matched; -1 where it had no part. Raises like `each`."""
        found = self._at_once(text, group, most)
        return await self._in_thread(text, group, most) if found is None else found

    def _at_once(self, text: str, group: int | str, most: int | None) -> list[Span] | None:
        """What is found, unless that takes longer than `AT_ONCE`."""
        if len(text) > SHORT:
            return None
        try:
            return self._found(text, group, most, AT_ONCE, time.monotonic() + AT_ONCE)
        except TimeoutError:
            return None

    async def _is_in_later(self, text: str) -> bool:
        return bool(await self._in_thread(text, 0, 1))

    async def _in_thread(self, text: str, group: int | str, most: int | None) -> list[Span]:
        what = f"the pattern '{self._pattern if len(self._pattern) <= 100 else f'{self._pattern[:97]}...'}'"
        if len(text) * (self.groups + 1) > WORK:
            raise NodeFailed(f"{what} is not matched with a text of {len(text)} characters: that would take gigabytes")
        limiter = _THREADS.get()
        if limiter is None:
            limiter = trio.CapacityLimiter(2)
            _THREADS.set(limiter)
        async with limiter:
            pass  # the time counts from when there is a thread
        try:
            with trio.fail_after(SECONDS):
                found = await trio.to_thread.run_sync(
                    lambda: self._found(text, group, most, SECONDS, time.monotonic() + SECONDS),
                    limiter=limiter,
                    abandon_on_cancel=True,  # it ends by itself after `SECONDS` of CPU time
                )
        except (TimeoutError, trio.TooSlowError):
            raise NodeFailed(
                f"{what} has not done with a text of {len(text)} characters within {SECONDS:g} s, and was ended: "
                "repetitions inside of repetitions, like `(a|aa)+`, take for ever"
            ) from None
        if len(found) > MATCHES:
            raise NodeFailed(f"{what} matches too often in a text of {len(text)} characters")
        return found

    def _found(self, text: str, group: int | str, most: int | None, seconds: float, until: float) -> list[Span]:
        """Where it matches. Raises TimeoutError."""
        found: list[Span] = []
        for match in self._compiled.finditer(text, timeout=seconds, concurrent=seconds > AT_ONCE):
            found.append(match.span(group))
            if len(found) == most or len(found) > MATCHES:
                break
            if len(found) % 100 == 0 and time.monotonic() > until:
                raise TimeoutError
        return found


def pattern_in(block: RegexExtract | ByMatch) -> Pattern:
    """The compiled pattern of a block that says in words what its flags are.

    Raises:
        GraphMistake: it is none.
    """
    flags = re.NOFLAG if block.case_sensitive else re.IGNORECASE
    flags |= re.MULTILINE if block.multiline else re.NOFLAG
    flags |= re.DOTALL if block.dotall else re.NOFLAG
    return Pattern(block.pattern, flags)


def _as_itself(token: re.Match[str]) -> str:
    """A part of a pattern of `re`, as `regex` writes it."""
    text = token[0]
    if text == "{":
        return "\\{"
    if text[0] != "[":
        return text
    return "[" + re.sub(r"\\.|\[", lambda inner: "\\[" if inner[0] == "[" else inner[0], text[1:], flags=re.DOTALL)
