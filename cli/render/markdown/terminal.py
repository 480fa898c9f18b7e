"""Writes a growing answer to a terminal.

Settled lines are written once and scroll away. The rows of the open block stand below them, the cursor at their end; a
picture replaces the rows that differ from the one before, most often by writing the letters that have come. No row is
wider than the terminal, and while rows are written it breaks none itself: so it is known how far up they begin.

- Nothing of an open block gets into the scrollback: no more rows are drawn than a third of what the terminal has, the
  last ones, so that there is room for them when it gets narrower.
- A picture is one write, and terminals that know synchronised output (mode 2026) show it at once; others ignore the
  marks. It leaves colours and line breaking as they were, so an interrupt between two pictures leaves nothing behind.
- A terminal that gets narrower breaks rows (xterm, screen and Linux's console cut them); counted are the rows as they
  are then.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import TextIO

from .cells import fitting, width
from .paint import END
from .stream import MarkdownStream
from .writer import TerminalWriter

RATE = 30.0
"""Pictures a second, at most."""

_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m|\x1b\]8;;[!-~]*\x1b\\)")
_CLEAR_BELOW, _CLEAR_REST = "\x1b[J", "\x1b[K"
_BEGIN, _DONE = "\x1b[?2026h", "\x1b[?2026l"
_NO_BREAKS, _BREAKS = "\x1b[?7l", "\x1b[?7h"
_RESTORE = "\x18" + _BREAKS + _DONE + END
"""Ends half a sequence, and has the terminal be as it was before a picture."""

Size = tuple[int, int]


class Region:
    """The open rows at the bottom of the screen.

    Args:
        write: writes to the terminal, all at once.
        size: its columns and rows, now.
        reflows: whether it breaks rows that are too long after it got narrower.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], Size], *, reflows: bool = True) -> None:
        self._write = write
        self._size_now = size
        self._size = size()
        self._reflows = reflows
        self._rows: list[str] = []

    @property
    def resized(self) -> bool:
        """Whether the terminal has another size than the rows were drawn for."""
        return self._size_now() != self._size

    def draw(self, settled: list[str], open_lines: list[str]) -> None:
        """Writes the lines that are settled now, and draws the open ones below them."""
        size = self._size_now()
        rows = [row for line in open_lines for row in rows_of(line, size[0])][-max(size[1] // 3, 1) :]
        if size[0] != self._size[0]:
            self.clear()
        self._size = size
        picture = self._picture(settled, rows)
        self._rows = rows
        if picture:
            self._write(picture)

    def clear(self) -> None:
        """Takes the open rows off the screen; the cursor stands where they began."""
        if self._rows:
            self._write(_up(self._height(self._size_now()[0]) - 1) + "\r" + _CLEAR_BELOW)
            self._rows = []

    def _height(self, columns: int) -> int:
        """How many rows the open ones take on the screen as it is now."""
        if not self._reflows or columns >= self._size[0]:
            return len(self._rows)
        return sum(max(1, -(-shown_width(row) // columns)) for row in self._rows)

    def _picture(self, settled: list[str], rows: list[str]) -> str:
        """What makes of the rows that are there the lines and rows that should be."""
        old, new = self._rows, settled + rows
        kept = 0
        while kept < min(len(old), len(new)) and old[kept] == new[kept]:
            kept += 1
        if kept == len(old) == len(new):
            return "\r\n" if old and not rows else ""
        if kept == len(new) and rows:  # the cursor goes to the end of the last one
            kept -= 1
        if kept == len(old) - 1 == len(new) - 1 and rows and new[kept].startswith(old[kept]):
            return _NO_BREAKS + new[kept][len(old[kept]) :] + _BREAKS
        anew = len(old) > len(new) or any(shown_width(line) > self._size[0] for line in settled[kept:])
        begin = ""
        if kept < len(old):
            begin = _up(len(old) - 1 - kept) + "\r" + (_CLEAR_BELOW if anew else "")
        elif old:
            begin = "\r\n"
        lines = [self._over(line) if at < len(old) and not anew else line for at, line in enumerate(new)]
        if kept < len(old) and not anew:
            columns, lines[kept] = _rest(old[kept], lines[kept])
            begin += f"\x1b[{columns}C" if columns else ""
        first = max(kept, len(settled))
        final = "".join(line + "\r\n" for line in lines[kept : len(settled)])
        open_ = _NO_BREAKS + "\r\n".join(lines[first:]) + _BREAKS if first < len(lines) else ""
        picture = begin + final + open_
        return picture if len(new) - kept == 1 and not anew else _BEGIN + picture + _DONE

    def _over(self, line: str) -> str:
        """The line, and what takes the rest of the one away that stands there."""
        return line + _CLEAR_REST if shown_width(line) < self._size[0] else line


def _rest(old: str, new: str) -> tuple[int, str]:
    """What of a row differs from the old one: the column where it begins, and the row from there on."""
    differ = (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    alike = next(differ, min(len(old), len(new)))
    escape = new.rfind("\x1b", 0, alike)
    if escape >= 0 and _ESCAPE.match(new[:alike], escape) is None:
        alike = escape
    head = new[:alike]
    following = old[alike : alike + 1] + new[alike : alike + 1]
    if "\x1b]" in head or any(not width(char) for char in following if char != "\x1b"):
        return 0, new
    codes = [part for part in _ESCAPE.findall(head) if part.startswith("\x1b[")]
    code = codes[-1] if codes and codes[-1] != END else ""
    return shown_width(head), code + new[alike:]


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""


def shown_width(line: str) -> int:
    """The columns that a line of ANSI text takes."""
    return width(_ESCAPE.sub("", line))


def rows_of(line: str, columns: int) -> list[str]:
    """A line of ANSI text as rows of at most that many columns, each with its own colours."""
    if shown_width(line) <= columns:
        return [line]
    rows: list[str] = []
    row, left, code = "", columns, ""
    for part in _ESCAPE.split(line):
        if part.startswith("\x1b["):
            code = "" if part == END else part
            row += part
            continue
        if part.startswith("\x1b]"):
            continue  # an address that goes over rows is left out
        while width(part) > left:
            end = fitting(part, left)
            if width(part[:end]) > left and left < columns:
                end = 0
            rows.append(row + part[:end] + (END if code else ""))
            part, row, left = part[end:], code, columns
        row += part
        left -= width(part)
    return [*rows, row]


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
        self._writer = TerminalWriter(stream, _RESTORE if redraws else "")
        self._region = Region(self._writer.write, self._size, reflows=reflows(environ))
        self._markdown: MarkdownStream | None = None
        self._coming: list[str] = []
        self._held: list[str] = []
        self._drawn = -1.0
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
        return max(0.0, self._drawn + 1 / RATE - self._clock())

    def draw(self) -> None:
        """Draws what has come since the last picture; a terminal that takes nothing now gets it with a later one."""
        with self._lock:
            if self._markdown is None or self._paused:
                return
            if not self._writer.ready():
                with self._arriving:
                    self._coming = self._coming or [""]
                return
            self._drawn = self._clock()
            self._markdown.resize(self._size()[0])
            drawn = self._markdown.feed(self._arrived())
            self._show(drawn.settled, drawn.open if self._redraws else [])

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


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal breaks lines anew when it gets narrower, as far as its environment tells."""
    if environ.get("TMUX"):
        return True
    return not (environ.get("XTERM_VERSION") or environ.get("STY") or environ.get("TERM") == "linux")


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
