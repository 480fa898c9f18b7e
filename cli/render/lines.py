"""Lines of progress output: the line, its mark and time, what writes them, and durations as text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from ...actors.views.activity import NOTHING
from ...actors.views.run_view import RunView
from ...protocol.events import Event
from .text import counted, one_line

_DAY = 86_400


class Line(NamedTuple):
    """One line to show, and the house style it is shown in (see `style.paint`)."""

    text: str
    style: str = "dim"


class Teller:
    """Writes events as lines. The kind `node.entered` is told by the method `_node_entered`, if there is one.

    Args:
        verbose: tell about model calls, the output of tools and nested graphs too.
        mark: what a line begins with; `>` for terminals without the real one.
        whole: no text is cut, however long it makes its line.
        thoughts: tell how long models think.
        view: the state of the run.
    """

    def __init__(self, *, verbose: bool, mark: str, whole: bool, thoughts: bool, view: RunView) -> None:
        self.view = view
        self._verbose = verbose
        self._mark = mark
        self._whole = whole
        self._thoughts = thoughts
        self._thinking: dict[tuple[str, str], datetime] = {}  # requests whose model thinks, since when
        self._change = NOTHING
        self._passed_over: dict[str, datetime] = {}  # of each model, until when it is known that it is
        self._waits_told: dict[str, datetime] = {}  # of each model, until when it is known that requests wait

    def _tell(self, event: Event) -> Iterator[Line]:
        tell: Callable[[Any, Event], Iterator[Line]] | None
        tell = getattr(self, f"_{event.data.kind.replace('.', '_')}", None)
        return iter(()) if tell is None else tell(event.data, event)

    def _short(self, text: str) -> str:
        return one_line(text, sys.maxsize) if self._whole else one_line(text)

    def _line(self, text: str, style: str = "dim") -> Line:
        return Line(f"{self._mark} {text}", style)

    def _timed(self, event: Event, text: str, style: str = "dim") -> Line:
        return self._line(f"{event.ts.astimezone().strftime('%H:%M:%S')} {text}", style)


def duration(seconds: float) -> str:
    """`40ms`, `1.30s`."""
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.2f}s"


def ago(moment: float) -> str:
    """When that was, in words: `today`, `3 days ago`."""
    days = int((time.time() - moment) // _DAY)
    return "today" if days < 1 else f"{counted(days, 'day')} ago"
