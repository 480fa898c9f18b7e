"""Large pastes: they stand in the input as `[pasted 1.0 MB #1]`, and are put in again when the line is sent.

A mark means what it stood for in this process, or nothing: the history's file has the text itself, so that no mark of
another process is ever taken for one of ours.
"""

from __future__ import annotations

import re

LARGE = 4_000
LINES = 12
"""What is pasted stands as it is up to so many characters, and so many lines."""

KEPT = 64_000_000
"""Characters of pastes that are kept to be recalled; the newest is kept whatever its size."""

_MARK = re.compile(r"\[pasted [0-9.]+ [kM]?B #\d+\]")


class Pastes:
    """The large pastes of the line that is being written."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._count = 0

    def folded(self, text: str) -> str:
        """What is put into the input for a text that was pasted."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= LARGE and text.count("\n") < LINES:
            return text
        self._count += 1
        mark = f"[pasted {_size(len(text.encode('utf-8', 'replace')))} #{self._count}]"
        self._texts[mark] = text
        return mark

    def whole(self, line: str) -> str:
        """The line with what was pasted."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), line)

    def lost(self, line: str) -> str | None:
        """A mark of the line whose paste was dropped."""
        return next((mark for mark in _MARK.findall(line) if mark in self._dropped), None)

    def clear(self) -> None:
        """The line is sent; it may be recalled, so its pastes are kept, but for the oldest where they are too long."""
        size = sum(map(len, self._texts.values()))
        while size > KEPT and len(self._texts) > 1:
            mark = next(iter(self._texts))
            size -= len(self._texts.pop(mark))
            self._dropped.add(mark)


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f} MB"
    return f"{count / 1_000:.1f} kB" if count >= 1_000 else f"{count} B"
