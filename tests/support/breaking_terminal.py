"""Model of a terminal whose size changes, as tmux 3.3 does it: rows that are too long are wrapped again.

Like `terminal_model`, it knows the sequences that we send, and fails on any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from callboard.cli.render.markdown.rows import CLEAR_BELOW
from support.terminal_model import columns_of

_TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1bD|\x18|\r|\n|\x08|[^\x00-\x1f]")
_PART = re.compile(r"(?:\x1b\[[0-9;]*m|[^\x1b\r\n])+\r?|\x1b\[[?0-9;]*[A-Za-z]|\x1bD|\r|\n")


@dataclass
class _Row:
    """`cells`: what was ever written to it, wiped or not; the second one of a wide letter is empty."""

    cells: list[str] = field(default_factory=list)
    goes_on: bool = False


class BreakingTerminal:
    """Columns by rows. `_rows` are those of the scrollback and of the screen, `_hidden` of them stand above the screen;
    `_scrolled` of these come back when it gets more rows."""

    def __init__(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)
        self._rows = [_Row() for _ in range(rows)]
        self._hidden = self._scrolled = 0
        self._x = self._y = 0
        self._breaks = self.cursor_shown = True

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            assert found is not None, text[at : at + 20]
            at = found.end()
            self._act(found)

    def lines(self) -> list[str]:
        """All that stands in the scrollback and on the screen; rows that were broken are put together."""
        lines, begun = [], ""
        for row in self._rows:
            begun += "".join(row.cells)
            if not row.goes_on:
                lines.append(begun.rstrip())
                begun = ""
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def cursor(self) -> tuple[int, int]:
        """Its column and row on the screen."""
        return self._x, self._y

    # --- what is written ------------------------------------------------------------------------------------

    @property
    def _row(self) -> _Row:
        return self._rows[self._hidden + self._y]

    def _act(self, found: re.Match[str]) -> None:
        if found[3]:
            self._command(found[1] + found[3], found[2])
        elif found[0] == "\r":
            self._x = 0
        elif found[0] == "\x08":
            self._x = max(self._x - 1, 0)
        elif found[0] in ("\n", "\x1bD"):
            self._down()
        elif found[0] != "\x18":
            self._put(found[0])

    def _command(self, command: str, numbers: str) -> None:
        last, by = self.size[0] - 1, int(numbers) if numbers.isdecimal() else 1
        match command:
            case "A":
                self._x, self._y = min(self._x, last), max(self._y - by, 0)
            case "C":
                self._x = min(self._x + by, last)
            case "D":
                self._x = max(self._x - by, 0)
            case "K":
                self._wipe_row()
            case "J":
                assert self._x or self._y, "tmux keeps the whole screen in its scrollback"
                self._wipe_row()
                for row in self._rows[self._hidden + self._y + 1 :]:
                    row.cells, row.goes_on = [], False
                self._row.goes_on = False
            case "?h" | "?l" if numbers == "7":
                self._breaks = command == "?h"
            case "?h" | "?l" if numbers == "25":
                self.cursor_shown = command == "?h"
            case "?h" | "?l":
                assert numbers in ("12", "1", "2004", "2026"), numbers
            case _:
                assert command == "m", command

    def _wipe_row(self) -> None:
        if not self._x:
            self._row.cells, self._row.goes_on = [], False
            for row in self._rows[: self._hidden + self._y][-1:]:
                row.goes_on = False
        cells = self._row.cells
        cells[self._x :] = [" "] * (len(cells) - self._x)

    def _put(self, char: str) -> None:
        columns, wide = self.size[0], columns_of(char)
        assert wide, "marks are not known"
        if not self._breaks and wide > 1 and columns - wide < self._x < columns:
            return
        if self._breaks and self._x > columns - wide:
            self._row.goes_on = True
            self._down()
            self._x = 0
        if self._x > columns - wide:
            return
        cells = self._row.cells
        cells += [" "] * (self._x + wide - len(cells))
        cells[self._x : self._x + wide] = [char, *[""] * (wide - 1)]
        self._x = min(self._x + wide, columns - (not self._breaks))

    def _down(self) -> None:
        if self._y == self.size[1] - 1:
            self._rows.append(_Row())
            self._hidden += 1
            self._scrolled += 1
        else:
            self._y += 1

    # --- another size ---------------------------------------------------------------------------------------

    def resize(self, columns: int, rows: int) -> None:
        """First the rows: empty or not, those below the cursor go first. Then the columns."""
        cursor = self._hidden + self._y
        while len(self._rows) - self._hidden > rows and len(self._rows) - 1 > cursor:
            self._rows.pop()
        back = min(self._scrolled, self._hidden + rows - len(self._rows))
        self._hidden, self._scrolled = self._hidden - back, self._scrolled - back
        self._rows += [_Row() for _ in range(self._hidden + rows - len(self._rows))]
        if columns != self.size[0]:
            cursor = self._broken_anew(columns, cursor)
        self.size = (columns, rows)
        self._rows += [_Row() for _ in range(rows - len(self._rows))]
        self._hidden = len(self._rows) - rows
        self._scrolled = min(self._scrolled, self._hidden)
        self._y = cursor - self._hidden
        if self._y < 0:  # its row has been pushed off
            self._x = self._y = 0

    def _broken_anew(self, columns: int, cursor: int) -> int:
        """Breaks all rows for so many columns; the row that the cursor is in then."""
        rows: list[_Row] = []
        at, found, scrolled = 0, 0, self._scrolled
        while at < len(self._rows):
            begin = at
            cells: list[str] = []
            beyond = offset = None
            while True:
                row = self._rows[at]
                if at == cursor:
                    beyond, offset = self._x >= len(row.cells), len(cells) + self._x
                cells += row.cells
                at += 1
                if not row.goes_on or at == len(self._rows):
                    break
            pieces = _pieces(cells, columns)
            if offset is not None:
                place = len(pieces) - 1 if beyond else 0
                while not beyond and offset >= len(pieces[place]):
                    offset -= len(pieces[place])
                    place += 1
                self._x = len(pieces[place]) if beyond else offset
                found = len(rows) + place
            if begin <= scrolled:
                scrolled += len(pieces) - (at - begin)
            rows += [_Row(piece, number < len(pieces) - 1) for number, piece in enumerate(pieces)]
        self._rows, self._scrolled = rows, max(scrolled, 0)
        return found


def _pieces(cells: list[str], columns: int) -> list[list[str]]:
    """The cells in rows of at most so many; a wide letter is not parted."""
    pieces: list[list[str]] = [[]]
    at = 0
    while at < len(cells):
        wide = 2 if cells[at + 1 : at + 2] == [""] else 1
        if len(pieces[-1]) + wide > columns:
            pieces.append([])
        pieces[-1] += cells[at : at + wide]
        at += wide
    return pieces


class Wire:
    """Between a program and its terminal: what the one writes is read by the other when the test wants it."""

    def __init__(self, columns: int, rows: int) -> None:
        self.terminal = BreakingTerminal(columns, rows)
        self.size = self.terminal.size
        self._unread: list[str] = []

    def write(self, text: str) -> None:
        self._unread.append(text)

    def read(self, share: float = 1.0) -> None:
        """The terminal reads so much of what is written: whole writes, and whole rows of those that begin anew."""
        for text in self._unread[:-1] if share < 1 else self._unread:
            self.terminal.write(text)
        rest = self._unread[-1:] if share < 1 else []
        if rest and CLEAR_BELOW in rest[0]:
            parts = _PART.findall(rest[0])
            head = "".join(parts[: int(len(parts) * share)])
            self.terminal.write(head)
            rest = [rest[0][len(head) :]]
        self._unread = rest

    def resize(self, size: tuple[int, int], share: float) -> None:
        """The terminal gets another size when it has read so much; the program is not told yet."""
        self.read(share)
        self.terminal.resize(*size)
        self.read()
