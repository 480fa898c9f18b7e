"""Lines of progress output: the line, its mark and time, and durations as text."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import NamedTuple

from ...protocol.events import Event
from .text import counted, one_line

_DAY = 86_400


class Line(NamedTuple):
    """One line to show, and the house style it is shown in (see `style.paint`)."""

    text: str
    style: str = "dim"


class Pen:
    """Writes lines that begin alike.

    Args:
        mark: what a line begins with; `>` for terminals without the real one.
        whole: no text is cut, however long it makes its line.
    """

    def __init__(self, mark: str = "▸", *, whole: bool = False) -> None:
        self.whole = whole
        self._mark = mark

    def short(self, text: str) -> str:
        """Foreign text as part of a line."""
        return one_line(text, sys.maxsize) if self.whole else one_line(text)

    def line(self, text: str, style: str = "dim") -> Line:
        """A line with the mark."""
        return Line(f"{self._mark} {text}", style)

    def timed(self, event: Event, text: str, style: str = "dim") -> Line:
        """A line with the mark and the time of the event."""
        return self.line(f"{_clock(event.ts)} {text}", style)


def duration(seconds: float) -> str:
    """`40ms`, `1.30s`."""
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.2f}s"


def ago(moment: float) -> str:
    """When that was, in words: `today`, `3 days ago`."""
    days = int((time.time() - moment) // _DAY)
    return "today" if days < 1 else f"{counted(days, 'day')} ago"


def _clock(when: datetime) -> str:
    return when.astimezone().strftime("%H:%M:%S")
