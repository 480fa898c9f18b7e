"""A small terminal: what a program has written, as screen and scrollback. It knows what we send, and fails on else."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1bD|\x1b\]8;;[^\x1b]*\x1b\\|\r|\n|[^\x1b\r\n]", re.DOTALL)


def columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class SmallTerminal:
    """Columns by rows; `history` is what has scrolled off the top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)
        self.screen: list[list[str]] = [[]]
        self.history: list[list[str]] = []
        self.row = self.column = 0
        self.breaks = self.cursor_shown = True
        self.coloured = False
        self.written = 0

    def write(self, text: str) -> None:
        at = 0
        self.written += len(text.encode())
        while at < len(text):
            found = _TOKEN.match(text, at)
            assert found is not None, text[at : at + 20]
            at = found.end()
            self._act(found)

    def _act(self, found: re.Match[str]) -> None:
        if found[3]:
            self._command(found[1], found[2], found[3])
        elif found[0] == "\r":
            self.column = 0
        elif found[0] in ("\n", "\x1bD"):
            self._down()
        elif len(found[0]) == 1:
            self._put(found[0])

    def _command(self, private: str, number: str, letter: str) -> None:
        match private, letter:
            case "", "A":
                assert int(number) <= self.row, "up beyond the screen"
                self.row -= int(number)
                self.column = min(self.column, self.size[0] - 1)
            case "", "C":
                self.column = min(self.column + int(number), self.size[0] - 1)
            case "", "J":
                del self.screen[self.row + 1 :]
                del self.screen[self.row][self._at() :]
            case "", "K":
                del self.screen[self.row][self._at() :]
            case "", "m":
                self.coloured = number not in ("", "0")
            case "?", "h" | "l":
                assert number in ("7", "25", "2026")
                if number == "7":
                    self.breaks = letter == "h"
                elif number == "25":
                    self.cursor_shown = letter == "h"
            case _:
                raise AssertionError(f"unknown: {private}{number}{letter}")

    def _at(self) -> int:
        """The cell of the cursor; a cursor behind a full row stands on its last cell."""
        return min(self.column, self.size[0] - 1)

    def _put(self, char: str) -> None:
        wide = columns_of(char)
        row = self.screen[self.row]
        if not wide:
            if row and self.column:
                row[min(self.column, len(row)) - 1] += char
            return
        if self.column + wide > self.size[0]:
            if self.breaks:
                self.column = 0
                self._down()
                row = self.screen[self.row]
            else:
                self.column = self.size[0] - wide
        row += [" "] * (self.column - len(row))
        row[self.column : self.column + wide] = [char, *[""] * (wide - 1)]
        self.column += wide

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.screen):
            self.screen.append([])
        while len(self.screen) > self.size[1]:
            self.history.append(self.screen.pop(0))
            self.row -= 1

    def lines(self) -> list[str]:
        """All that was ever written and is not wiped away."""
        lines = ["".join(row).rstrip() for row in [*self.history, *self.screen]]
        while lines and not lines[-1]:
            lines.pop()
        return lines
