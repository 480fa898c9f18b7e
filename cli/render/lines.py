"""Building blocks of progress lines: styled line, event-to-line dispatcher, and durations as text."""

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


class StyledLine(NamedTuple):
    """Line of output and the style for `text.paint`."""

    text: str
    style: str = "dim"


class Teller:
    """Dispatcher of events to methods that yield lines: `node.entered` calls `_node_entered`, if that exists.

    Args:
        verbose: include model calls, tool output and nested graphs.
        mark: first character of a line; `>` for terminals without `▸`.
        whole: never cut a text.
        thoughts: report how long models reason.
        view: state of the run.
    """

    def __init__(self, *, verbose: bool, mark: str, whole: bool, thoughts: bool, view: RunView) -> None:
        self.view = view
        self._verbose = verbose
        self._mark = mark
        self._whole = whole
        self._thoughts = thoughts
        self._thinking: dict[tuple[str, str], datetime] = {}  # start of reasoning by request
        self._change = NOTHING
        self._passed_over: dict[str, datetime] = {}  # by model: the end of its silence after a fallback line
        self._waits_told: dict[str, datetime] = {}  # by model: the end of its silence after a waiting line

    def _lines_of(self, event: Event) -> Iterator[StyledLine]:
        tell: Callable[[Any, Event], Iterator[StyledLine]] | None
        tell = getattr(self, f"_{event.data.kind.replace('.', '_')}", None)
        return iter(()) if tell is None else tell(event.data, event)

    def _short(self, text: str) -> str:
        return one_line(text, sys.maxsize) if self._whole else one_line(text)

    def _line(self, text: str, style: str = "dim") -> StyledLine:
        return StyledLine(f"{self._mark} {text}", style)

    def _timed(self, event: Event, text: str, style: str = "dim") -> StyledLine:
        return self._line(f"{event.ts.astimezone().strftime('%H:%M:%S')} {text}", style)


def duration(seconds: float) -> str:
    """Format a duration: `40ms`, `1.30s`."""
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.2f}s"


def ago(moment: float) -> str:
    """Format the age of a Unix timestamp: `today`, `3 days ago`."""
    days = int((time.time() - moment) // _DAY)
    return "today" if days < 1 else f"{counted(days, 'day')} ago"
