"""Writes a growing answer to a terminal.

Settled lines are written once and scroll away. The rows of the open block stand below them, the cursor at their end; a
picture replaces the rows that differ from the one before, most often by writing the letters that have come. No row is
wider than the terminal, and while rows are written it breaks none itself: so it is known how far up they begin.

- Nothing of an open block gets into the scrollback: of its rows the last ones are drawn, so many that they have room
  also where the terminal gets narrower and breaks them (`bounded`).
- A picture is one write, and terminals that know synchronised output (mode 2026) show it at once; others ignore the
  marks. It leaves colours and line breaking as they were, so an interrupt between two pictures leaves nothing behind.
- A terminal that gets narrower breaks rows (xterm, screen and Linux's console cut them); counted are the rows as they
  are then. While its size changes nothing is drawn: tmux breaks its rows at once, and tells the new size up to a
  quarter of a second later (`CALM`).
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
from typing import TYPE_CHECKING, TextIO

from .cells import fitting, width
from .colours import END
from .writer import TerminalWriter

if TYPE_CHECKING:
    from .stream import MarkdownStream

RATE = 30.0
"""Pictures a second, at most."""

CALM = 0.3
"""Seconds for which nothing is drawn after the terminal has got another size: it may be on its way to the next one."""

_NARROW = 40
"""Columns to which a terminal may get narrower, or to half of what it has, and all open rows still have room."""

_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m|\x1b\]8;;[!-~]*\x1b\\)")
CLEAR_REST = "\x1b[K"
CLEAR_BELOW = f"{CLEAR_REST}\x1b[1C\x1b[J\r"
"""From the first column on. Not in one go: what that wipes from the top of the screen, tmux keeps in its scrollback."""
BEGIN, DONE = "\x1b[?2026h", "\x1b[?2026l"
NO_BREAKS, BREAKS = "\x1b[?7l", "\x1b[?7h"
RESTORE = "\x18" + BREAKS + DONE + END
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
        rows = bounded([row for line in open_lines for row in rows_of(line, size[0])], size)
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
            self._write(_up(self._height(self._size_now()[0]) - 1) + "\r" + CLEAR_BELOW)
            self._rows = []

    def _height(self, columns: int) -> int:
        """How many rows the open ones take on the screen as it is now."""
        if not self._reflows or columns >= self._size[0]:
            return len(self._rows)
        return sum(len(rows_of(row, columns)) for row in self._rows)

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
            return NO_BREAKS + new[kept][len(old[kept]) :] + BREAKS
        anew = len(old) > len(new) or any(shown_width(line) > self._size[0] for line in settled[kept:])
        begin = ""
        if kept < len(old):
            begin = _up(len(old) - 1 - kept) + "\r" + (CLEAR_BELOW if anew else "")
        elif old:
            begin = "\r\n"
        lines = [self._over(line) if at < len(old) and not anew else line for at, line in enumerate(new)]
        if kept < len(old) and not anew:
            columns, lines[kept] = rest_of(old[kept], lines[kept])
            begin += f"\x1b[{columns}C" if columns else ""
        first = max(kept, len(settled))
        final = "".join(line + "\r\n" for line in lines[kept : len(settled)])
        open_ = NO_BREAKS + "\r\n".join(lines[first:]) + BREAKS if first < len(lines) else ""
        picture = begin + final + open_
        return picture if len(new) - kept == 1 and not anew else BEGIN + picture + DONE

    def _over(self, line: str) -> str:
        """The line, and what takes the rest of the one away that stands there."""
        return line + CLEAR_REST if shown_width(line) < self._size[0] else line


def narrower(columns: int) -> int:
    """The columns that a terminal may come to have, which open rows are ready for."""
    return min(_NARROW, -(-columns // 2))


def bounded(rows: list[str], size: Size, room: int | None = None) -> list[str]:
    """The last of the open rows: a third of the terminal at most, and two thirds once it is `narrower`.

    Args:
        room: how many they may be then, where that is less.
    """
    columns, high = size
    room = max(high * 2 // 3, 1) if room is None else min(room, high * 2 // 3)
    narrow = narrower(columns)
    kept = 0
    for row in reversed(rows[-max(high // 3, 1) :]):
        room -= len(rows_of(row, narrow))
        if room < 0 and kept:
            break
        kept += 1
    return rows[len(rows) - kept :]


def rest_of(old: str, new: str) -> tuple[int, str]:
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
        self._writer = TerminalWriter(stream, RESTORE if redraws else "")
        self._region = Region(self._writer.write, self._size, reflows=reflows(environ))
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
