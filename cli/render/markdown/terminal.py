"""Terminal display of a growing answer.

Settled lines are written once and scroll away. The rows of the open block are below them, with the cursor in the first
column of the first one (`rows` explains why). A picture replaces the rows that differ from the previous one, most often
by writing the new letters. No row is wider than the terminal.

- No open row gets into the scrollback. Only the last rows of a block are drawn, few enough to fit even if the terminal
  gets narrower and rewraps them (`bounded`).
- A picture is one write, and terminals with synchronised output (mode 2026) display it at once; others ignore the
  marks. A picture restores colours and wrapping, so an interrupt between two pictures leaves only a hidden cursor,
  which `end` and `clear` restore.
- During a resize nothing is drawn (`CALM`): settled lines would be broken for an outdated width.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
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

if TYPE_CHECKING:
    from .stream import MarkdownStream


RATE = 30.0
"""Maximum pictures a second."""

_MANY = 1_000

CALM = 0.3
"""Seconds without drawing after a resize, because another resize may follow."""

_GIVEN_UP = 100
"""Milliseconds that a terminal gets to accept the restore sequence after an interrupted write."""


class TerminalWriter:
    """Terminal writes that lose no part of the output.

    A terminal may be slow, stopped (Ctrl-S), or switched to non-blocking by another program (`O_NONBLOCK` belongs to
    the terminal, not to a process). A write then accepts a part and fails with EAGAIN, and a Python stream drops the
    rest. So the bytes go to the file descriptor, and the rest waits until the terminal accepts it.

    `ready` reports beforehand whether a write would block. A picture of a growing answer can be skipped. So a stopped
    terminal blocks a run only at the end of the answer, not while its model streams.

    Args:
        stream: terminal.
        restore: sequence that resets the terminal after an interrupted write.
    Attributes:
        error: the first write error, or None; after it nothing is written.
    """

    def __init__(self, stream: TextIO, restore: str = "") -> None:
        self.error: OSError | None = None
        self._stream = stream
        self._restore = restore
        try:
            self._number: int | None = stream.fileno()
        except (AttributeError, OSError, ValueError):  # the stream has no file descriptor
            self._number = None

    def ready(self, wait: float | None = 0) -> bool:
        """Return True if the terminal accepts output within `wait` milliseconds; None waits without limit."""
        if self._number is None:
            return True
        poll = select.poll()
        poll.register(self._number, select.POLLOUT)
        return bool(poll.poll(wait))

    def write(self, text: str) -> None:
        """Write the whole text; blocks until the terminal accepts it. Errors are stored in `error` and not raised."""
        if self.error is not None:
            return
        whole = False
        try:
            self._write(text, lambda: self.ready(None))
            whole = True
        except OSError as error:
            self.error = error
        finally:
            if not whole and self._restore and self.ready(_GIVEN_UP):
                with suppress(OSError):
                    self._write(self._restore, lambda: self.ready(_GIVEN_UP))

    def _write(self, text: str, wait: Callable[[], bool]) -> None:
        if self._number is None:
            self._stream.write(text)
            self._stream.flush()
            return
        view = memoryview(text.encode(getattr(self._stream, "encoding", None) or "utf-8", "replace"))
        flushed = False
        while view:
            try:
                if not flushed:
                    self._stream.flush()  # earlier output of the stream must come first
                    flushed = True
                view = view[os.write(self._number, view) :]
            except BlockingIOError:
                if not wait():
                    raise


class Region:
    """Open rows at the bottom of the screen.

    Args:
        write: writes a text to the terminal completely.
        size: returns its current columns and rows.
        pushes: True for a terminal that scrolls rows off its top when it gets narrower, though there are empty ones at
            its bottom.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], Size], *, pushes: bool = False) -> None:
        self._write = write
        self._size_now = size
        self._above: int | None = 0 if pushes else None  # lower bound of the rows above the open ones
        self._size = size()
        self._rows: list[str] = []

    @property
    def resized(self) -> bool:
        """True if the size of the terminal differs from the drawn one."""
        return self._size_now() != self._size

    def draw(self, settled: list[str], open_lines: list[str]) -> None:
        """Write newly settled lines and draw the open ones below them."""
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
        """Remove the open rows; the cursor is then where they began."""
        self.draw([], [])


def _drawn(old: list[str], new: list[str]) -> str:
    """Return the sequence that replaces old rows.

    The cursor is in the first column of the first row before and after.
    """
    old = old + [""] * (len(new) - len(old))
    last = next((at for at in range(len(new) - 1, -1, -1) if old[at] != new[at]), -1) + 1
    return NO_BREAKS + DOWN * (last - 1) + redrawn(old[:last], new[:last], 0) + BREAKS if last else ""


# --- answers ------------------------------------------------------------------------------------------------


class LiveText:
    """Answer on its way to a terminal: `add` accepts its pieces, `draw` displays them.

    `add` may run in another thread than `draw`. `above` may be called from any thread.

    Args:
        stream: terminal.
        begin: returns the renderer of an answer for that many columns.
        environ: environment variables that identify the terminal.
        redraws: False if the terminal can't be redrawn: lines are written once they are complete.
        size: returns its columns and rows.
        clock: monotonic seconds.
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
        self._arriving = threading.Lock()  # separate lock: `add` must not wait for a slow terminal

    def add(self, text: str) -> None:
        """Append a piece to the answer; begin one if there is none."""
        if self._markdown is None:
            self._markdown = self._begin(self._size()[0])
        with self._arriving:
            self._coming.append(text)

    @property
    def under_way(self) -> bool:
        """True between the first piece of an answer and its end."""
        return self._markdown is not None

    @property
    def broken(self) -> bool:
        """True if a part of the output could not be written."""
        return self._writer.error is not None

    @property
    def wants_drawing(self) -> bool:
        """True if the screen is outdated."""
        return self._markdown is not None and not self._paused and (bool(self._coming) or self._region.resized)

    @property
    def wait(self) -> float:
        """Seconds until the next picture may be drawn."""
        return max(0.0, self._drawn + 1 / RATE - self._clock(), self._calm - self._clock())

    def draw(self) -> None:
        """Draw the text that arrived since the last picture.

        While the terminal accepts no output or has just been resized, the text waits for a later picture.
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
        """Return True if the size of the terminal has been stable for `CALM` seconds."""
        size, now = self._size(), self._clock()
        if size != self._seen:
            self._seen, self._calm = size, now + CALM
        return now >= self._calm

    def end(self) -> None:
        """Settle the whole answer, with the cursor on a line of its own."""
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
        """Clear the open block for the `with` block; text that arrives meanwhile is drawn after it."""
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
                        self._coming.append("")  # otherwise nothing redraws the open block

    def above(self, text: str) -> None:
        """Write foreign lines above the open block. Thread-safe."""
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
    """Return the columns and rows of the terminal behind a stream; 80 and 24 if they are unknown."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    return columns or 80, rows or 24


def pushes(environ: Mapping[str, str]) -> bool:
    """Return True if the terminal scrolls rows off its top when it gets narrower, though there are empty ones below."""
    return bool(environ.get("TMUX"))


class StderrAboveAnswer(io.StringIO):
    """Replacement for stderr while an answer is drawn: complete lines appear above the open block."""

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
        """Return the incomplete last line and forget it."""
        rest, self._line = self._line, ""
        return rest


@contextmanager
def stderr_above(live: LiveText) -> Iterator[None]:
    """Redirect stderr, if it is a terminal, to lines above the open block."""
    real = sys.stderr
    if not real.isatty():
        yield
        return
    above = StderrAboveAnswer(real, live)
    try:
        with redirect_stderr(above):
            yield
    finally:
        if rest := above.rest():
            real.write(rest)
