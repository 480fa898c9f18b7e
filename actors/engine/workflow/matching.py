"""Regular expressions from workflow files, matched with a time limit.

Problem: a pattern can take exponential time; `(a|aa)+$` does with thirty letters. Python's `re` cannot be
interrupted, not even in a thread, because it holds the GIL. So `regex` matches: it has a time limit and releases
the GIL. A short text is first matched in the event loop, for at most `AT_ONCE` seconds. Longer matches run in a
thread, for at most `SECONDS`. `regex` measures the CPU time of the whole process, so the caller checks the wall
clock as well.

`re` still defines the syntax, and syntax that only `regex` knows (`x{e}`, `[[:alpha:]]`) is escaped. For 160,000
random patterns and texts both gave the same result. Known differences: U+001C to U+001F are not white space
for `regex`, and `(?i)` differs for dotted and dotless i.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable

import regex
import trio

from ....protocol.errors import GraphMistake, NodeFailed
from ....protocol.workflow.model import ByMatch, RegexExtract

AT_ONCE = 0.002
"""Seconds that a match may block the event loop."""

SHORT = 10_000
"""Longest text in characters that is matched in the event loop; it has too few matches to exceed the limit between
them.
"""

SECONDS = 10.0
"""Seconds for one text, in a thread."""

WORK = 8_000_000
"""Most characters times (groups + 1); `regex` takes up to 85 bytes of memory for each."""

MATCHES = 3_000_000
"""Most matches of one text."""

_THREADS: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("callboard.matching", None)
_OWN = re.compile(r"\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?!(?:\d+|\d*,\d*)\})", re.DOTALL)
"""Escapes, sets, and braces that are not repetitions."""

_FLAGS = {
    re.IGNORECASE: regex.IGNORECASE,
    re.MULTILINE: regex.MULTILINE,
    re.DOTALL: regex.DOTALL,
    re.VERBOSE: regex.VERBOSE,
    re.ASCII: regex.ASCII,
}

Span = tuple[int, int]


class Pattern:
    """Compiled pattern.

    Attributes:
        groups: number of groups.
        names: names of groups.

    Raises:
        GraphMistake: the text is not a valid regular expression.
    """

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        try:
            known = re.compile(pattern, flags)
            translated = pattern if known.flags & re.VERBOSE else _OWN.sub(_as_itself, pattern)
            given = sum(there for each, there in _FLAGS.items() if flags & each)
            self._compiled = regex.compile(translated, given | regex.VERSION0)
        except (re.error, regex.error, ValueError, OverflowError, RecursionError) as error:
            raise GraphMistake(f"'{pattern}' is not a valid regular expression: {error}") from None
        self._pattern = pattern
        self.groups = known.groups
        self.names = known.groupindex.keys()

    def is_in(self, text: str) -> bool | Awaitable[bool]:
        """Return whether the pattern matches anywhere; an awaitable of that if it takes longer than `AT_ONCE`.

        Raises the errors of `each`, when the awaitable is awaited.
        """
        found = self._at_once(text, 0, 1)
        return self._is_in_later(text) if found is None else bool(found)

    async def each(self, text: str, group: int | str = 0, *, most: int | None = None) -> list[str | None]:
        """Return the texts of a group, match by match; None if the group is not part of the match.

        Raises:
            NodeFailed: matching takes too long, there are too many matches, or the text is too long for the pattern.
        """
        return [None if start < 0 else text[start:end] for start, end in await self.spans(text, group, most=most)]

    async def spans(self, text: str, group: int | str = 0, *, most: int | None = None) -> list[Span]:
        """Return the positions of a group, match by match; -1 if it is not part of the match. Raises the errors of
        `each`.
        """
        found = self._at_once(text, group, most)
        return await self._in_thread(text, group, most) if found is None else found

    def _at_once(self, text: str, group: int | str, most: int | None) -> list[Span] | None:
        """Return the positions, or None if that takes longer than `AT_ONCE`."""
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
            raise NodeFailed(f"{what} was not matched: a text of {len(text)} characters would need gigabytes of memory")
        limiter = _THREADS.get()
        if limiter is None:
            limiter = trio.CapacityLimiter(2)
            _THREADS.set(limiter)
        async with limiter:
            pass  # wait for a free thread first, so that waiting does not count against the time limit
        try:
            with trio.fail_after(SECONDS):
                found = await trio.to_thread.run_sync(
                    lambda: self._found(text, group, most, SECONDS, time.monotonic() + SECONDS),
                    limiter=limiter,
                    abandon_on_cancel=True,  # it ends after `SECONDS` of CPU time anyway
                )
        except (TimeoutError, trio.TooSlowError):
            raise NodeFailed(
                f"{what} did not finish a text of {len(text)} characters within {SECONDS:g} s and was ended: "
                "nested repetitions, like `(a|aa)+`, can take exponential time"
            ) from None
        if len(found) > MATCHES:
            raise NodeFailed(f"{what} has too many matches in a text of {len(text)} characters")
        return found

    def _found(self, text: str, group: int | str, most: int | None, seconds: float, until: float) -> list[Span]:
        """Return the positions.

        Raises:
            TimeoutError: the time limit is exceeded.
        """
        found: list[Span] = []
        for match in self._compiled.finditer(text, timeout=seconds, concurrent=seconds > AT_ONCE):
            found.append(match.span(group))
            if len(found) == most or len(found) > MATCHES:
                break
            # `regex` measures CPU time; this check limits the wall time of many short matches.
            if len(found) % 100 == 0 and time.monotonic() > until:
                raise TimeoutError
        return found


def pattern_in(block: RegexExtract | ByMatch) -> Pattern:
    """Return the compiled pattern of a block that has its flags as separate keys.

    Raises:
        GraphMistake: the pattern is invalid.
    """
    flags = re.NOFLAG if block.case_sensitive else re.IGNORECASE
    flags |= re.MULTILINE if block.multiline else re.NOFLAG
    flags |= re.DOTALL if block.dotall else re.NOFLAG
    return Pattern(block.pattern, flags)


def _as_itself(token: re.Match[str]) -> str:
    """Return a token of an `re` pattern in the syntax of `regex`."""
    text = token[0]
    if text == "{":
        return "\\{"
    if text[0] != "[":
        return text
    return "[" + re.sub(r"\\.|\[", lambda inner: "\\[" if inner[0] == "[" else inner[0], text[1:], flags=re.DOTALL)
