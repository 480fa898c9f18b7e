"""Draws the bottom of the terminal: live rows of ours, and below them what prompt_toolkit lays out.

    ... settled lines, written once, in the scrollback ...
    | the open block of the answer, calls under way       live rows: drawn here
    > what is being typed                                 prompt_toolkit

prompt_toolkit keeps the place of its cursor in its own area. Live rows stand above it, and only those that differ are
drawn. Lines that settle push all this down: the area is wiped, the lines are written, and it is drawn again, all in one
write, within marks of synchronised output.

- While there are live rows and no key has come for a while, the cursor waits in the first column of the first of them,
  hidden, as `render.markdown.rows` explains: whatever the terminal does when its size changes, they are found again.
  A mark stands for it in the input line. After a key it goes there, since input methods show beside it what they offer.
  From there it is counted how far up the live rows begin, on a screen of the size that the terminal tells: a
  picture that is under way in the very millisecond in which that changes may leave one of them behind.
- What is laid out has the rows of the terminal that live rows leave, so neither ever scrolls away while it is open.
- prompt_toolkit's area never gets smaller by itself; here it does. It is drawn anew when a row of it gets shorter.
- A terminal that gets narrower breaks rows. So few live rows are drawn that this pushes none of them into the
  scrollback, from where nothing takes it back.
- After its size has changed nothing is drawn for a moment (`CALM`), since the next size may be on its way: lines would
  be broken for a width that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import BaseStyle

from ...render.markdown.rows import (
    BREAKS,
    CLEAR_BELOW,
    DOWN,
    NEWLINE,
    NO_BREAKS,
    bounded,
    broken,
    redrawn,
    right,
    room_for,
    rows_of,
    up,
)
from ...render.markdown.terminal import CALM
from .output import TerminalOutput


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal breaks lines anew when it gets narrower, as far as its environment tells."""
    if environ.get("TMUX"):
        return True
    return not (environ.get("XTERM_VERSION") or environ.get("STY") or environ.get("TERM") == "linux")


class Surface(Renderer):
    """See the module.

    Args:
        reflows: whether the terminal breaks rows anew when it gets narrower.
        pushes: whether it then pushes rows off its top though there are empty ones at its bottom, as tmux does.
        typing: whether a key came a moment ago, so that the cursor has to stand where keys go.
        resized: called when it turns out to have another size.
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
        area = self._widths(self._last_screen.height) if self._last_screen is not None else [1]
        self._wanted = bounded(fitted, size, room_for(size, self._above if self._pushes else None, area))

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

    @property
    def _should_wait(self) -> bool:
        return bool(self._wanted) and not self._typing()

    def draw(self, app: Application[Any]) -> None:
        """Brings the screen up to date, now if only live rows differ, else with the next picture of prompt_toolkit."""
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
        """One picture of everything."""
        if not is_done and not self.calm:
            return
        with self._output.together():
            before = vars(self).copy(), vars(self._output).copy()
            if self._output.size[0] != self._columns:
                self.erase()
            self._columns = self._output.size[0]
            if self._settled or len(self._wanted) != len(self._drawn) or self._output.waits:
                self._make_room()
            self._lay_out(app, layout, is_done)
            if self._output.waits or self._wanted != self._drawn:
                self._draw_rows("\r" + up(self._cursor_pos.y))
            if not is_done and not self.calm:  # its size has just changed: this picture is none
                vars(self).update(before[0], _size=self._size, _calm=self._calm)
                vars(self._output).update(before[1], _buffer=[])

    def _lay_out(self, app: Application[Any], layout: Layout, is_done: bool) -> None:
        """Draws prompt_toolkit's area, where its cursor is."""
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
        """Draws what stands for the cursor while that waits."""
        screen, attributes, (x, y) = self._last_screen, self._attrs_for_style, self._cursor_pos
        if screen is None or attributes is None or not screen.show_cursor:
            return
        cell = screen.data_buffer[y][x]
        marked = screen.data_buffer[y][x] = Char(cell.char, f"{cell.style} reverse")
        self._output.set_attributes(attributes[marked.style], depth)
        self._output.write(marked.char)
        self._output.reset_attributes()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Takes live rows and prompt_toolkit's area off the screen; the cursor stands where they began."""
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
        """Takes all off the screen, and goes on at its top."""
        super().clear()
        self._above = 0

    def _go_to_top(self) -> None:
        """The cursor goes to where live rows begin, and does not wait there any more."""
        self._output.write_raw("\r" if self._output.waits else "\r" + up(self._height_above_cursor()))
        self._output.waits = False

    def _height_above_cursor(self) -> int:
        """How many rows the terminal has between the first live row and the cursor, as it is now."""
        columns = self._output.size[0]
        if not self._reflows or columns >= self._columns:
            return len(self._drawn) + self._cursor_pos.y
        *area, line = self._widths(self._cursor_pos.y + 1) or [0]
        live = sum(len(rows_of(row, columns)) for row in self._drawn)
        # A cursor behind the last letter stays behind it, in the last row that its row becomes.
        in_line = min(self._cursor_pos.x, max(line - 1, 0)) // columns
        return live + sum(broken(width, columns) for width in area) + in_line

    def _widths(self, rows: int) -> list[int]:
        """The columns that so many rows of prompt_toolkit's area take on the terminal, as it writes them."""
        screen, styled = self._last_screen, self._style_string_has_style
        if screen is None or styled is None:
            return []
        return [
            max((at + char.width for at, char in cells.items() if char.char != " " or styled[char.style]), default=0)
            for cells in (screen.data_buffer[row] for row in range(rows))
        ]

    def _shrink(self, layout: Layout) -> None:
        """Wipes the area if it would now be laid out with fewer rows."""
        if self._last_screen is None:
            return
        size = self._output.get_size()
        if layout.container.preferred_height(size.columns, size.rows).preferred < self._last_screen.height:
            self._wipe_area()

    def _wipe_area(self) -> None:
        """Wipes prompt_toolkit's area; the cursor stands where it begins."""
        self._output.write_raw("\r" + up(self._cursor_pos.y) + "\x1b[0m" + CLEAR_BELOW)
        self._forget()

    def _forget(self) -> None:
        self._cursor_pos = Point(x=0, y=0)
        self._last_screen = None
        self._last_style = None
        self._min_available_height = 0

    # --- live rows ------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Wipes all, writes the settled lines, and leaves rows empty for the live ones."""
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
        """Draws the live rows that differ, as many as there were; the cursor waits there then, or is where it was.

        Args:
            begin: takes the cursor to the first column of the row below them.
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
