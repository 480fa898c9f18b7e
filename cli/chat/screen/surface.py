"""Drawing of the bottom of the terminal: live rows, and prompt_toolkit's layout below them.

    ... settled lines, written once, in the scrollback ...
    | the open block of the answer, calls under way       live rows: drawn here
    > the input line                                      prompt_toolkit

prompt_toolkit tracks its cursor inside its own area. Live rows are above it, and only changed ones are drawn. Settled
lines push everything down: the area is cleared, the lines are written, and the area is drawn again, all in one write
with synchronised output.

- While there are live rows and no key was pressed for a while, the cursor waits hidden in the first column of the first
  live row, as `render.markdown.rows` explains: after any resize the rows are found again. The input line shows a mark
  instead. After a key the cursor moves to the input line, because input methods display their candidates next to it.
  From there the distance to the live rows is computed for the reported size of the terminal. A picture written in the
  very millisecond of a resize may leave a stray row.
- prompt_toolkit gets the rows of the terminal that live rows do not use, so neither scrolls away while it is open.
- prompt_toolkit's area never shrinks by itself; here it does. It is redrawn when one of its rows gets shorter.
- A narrower terminal rewraps rows. The number of live rows is limited so that none is pushed into the scrollback, from
  where it can't be removed.
- After a resize nothing is drawn for a moment (`CALM`), because another may follow: lines would be broken for an
  outdated width.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import BaseStyle

from ...render.markdown.rows import (
    BEGIN,
    BREAKS,
    CLEAR_BELOW,
    DONE,
    DOWN,
    NEWLINE,
    NO_BREAKS,
    RESTORE,
    bounded,
    broken,
    redrawn,
    right,
    room_for,
    rows_of,
    up,
)
from ...render.markdown.terminal import CALM, TerminalWriter, size_of


def reflows(environ: Mapping[str, str]) -> bool:
    """Return True if the terminal rewraps lines when it gets narrower, according to its environment."""
    if environ.get("TMUX"):
        return True
    return not (environ.get("XTERM_VERSION") or environ.get("STY") or environ.get("TERM") == "linux")


class Surface(Renderer):
    """prompt_toolkit renderer with live rows above its area.

    Args:
        reflows: True if the terminal rewraps rows when it gets narrower.
        pushes: True if it then scrolls rows off its top though there are empty ones at its bottom, as tmux does.
        typing: returns True if a key was pressed recently, so that the cursor must be in the input line.
        resized: callback when a new size is detected.
    """

    def __init__(
        self,
        style: BaseStyle,
        output: TerminalOutput,
        *,
        reflows: bool,
        pushes: bool = False,
        typing: Callable[[], bool] = lambda: False,
        resized: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output = output
        self._reflows = reflows
        self._pushes = pushes
        self._typing = typing
        self._resized = resized
        self._clock = clock
        self._calm = float("-inf")
        self._size = output.size
        self._columns = self._size[0]
        self._above = 0  # lower bound of the rows above the live ones
        self._drawn: list[str] = []
        self._wanted: list[str] = []
        self._settled: list[str] = []
        super().__init__(style, output)

    def append_final(self, lines: list[str]) -> None:
        """Add final lines; the next picture writes them."""
        self._settled += lines

    def show(self, lines: list[str]) -> None:
        """Set the live rows; only the last ones that fit are drawn."""
        size = self._output.size
        fitted = [row for line in lines for row in rows_of(line, size[0])]
        area = self._widths(self._last_screen.height) if self._last_screen is not None else [1]
        self._wanted = bounded(fitted, size, room_for(size, self._above if self._pushes else None, area))

    def resized(self) -> float:
        """Record a resize; return the seconds during which nothing is drawn."""
        self._size, self._calm = self._output.size, self._clock() + CALM
        return CALM

    @property
    def calm(self) -> bool:
        """True if the size of the terminal has been stable for a while."""
        if self._output.size != self._size:
            self._resized()
        return self._clock() >= self._calm

    @property
    def _should_wait(self) -> bool:
        return bool(self._wanted) and not self._typing()

    def draw(self, app: Application[Any]) -> None:
        """Update the screen: immediately if only live rows differ, otherwise with prompt_toolkit's next picture."""
        if not self.calm:
            return
        moved = self._settled or len(self._wanted) != len(self._drawn) or self._last_screen is None
        if moved or self._output.waits != self._should_wait or self._output.size[0] != self._columns:
            app.invalidate()
        elif self._wanted != self._drawn:
            with self._output.together():
                self._draw_rows(DOWN * len(self._drawn) if self._output.waits else "\r" + up(self._cursor_pos.y))

    # --- prompt_toolkit's side ------------------------------------------------------------------------------

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """Draw one picture of everything."""
        if not is_done and not self.calm:
            return
        with self._output.together():
            # A resize during the picture invalidates it: the state is restored and the output dropped.
            # Shallow copies suffice: a picture replaces lists and screens instead of changing them.
            before = vars(self).copy(), vars(self._output).copy()
            if self._output.size[0] != self._columns:
                self.erase()
            self._columns = self._output.size[0]
            if self._settled or len(self._wanted) != len(self._drawn) or self._output.waits:
                self._make_room()
            self._lay_out(app, layout, is_done)
            if self._output.waits or self._wanted != self._drawn:
                self._draw_rows("\r" + up(self._cursor_pos.y))
            if not is_done and not self.calm:  # resized meanwhile: discard this picture
                vars(self).update(before[0], _size=self._size, _calm=self._calm)
                vars(self._output).update(before[1], _buffer=[])

    def _lay_out(self, app: Application[Any], layout: Layout, is_done: bool) -> None:
        """Draw prompt_toolkit's area at its cursor."""
        self._shrink(layout)
        self._output.waits = self._should_wait and not is_done
        self._output.shortened = False
        super().render(app, layout, is_done)
        if self._output.shortened and not is_done:
            self._wipe_area()
            super().render(app, layout)
        if self._output.waits:
            self._mark_cursor(app.color_depth)

    def _mark_cursor(self, depth: ColorDepth) -> None:
        """Draw a mark in the input line in place of the hidden cursor."""
        screen, attributes, (x, y) = self._last_screen, self._attrs_for_style, self._cursor_pos
        if screen is None or attributes is None or not screen.show_cursor:
            return
        cell = screen.data_buffer[y][x]
        marked = screen.data_buffer[y][x] = Char(cell.char, f"{cell.style} reverse")
        self._output.set_attributes(attributes[marked.style], depth)
        self._output.write(marked.char)
        self._output.reset_attributes()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Remove live rows and prompt_toolkit's area; the cursor is then where they began."""
        output = self._output
        with output.together():
            self._go_to_top()
            output.write_raw(CLEAR_BELOW)
            output.reset_attributes()
            output.enable_autowrap()
            self._drawn = []
            output.taken = 0
            self.reset(leave_alternate_screen=leave_alternate_screen)

    def clear(self) -> None:
        """Clear the screen and continue at its top."""
        super().clear()
        self._above = 0

    def _go_to_top(self) -> None:
        """Move the cursor to the first live row and end its waiting."""
        self._output.write_raw("\r" if self._output.waits else "\r" + up(self._height_above_cursor()))
        self._output.waits = False

    def _height_above_cursor(self) -> int:
        """Return the rows between the first live row and the cursor, at the terminal's current width."""
        columns = self._output.size[0]
        if not self._reflows or columns >= self._columns:
            return len(self._drawn) + self._cursor_pos.y
        *area, line = self._widths(self._cursor_pos.y + 1) or [0]
        live = sum(len(rows_of(row, columns)) for row in self._drawn)
        # A cursor after the last letter stays after it, in the last row of the rewrapped line.
        in_line = min(self._cursor_pos.x, max(line - 1, 0)) // columns
        return live + sum(broken(width, columns) for width in area) + in_line

    def _widths(self, rows: int) -> list[int]:
        """Return the columns that the first rows of prompt_toolkit's area take, as it writes them."""
        screen, styled = self._last_screen, self._style_string_has_style
        if screen is None or styled is None:
            return []
        return [
            max((at + char.width for at, char in cells.items() if char.char != " " or styled[char.style]), default=0)
            for cells in (screen.data_buffer[row] for row in range(rows))
        ]

    def _shrink(self, layout: Layout) -> None:
        """Clear the area if its next layout has fewer rows."""
        if self._last_screen is None:
            return
        size = self._output.get_size()
        if layout.container.preferred_height(size.columns, size.rows).preferred < self._last_screen.height:
            self._wipe_area()

    def _wipe_area(self) -> None:
        """Clear prompt_toolkit's area; the cursor is then where it begins."""
        self._output.write_raw("\r" + up(self._cursor_pos.y) + "\x1b[0m" + CLEAR_BELOW)
        self._forget()

    def _forget(self) -> None:
        self._cursor_pos = Point(x=0, y=0)
        self._last_screen = None
        self._last_style = None
        self._min_available_height = 0

    # --- live rows ------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Clear everything, write the settled lines, and leave empty rows for the live ones."""
        self._go_to_top()
        final = len(self._settled)
        self._above = min(self._above + final, 1000)
        lines = "".join(line + NEWLINE for line in self._settled)
        self._drawn = [""] * len(self._wanted)
        self._output.write_raw("\x1b[0m" + CLEAR_BELOW + lines + DOWN * len(self._drawn))
        self._settled = []
        self._output.taken = len(self._drawn)
        self._forget()

    def _draw_rows(self, begin: str) -> None:
        """Draw the changed live rows, as many as before. The cursor then waits there or returns to its position.

        Args:
            begin: sequence that moves the cursor to the first column of the row below them.
        """
        output, (x, y) = self._output, self._cursor_pos
        shown = self._last_screen is not None and self._last_screen.show_cursor
        output.hide_cursor()
        output.write_raw(begin + NO_BREAKS + redrawn(self._drawn, self._wanted, 1) + BREAKS + "\x1b[0m")
        if not output.waits:
            output.write_raw(DOWN * (len(self._drawn) + y) + right(x))
            if shown:
                output.show_cursor()
        self._last_style = None
        self._drawn = self._wanted


class TerminalOutput(Vt100_Output):
    """prompt_toolkit output on a terminal; `together` combines writes.

    Args:
        stream: terminal.
        colours: True writes colours.
        draws: False writes nothing, for a terminal without cursor control.

    Attributes:
        taken: rows that prompt_toolkit must not use.
        waits: True while the cursor is hidden above prompt_toolkit's area.
        shortened: True if a row has become shorter.
    """

    def __init__(self, stream: TextIO, *, colours: bool, draws: bool = True) -> None:
        depth = None if colours else ColorDepth.DEPTH_1_BIT
        super().__init__(
            stream, self.get_size, term=os.environ.get("TERM"), default_color_depth=depth, enable_cpr=False
        )
        self.taken = 0
        self.waits = self.shortened = False
        self._stream = stream
        self._holding = 0
        self._draws = draws
        self._writer = TerminalWriter(stream, RESTORE)

    @property
    def broken(self) -> bool:
        """True if writing to the terminal has failed."""
        return self._writer.error is not None

    @property
    def stream(self) -> TextIO:
        return self._stream

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        return size_of(self._stream)

    def get_size(self) -> Size:
        """Return the size that prompt_toolkit may use."""
        columns, rows = self.size
        return Size(rows=max(rows - self.taken, 1), columns=columns)

    def erase_down(self) -> None:
        """Clear from the cursor's row, with the cursor in its first column, to the bottom."""
        self.write_raw(CLEAR_BELOW)

    def erase_end_of_line(self) -> None:
        """Clear the rest of a row. tmux retains blanks there, which become rows of their own when it gets narrower."""
        self.shortened = True
        super().erase_end_of_line()

    def show_cursor(self) -> None:
        """Show the cursor, unless it waits elsewhere."""
        if not self.waits:
            super().show_cursor()

    def flush(self) -> None:
        """Write the buffer, unless writes are being combined."""
        if self._holding or not self._buffer:
            return
        data = "".join(self._buffer)
        self._buffer = []
        if self._draws:
            self._writer.write(data)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine all writes in the block into one synchronised picture."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if not self._holding and self._buffer:
                self._buffer = [BEGIN, *self._buffer, DONE]
                self.flush()
