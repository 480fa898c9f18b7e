"""Large pastes: folded to `[pasted 1.0 MB #1]` in the input, and expanded when the line is sent.

A mark is valid only in the process that created it. The history file stores the text itself, so that a mark from
another process is never expanded.
"""

from __future__ import annotations

import re

LARGE = 4_000
LINES = 12
"""Largest paste, in characters and in lines, that is inserted unfolded."""

KEPT = 64_000_000
"""Characters of pastes that are cached for recalled lines. The newest is cached whatever its size."""

_MARK = re.compile(r"\[pasted [0-9.]+ [kM]?B #\d+\]")


class Pastes:
    """Folded pastes of the input line and of recalled lines."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._count = 0

    def folded(self, text: str) -> str:
        """Return the text to insert for a paste: the text itself, or a mark."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= LARGE and text.count("\n") < LINES:
            return text
        self._count += 1
        mark = f"[pasted {_size(len(text.encode('utf-8', 'replace')))} #{self._count}]"
        self._texts[mark] = text
        return mark

    def whole(self, line: str) -> str:
        """Expand the marks in a line."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), line)

    def lost(self, line: str) -> str | None:
        """Return a mark of the line with a paste that was dropped, or None."""
        return next((mark for mark in _MARK.findall(line) if mark in self._dropped), None)

    def clear(self) -> None:
        """Drop the oldest pastes above the limit after a line was sent. The rest is retained for recalled lines."""
        size = sum(map(len, self._texts.values()))
        while size > KEPT and len(self._texts) > 1:
            mark = next(iter(self._texts))
            size -= len(self._texts.pop(mark))
            self._dropped.add(mark)


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f} MB"
    return f"{count / 1_000:.1f} kB" if count >= 1_000 else f"{count} B"
