"""Writes a growing answer to a terminal.

Settled lines are written once and scroll away. The rows of the open block stand below them, the cursor in the first
column of the first one (`rows` says why); a picture replaces the rows that differ from the one before, most often by
writing the letters that have come. No row is wider than the terminal.

- Nothing of an open block gets into the scrollback: of its rows the last ones are drawn, so many that they have room
  also where the terminal gets narrower and breaks them (`bounded`).
- A picture is one write, and terminals that know synchronised output (mode 2026) show it at once; others ignore the
  marks. It leaves colours and line breaking as they were, so an interrupt between two pictures leaves nothing behind
  but the cursor hidden, which `end` and `clear` show again.
- While its size changes nothing is drawn (`CALM`): lines that settle would be broken for a width that is gone.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, TextIO

from .rows import (
    BEGIN,
    BREAKS,
    CLEAR_BELOW,
    DONE,
    DOWN,
    HIDE,
    NEWLINE,
    NO_BREAKS,
    RESTORE,
    SHOW,
    Size,
    bounded,
    redrawn,
    room_for,
    rows_of,
)
from .writer import TerminalWriter

if TYPE_CHECKING:
    from .stream import MarkdownStream

RATE = 30.0
"""Pictures a second, at most."""

_MANY = 1_000

CALM = 0.3
"""Seconds for which nothing is drawn after the terminal has got another size: it may be on its way to the next one."""


class Region:
    """The open rows at the bottom of the screen.

    Args:
        write: writes to the terminal, all at once.
        size: its columns and rows, now.
        pushes: whether it pushes rows off its top when it gets narrower, though there are empty ones at its bottom.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], Size], *, pushes: bool = False) -> None:
        self._write = write
        self._size_now = size
        self._above: int | None = 0 if pushes else None  # rows that stand above the open ones for sure
        self._size = size()
        self._rows: list[str] = []

    @property
    def resized(self) -> bool:
        """Whether the terminal has another size than the rows were drawn for."""
        return self._size_now() != self._size

    def draw(self, settled: list[str], open_lines: list[str]) -> None:
        """Writes the lines that are settled now, and draws the open ones below them."""
        size = self._size_now()
        if self._above is not None:
            self._above = min(self._above + len(settled), _MANY)
        fitted = [row for line in open_lines for row in rows_of(line, size[0])]
        old, rows = self._rows, bounded(fitted, size, room_for(size, self._above))
        if settled or len(rows) < len(old) or size[0] != self._size[0]:
            picture = "\r" + CLEAR_BELOW if old else ""
            picture += "".join(line + NEWLINE for line in settled) + _drawn([], rows)
        else:
            picture = _drawn(old, rows)
        if bool(old) != bool(rows):
            picture = HIDE + picture if rows else picture + SHOW
        self._rows, self._size = rows, size
        if picture:
            self._write(BEGIN + picture + DONE if DOWN in picture or CLEAR_BELOW in picture else picture)

    def clear(self) -> None:
        """Takes the open rows off the screen; the cursor stands where they began."""
        self.draw([], [])


def _drawn(old: list[str], new: list[str]) -> str:
    """Makes the new rows of the old ones, with the cursor in the first column of the first one, before and after."""
    old = old + [""] * (len(new) - len(old))
    last = next((at for at in range(len(new) - 1, -1, -1) if old[at] != new[at]), -1) + 1
    return NO_BREAKS + DOWN * (last - 1) + redrawn(old[:last], new[:last], 0) + BREAKS if last else ""


# --- answers ------------------------------------------------------------------------------------------------


class LiveText:
    """An answer on its way to a terminal: `add` takes its pieces, `draw` shows where it has got to.

    Args:
        stream: the terminal.
        begin: makes the renderer of an answer, for that many columns.
        environ: tells what the terminal is.
        redraws: whether the terminal can be drawn on; else lines are written once they are complete.
        size: its columns and rows.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        stream: TextIO,
        begin: Callable[[int], MarkdownStream],
        environ: Mapping[str, str],
        *,
        redraws: bool = True,
        size: Callable[[], Size] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._begin = begin
        self._redraws = redraws
        self._size = size or (lambda: size_of(stream))
        self._clock = clock
        self._writer = TerminalWriter(stream, RESTORE if redraws else "")
        self._region = Region(self._writer.write, self._size, pushes=pushes(environ))
        self._markdown: MarkdownStream | None = None
        self._coming: list[str] = []
        self._held: list[str] = []
        self._seen = self._size()
        self._calm = self._drawn = -1.0
        self._paused = 0
        self._lock = threading.RLock()  # a log line may come from any thread (`above`)
        self._arriving = threading.Lock()  # of its own: `add` waits for no terminal

    def add(self, text: str) -> None:
        """The next piece of the answer; begins one, if none is under way."""
        if self._markdown is None:
            self._markdown = self._begin(self._size()[0])
        with self._arriving:
            self._coming.append(text)

    @property
    def under_way(self) -> bool:
        """Whether an answer has begun and not ended."""
        return self._markdown is not None

    @property
    def broken(self) -> bool:
        """Whether a part of what was to be shown could not be written."""
        return self._writer.error is not None

    @property
    def wants_drawing(self) -> bool:
        """Whether the screen differs from what it should show."""
        return self._markdown is not None and not self._paused and (bool(self._coming) or self._region.resized)

    @property
    def wait(self) -> float:
        """Seconds until the next picture may be drawn."""
        return max(0.0, self._drawn + 1 / RATE - self._clock(), self._calm - self._clock())

    def draw(self) -> None:
        """Draws what has come since the last picture; a terminal that takes nothing now gets it with a later one.

        So does one whose size has just changed.
        """
        with self._lock:
            if self._markdown is None or self._paused:
                return
            if not self._settles() or not self._writer.ready():
                with self._arriving:
                    self._coming = self._coming or [""]
                return
            self._drawn = self._clock()
            self._markdown.resize(self._size()[0])
            drawn = self._markdown.feed(self._arrived())
            self._show(drawn.settled, drawn.open if self._redraws else [])

    def _settles(self) -> bool:
        """Whether the terminal has had its size for a while."""
        size, now = self._size(), self._clock()
        if size != self._seen:
            self._seen, self._calm = size, now + CALM
        return now >= self._calm

    def end(self) -> None:
        """The answer is complete: all of it is settled, and the cursor stands on a line of its own."""
        with self._lock:
            if self._markdown is None:
                return
            self._markdown.resize(self._size()[0])
            settled = self._markdown.feed(self._arrived()).settled + self._markdown.end().settled
            self._markdown = None
            if self._paused:
                self._held += settled
            else:
                self._show(settled, [])

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves the screen to others for the length of the `with` block; what comes meanwhile is drawn after it."""
        with self._lock:
            self._paused += 1
            self._region.clear()
        try:
            yield
        finally:
            with self._lock:
                self._paused -= 1
                if not self._paused:
                    held, self._held = self._held, []
                    self._show(held, [])
                    with self._arriving:
                        self._coming.append("")  # else nothing brings the open block back

    def above(self, text: str) -> None:
        """Writes lines of others above the open block."""
        with self._lock:
            self._region.clear()
            self._writer.write(text.replace("\n", "\r\n"))
            self.draw()

    def _arrived(self) -> str:
        with self._arriving:
            coming, self._coming = self._coming, []
        return "".join(coming)

    def _show(self, settled: list[str], open_lines: list[str]) -> None:
        if self._redraws:
            self._region.draw(settled, open_lines)
        elif settled:
            self._writer.write("".join(line + "\n" for line in settled))


def size_of(stream: TextIO) -> Size:
    """The columns and rows of the terminal behind a stream."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    return columns or 80, rows or 24


def pushes(environ: Mapping[str, str]) -> bool:
    """Whether the terminal pushes rows off its top when it gets narrower, though there are empty ones at its bottom."""
    return bool(environ.get("TMUX"))


class Above(io.StringIO):
    """Stands in for stderr while an answer is drawn: lines that are written there appear above the open block."""

    def __init__(self, stream: TextIO, live: LiveText) -> None:
        super().__init__()
        self._stream = stream
        self._live = live
        self._line = ""

    def write(self, text: str) -> int:
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._live.above(lines + "\n")
        return len(text)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def rest(self) -> str:
        """What is no complete line yet."""
        rest, self._line = self._line, ""
        return rest


@contextmanager
def stderr_above(live: LiveText) -> Iterator[None]:
    """Has what is written to stderr, if that is a terminal, appear above the open block."""
    real = sys.stderr
    if not real.isatty():
        yield
        return
    above = Above(real, live)
    try:
        with redirect_stderr(above):
            yield
    finally:
        if rest := above.rest():
            real.write(rest)
