"""Progress of a batch: a bar on a terminal, otherwise a line per finished task.

▸ [=====>              ] 12 of 40 tasks, 1 failed, 5 under way, about 3m left
▸ 13 of 40: task 'bicycles' is done in 2.10s
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, TextIO

import trio

from ...actors.io.lines import line_writer
from .narration import duration
from .progress import ProgressDisplay, mark_for
from .text import colours, one_line, paint, redrawable, safe, with_node

if TYPE_CHECKING:
    from ...actors.runs.batch.batch import Ended
    from ...actors.runs.batch.tasks import BatchTask

_TICK = 0.1
_WIDTH = 20
_LONGEST = 160
_PATIENCE = 2.0
"""Seconds that a slow reader gets at the end to consume buffered output."""

_CLEAR = "\r\x1b[2K"


class BatchProgress(ProgressDisplay):
    """Task counters without output (`-q`). Events are not narrated, because a batch has many runs.

    Attributes:
        total: number of tasks.
        earlier: number of tasks that an earlier call completed.
    """

    def __init__(self) -> None:
        self.earlier = 0
        self.total = 0
        self._ended = 0
        self._failed = 0
        self._running = 0
        self._since = monotonic()

    @property
    def done(self) -> int:
        """Number of completed tasks, including earlier calls."""
        return self.earlier + self._ended - self._failed

    @property
    def remaining(self) -> int:
        """Number of tasks that have neither completed nor failed."""
        return self.total - self.earlier - self._ended

    def begin(self, total: int, earlier: int) -> None:
        """Set the number of tasks and how many are already completed."""
        self.total, self.earlier = total, earlier
        self._since = monotonic()

    def began(self, task: BatchTask) -> None:  # noqa: ARG002 - they are counted
        self._running += 1

    def ended(self, ended: Ended) -> None:
        self._running -= 1
        self._ended += 1
        self._failed += ended.outcome.status == "failed"


class BatchLines(BatchProgress):
    """Progress display that prints a line per finished task."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._writer = line_writer(stream)
        self._mark = mark_for(stream)
        self._colours = colours(stream)

    def ended(self, ended: Ended) -> None:
        super().ended(ended)
        if line := self._end_line(ended):
            self._show(line, "dim" if ended.outcome.error is None else "error")

    def note(self, text: str) -> None:
        self._show(safe(text), "warning")

    def _show(self, line: str, style: str) -> None:
        self._writer.put(self._painted(f"{self._mark} {line}", style) + "\n")

    def _painted(self, text: str, style: str) -> str:
        return paint(text, style) if self._colours else text

    def _end_line(self, ended: Ended) -> str:
        what = f"{self.earlier + self._ended:,} of {self.total:,}: task '{one_line(ended.task.id, 40)}'"
        error = ended.outcome.error
        if error is None:
            return f"{what} is done in {duration(ended.seconds)}"
        return f"{what} failed: {one_line(with_node(error.message, error.node), _LONGEST)}"

    def __exit__(self, *_exc: object) -> None:
        with suppress(OSError):  # a closed pipe ends the progress output, not the batch
            self._writer.finish(timeout=_PATIENCE)


class BatchBar(BatchLines):
    """Progress bar; only failed tasks have lines, above the bar."""

    def ended(self, ended: Ended) -> None:
        super().ended(ended)
        self._draw()

    def _end_line(self, ended: Ended) -> str:
        return super()._end_line(ended) if ended.outcome.error is not None else ""

    def _show(self, line: str, style: str) -> None:
        self._writer.put(_CLEAR)
        super()._show(line, style)

    def __exit__(self, *_exc: object) -> None:
        self._writer.put(_CLEAR)
        super().__exit__()

    async def animate(self) -> None:
        while True:
            await trio.sleep(_TICK)
            self._draw()

    def _draw(self) -> None:
        if self.total:
            self._writer.put(_CLEAR + self._painted(f"{self._mark} {self.picture()}", "dim"))

    def picture(self) -> str:
        """Return the bar with its counters, or only the counters if the terminal is too narrow for both."""
        full = _WIDTH * (self.earlier + self._ended) // self.total
        bar = f"[{'=' * full + '>' * (full < _WIDTH):<{_WIDTH}}]"
        told, room = self._counters(), _width(self._stream) - len(f"{self._mark} ") - 1
        return f"{bar} {told}" if len(f"{bar} {told}") <= room else told[:room]

    def _counters(self) -> str:
        over = self.earlier + self._ended
        parts = [f"{over:,} of {self.total:,} tasks"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._running:
            parts.append(f"{self._running} under way")
        if self._ended and over < self.total:
            # Running tasks are half done on average.
            half = self._running / 2
            left = (monotonic() - self._since) * (self.total - over - half) / (self._ended + half)
            parts.append(f"about {roughly(left)} left")
        return ", ".join(parts)


def roughly(seconds: float) -> str:
    """Format a duration in one or two units, rounded up: `40s`, `3m`, `2h 10m`."""
    if seconds < 60:
        return f"{math.ceil(seconds)}s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def _width(stream: TextIO) -> int:
    """Return the columns of the terminal. A bar that wraps could not be redrawn."""
    with suppress(ValueError):
        if (said := int(os.environ.get("COLUMNS", ""))) > 0:
            return said
    with suppress(OSError, ValueError):
        if (found := os.get_terminal_size(stream.fileno()).columns) > 0:
            return found
    return 80


def choose_for_batch(stream: TextIO, *, quiet: bool) -> BatchProgress:
    """Return the progress display for the stream: a bar if it can be redrawn, else lines; with `quiet`, none."""
    if quiet:
        return BatchProgress()
    return BatchBar(stream) if redrawable(stream) else BatchLines(stream)
