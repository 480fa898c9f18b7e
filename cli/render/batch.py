"""How far a batch is: a bar on a terminal, elsewhere a line for each task that has ended.

▸ [=====>              ] 12 of 40 tasks, 1 failed, 5 under way, about 3m left
▸ 13 of 40: task 'bicycles' is done in 2.10s
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Self, TextIO

import trio

from ...protocol.events import Event
from .lines import duration
from .plain import mark_for
from .style import redrawable
from .text import one_line

if TYPE_CHECKING:
    from ...actors.runs.batch.batch import Ended
    from ...actors.runs.batch.tasks import Task

_TICK = 0.1
_WIDTH = 20
_LONGEST = 160
_CLEAR = "\r\x1b[2K"


class BatchProgress:
    """Counts; shows nothing (`-q`). Its events are those of no run: the runs of a batch are not narrated.

    Attributes:
        earlier: the tasks that an earlier call has done.
    """

    def __init__(self) -> None:
        self.earlier = 0
        self._total = 0
        self._ended = 0
        self._failed = 0
        self._running = 0
        self._since = time.monotonic()

    def begin(self, total: int, earlier: int) -> None:
        """There are so many tasks, and some are done already."""
        self._total, self.earlier = total, earlier
        self._since = time.monotonic()

    def began(self, task: Task) -> None:  # noqa: ARG002 - they are counted
        """One is under way."""
        self._running += 1

    def ended(self, ended: Ended) -> None:
        """One is over."""
        self._running -= 1
        self._ended += 1
        self._failed += ended.outcome.status == "failed"
        self._show(self._told(ended))

    def _show(self, line: str) -> None:
        pass

    def _told(self, ended: Ended) -> str:
        what = f"{self.earlier + self._ended} of {self._total}: task '{one_line(ended.task.id, 40)}'"
        error = ended.outcome.error
        if error is None:
            return f"{what} is done in {duration(ended.seconds)}"
        return f"{what} failed: {one_line(error.message, _LONGEST)}"

    # --- as all progress is

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def on_event(self, event: Event) -> None:
        """Says nothing about it."""

    def note(self, text: str) -> None:
        """Shows the line."""
        self._show(text)

    def aside(self) -> AbstractContextManager[None]:
        """Nobody is asked anything."""
        return nullcontext()

    async def animate(self) -> None:
        """Nothing moves."""


class BatchLines(BatchProgress):
    """A line for each task."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._mark = mark_for(stream)

    def _show(self, line: str) -> None:
        self._write(f"{self._mark} {line}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a reader that has gone ends the telling, not the batch
            self._stream.write(text)
            self._stream.flush()


class BatchBar(BatchLines):
    """A bar; of the tasks only the failed have lines, above it."""

    def ended(self, ended: Ended) -> None:
        """One is over."""
        super().ended(ended)
        self._draw()

    def _told(self, ended: Ended) -> str:
        return super()._told(ended) if ended.outcome.error is not None else ""

    def _show(self, line: str) -> None:
        if line:
            self._write(f"{_CLEAR}{self._mark} {line}\n")

    def __exit__(self, *_exc: object) -> None:
        self._write(_CLEAR)

    async def animate(self) -> None:
        """Redraws ten times a second until cancelled."""
        while True:
            await trio.sleep(_TICK)
            self._draw()

    def _draw(self) -> None:
        if self._total:
            self._write(f"{_CLEAR}{self._mark} {self.picture()}")

    def picture(self) -> str:
        """The bar and what stands beside it."""
        over = self.earlier + self._ended
        full = _WIDTH * over // self._total
        bar = "=" * full + ">" * (full < _WIDTH)
        parts = [f"{over} of {self._total} tasks"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._running:
            parts.append(f"{self._running} under way")
        if self._ended and over < self._total:
            left = (time.monotonic() - self._since) / self._ended * (self._total - over)
            parts.append(f"about {duration(left)} left")
        return f"[{bar:<{_WIDTH}}] {', '.join(parts)}"


def choose_for_batch(stream: TextIO, *, quiet: bool) -> BatchProgress:
    """The way that fits the stream."""
    if quiet:
        return BatchProgress()
    return BatchBar(stream) if redrawable(stream) else BatchLines(stream)
