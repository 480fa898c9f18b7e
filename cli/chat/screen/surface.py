"""Draws the bottom of the terminal: live rows of ours, and below them what prompt_toolkit lays out.

    ... settled lines, written once, in the scrollback ...
    | the open block of the answer, calls under way       live rows: drawn here
    > what is being typed                                 prompt_toolkit

prompt_toolkit keeps the place of its cursor in its own area. From there it is known how far up the live rows begin, so
they are drawn with relative movements, and only those that differ. Lines that settle push all this down: the area is
wiped, the lines are written, and it is drawn again, all in one write, within marks of synchronised output.

- What is laid out has the rows of the terminal that live rows leave, so neither ever scrolls away while it is open.
- prompt_toolkit's area never gets smaller by itself; here it does.
- A terminal that gets narrower breaks rows: counted are the rows as they are then. So few live rows are drawn that this
  pushes none of them into the scrollback, from where nothing takes it back.
- After its size has changed nothing is drawn for a moment (`CALM`), since the next size may be on its way: a row that
  is drawn for one width on a screen that has another is not where it is looked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import BaseStyle

from ...render.markdown.terminal import (
    BEGIN,
    BREAKS,
    CALM,
    CLEAR_BELOW,
    CLEAR_REST,
    DONE,
    NO_BREAKS,
    RESTORE,
    bounded,
    narrower,
    reflows,
    rest_of,
    rows_of,
    shown_width,
    size_of,
)
from ...render.markdown.writer import TerminalWriter

__all__ = ["Surface", "TerminalOutput", "reflows"]


class TerminalOutput(Vt100_Output):
    """The terminal as prompt_toolkit writes to it; writes can be held together.

    Args:
        stream: the terminal.
        colours: whether colours are written.
        draws: whether anything is: not where the terminal has lines alone.

    Attributes:
        taken: rows that are not prompt_toolkit's.
    """

    def __init__(self, stream: TextIO, *, colours: bool, draws: bool = True) -> None:
        depth = None if colours else ColorDepth.DEPTH_1_BIT
        super().__init__(
            stream, self.get_size, term=os.environ.get("TERM"), default_color_depth=depth, enable_cpr=False
        )
        self.taken = 0
        self._stream = stream
        self._holding = 0
        self._draws = draws
        self._writer = TerminalWriter(stream, RESTORE)

    @property
    def broken(self) -> bool:
        """Whether the terminal is gone."""
        return self._writer.error is not None

    @property
    def stream(self) -> TextIO:
        """The terminal itself."""
        return self._stream

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        return size_of(self._stream)

    def get_size(self) -> Size:
        """What prompt_toolkit may use."""
        columns, rows = self.size
        return Size(rows=max(rows - self.taken, 1), columns=columns)

    def erase_down(self) -> None:
        """Wipes the row, where the cursor is in the first column, and all below."""
        self.write_raw(CLEAR_BELOW)

    def flush(self) -> None:
        """Writes what has gathered, unless it is held."""
        if self._holding or not self._buffer:
            return
        data = "".join(self._buffer)
        self._buffer = []
        if self._draws:
            self._writer.write(data)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in the block is one write, and one picture."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if not self._holding and self._buffer:
                self._buffer = [BEGIN, *self._buffer, DONE]
                self.flush()


class Surface(Renderer):
    """See the module.

    Args:
        reflows: whether the terminal breaks rows anew when it gets narrower.
        pushes: whether it then pushes rows off its top though there are empty ones at its bottom, as tmux does.
        resized: called when it turns out to have another size.
    """

    def __init__(
        self,
        style: BaseStyle,
        output: TerminalOutput,
        *,
        reflows: bool,
        pushes: bool = False,
        resized: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output = output
        self._reflows = reflows
        self._pushes = pushes
        self._resized = resized
        self._clock = clock
        self._calm = float("-inf")
        self._size = output.size
        self._columns = self._size[0]
        self._above = 0  # rows that stand above the live ones for sure
        self._drawn: list[str] = []
        self._wanted: list[str] = []
        self._settled: list[str] = []
        super().__init__(style, output)

    def settle(self, lines: list[str]) -> None:
        """These lines are final; the next picture writes them."""
        self._settled += lines

    def show(self, lines: list[str]) -> None:
        """These are the live rows now: the last of them, if there are too many."""
        size = self._output.size
        fitted = [row for line in lines for row in rows_of(line, size[0])]
        self._wanted = bounded(fitted, size, self._room(size))

    def _room(self, size: tuple[int, int]) -> int:
        """How many rows live ones may have once the terminal is narrower."""
        columns, rows = size
        narrow = narrower(columns)
        area = self._widths(self._last_screen.height) if self._last_screen is not None else [1]
        broken = sum(max(1, -(-width // narrow)) for width in area)
        room, grows = rows - broken, -(-columns // narrow)  # rows that one can become
        if self._pushes and self._above < rows and grows > 1:
            room = min(room, (self._above + len(area) - broken) * grows // (grows - 1))
        return room

    def resized(self) -> float:
        """The terminal has another size: nothing is drawn for as many seconds."""
        self._size, self._calm = self._output.size, self._clock() + CALM
        return CALM

    @property
    def calm(self) -> bool:
        """Whether the terminal has had its size for a while."""
        if self._output.size != self._size:
            self._resized()
        return self._clock() >= self._calm

    def draw(self, app: Application[Any]) -> None:
        """Brings the screen up to date, now if only live rows differ, else with the next picture of prompt_toolkit."""
        if not self.calm:
            return
        moved = self._settled or len(self._wanted) != len(self._drawn) or self._last_screen is None
        if moved or self._output.size[0] != self._columns:
            app.invalidate()
        elif self._wanted != self._drawn:
            with self._output.together():
                self._draw_rows()

    # --- prompt_toolkit's side ------------------------------------------------------------------------------

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """One picture of everything."""
        if not is_done and not self.calm:
            return
        with self._output.together():
            if self._output.size[0] != self._columns:
                self.erase()
            self._columns = self._output.size[0]
            if self._settled or len(self._wanted) != len(self._drawn):
                self._lay_rows()
            elif self._wanted != self._drawn:
                self._draw_rows()
            self._shrink(layout)
            super().render(app, layout, is_done)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Takes live rows and prompt_toolkit's area off the screen; the cursor stands where they began."""
        output = self._output
        with output.together():
            output.write_raw("\r" + _up(self._height_above_cursor()) + CLEAR_BELOW)
            output.reset_attributes()
            output.enable_autowrap()
            self._drawn = []
            output.taken = 0
            self.reset(leave_alternate_screen=leave_alternate_screen)

    def clear(self) -> None:
        """Takes all off the screen, and goes on at its top."""
        super().clear()
        self._above = 0

    def _height_above_cursor(self) -> int:
        """How many rows the terminal has between the first live row and the cursor, as it is now."""
        columns = self._output.size[0]
        if not self._reflows or columns >= self._columns:
            return len(self._drawn) + self._cursor_pos.y
        live = sum(len(rows_of(row, columns)) for row in self._drawn)
        area = sum(max(1, -(-width // columns)) for width in self._widths(self._cursor_pos.y))
        return live + area + self._cursor_pos.x // columns

    def _widths(self, rows: int) -> list[int]:
        """The columns that so many rows of prompt_toolkit's area take on the terminal, as it writes them."""
        screen, styled = self._last_screen, self._style_string_has_style
        if screen is None or styled is None:
            return []
        return [
            max((at + char.width for at, char in cells.items() if char.char != " " or styled[char.style]), default=0)
            for cells in (screen.data_buffer[row] for row in range(rows))
        ]

    def _forget(self) -> None:
        """prompt_toolkit's area is wiped, and the cursor stands where it begins."""
        self._cursor_pos = Point(x=0, y=0)
        self._last_screen = None
        self._last_style = None
        self._min_available_height = 0

    def _shrink(self, layout: Layout) -> None:
        """Wipes the area if it would now be laid out with fewer rows."""
        if self._last_screen is None:
            return
        size = self._output.get_size()
        if layout.container.preferred_height(size.columns, size.rows).preferred < self._last_screen.height:
            self._output.write_raw("\r" + _up(self._cursor_pos.y) + "\x1b[0m" + CLEAR_BELOW)
            self._forget()

    # --- live rows ------------------------------------------------------------------------------------------

    def _lay_rows(self) -> None:
        """Writes settled lines and live rows in the place of the live rows that are there; wipes all below."""
        old, lines = self._drawn, self._settled + self._wanted
        kept = 0
        while kept < min(len(old), len(lines)) and old[kept] == lines[kept]:
            kept += 1
        write = self._output.write_raw
        write("\r" + _up(self._cursor_pos.y + len(old) - kept) + "\x1b[0m" + CLEAR_BELOW)
        final = len(self._settled)
        self._above = min(self._above + final, 1000)
        write("".join(line + "\r\n" for line in lines[kept:final]))
        if live := lines[max(kept, final) :]:
            write(NO_BREAKS + "".join(line + "\r\n" for line in live) + BREAKS)
        self._settled, self._drawn = [], self._wanted
        self._output.taken = len(self._drawn)
        self._forget()

    def _draw_rows(self) -> None:
        """Draws the live rows that differ, as many as there were; the cursor is in its place again then."""
        output, below = self._output, self._cursor_pos.y + len(self._drawn)
        shown = self._last_screen is not None and self._last_screen.show_cursor
        output.hide_cursor()
        moves, at = [NO_BREAKS], 0  # rows above the cursor
        for number, (old, new) in enumerate(zip(self._drawn, self._wanted, strict=True)):
            if old == new:
                continue
            up = below - number - at
            column, text = rest_of(old, new)
            moves.append("\r" + (_up(up) if up > 0 else _down(-up)) + (f"\x1b[{column}C" if column else "") + text)
            if shown_width(new) < self._columns:
                moves.append(CLEAR_REST)
            at = below - number
        x = self._cursor_pos.x
        output.write_raw("".join(moves) + BREAKS + "\r" + _down(at) + (f"\x1b[{x}C" if x else ""))
        if shown:
            output.show_cursor()
        self._last_style = None
        output.write_raw("\x1b[0m")
        self._drawn = self._wanted


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""


def _down(rows: int) -> str:
    return f"\x1b[{rows}B" if rows > 0 else ""
