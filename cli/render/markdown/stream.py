"""Markdown that grows: text in, lines out.

    stream = MarkdownStream(80, theme)
    drawn = stream.feed("# Hello\\n\\nThis is **bo")
    drawn.settled   # lines that never change again: write each once, in order
    drawn.open      # lines that stand below them until the next `feed`: draw them, and draw them anew then
    stream.resize(40)
    drawn = stream.end()   # the rest is settled, nothing is open

Lines are ANSI text without line breaks. They are at most `width` columns wide, except code (unless `wrap_code`) and
text that is not wrapped. What is settled depends on the text alone, not on the pieces it came in. All that was
settled is forgotten, so the time for a text grows with its length; `open` is painted only if it is looked at.

Control characters are made harmless here (see `render.text`): callers hand in what a model said.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..text import safe
from .blocks import LONG, STEP, Blocks
from .paint import Painter
from .theme import Theme

_MARKS = re.compile(r"[ \t]*(?:(?:[-=*_#`~>+|:]+|\d{1,9}[.)]?|\[[ xX]?|<)[ \t]*)+\Z")
"""A line that has only the begin of a mark: what it will be is not known yet, so it is not drawn."""

_SHOWN = 4_096
"""Characters of a line that is not complete, and of lines that are open, which are drawn; those at its end."""


class Drawn:
    """What a piece of text has come to.

    Attributes:
        settled: lines that are final.
        open: the lines of the block that is still growing, as they look now; valid until the next piece.
    """

    def __init__(self, settled: list[str], paint_open: Callable[[], list[str]] | None = None) -> None:
        self.settled = settled
        self._paint_open = paint_open
        self._open: list[str] | None = None

    @property
    def open(self) -> list[str]:
        if self._open is None:
            self._open = self._paint_open() if self._paint_open is not None else []
        return self._open


class MarkdownStream:
    """A Markdown text that is rendered while it grows.

    Args:
        width: columns of the terminal.
        theme: colours.
        wrap: where text is broken: 0 for the width of the terminal, another number for at most that many columns, None
            for nowhere, which leaves it to the terminal.
        wrap_code: whether code is broken where text is.
        colour: without it, the text is shown as it was written, made harmless and otherwise unchanged.
    """

    def __init__(
        self,
        width: int,
        theme: Theme | None = None,
        *,
        wrap: int | None = 0,
        wrap_code: bool = False,
        colour: bool = True,
    ) -> None:
        self._plain = not colour
        self._painter = Painter(max(width, 1), theme or Theme(), wrap=wrap, wrap_code=wrap_code)
        self._blocks = Blocks(self._painter)
        self._tail: list[str] = []
        self._size = 0
        self._long = False

    def feed(self, text: str) -> Drawn:
        """Takes in the next piece."""
        *lines, rest = text.split("\n")
        for line in lines:
            self._tail.append(line)
            whole = "".join(self._tail)
            self._tail, self._size = [], 0
            self._line(whole)
        if rest:
            self._tail.append(rest)
            self._size += len(rest)
            if self._size >= STEP and not self._plain and not self._blocks.verbatim:
                rest = self._in_pieces("".join(self._tail))
                self._tail, self._size = [rest], len(rest)
        return Drawn(self._taken(), self._open)

    def resize(self, width: int) -> None:
        """The terminal has another width now; what is settled stays as it is."""
        self._painter.width = max(width, 1)

    def end(self) -> Drawn:
        """The text is complete."""
        if self._tail:
            self._line("".join(self._tail))
            self._tail, self._size = [], 0
        self._blocks.end()
        return Drawn(self._taken())

    def _line(self, line: str) -> None:
        line = line.removesuffix("\r")
        if self._plain:
            self._painter.lines += safe(line).split("\n")
        else:
            rest = _harmless(self._in_pieces(line))
            if self._long:
                self._blocks.piece(rest, more=False)
                self._long = False
            else:
                self._blocks.line(rest)

    def _in_pieces(self, line: str) -> str:
        """Reads a long line as far as it can be; what is left."""
        while (size := self._piece(line)) <= len(line):
            end = line.rfind(" ", size // 2, size) + 1 or size
            piece, line = _harmless(line[:end]), line[end:]
            if self._long:
                self._blocks.piece(piece, more=True)
            else:
                self._blocks.line(piece, more=True)
                self._long = True
        return line

    def _piece(self, line: str) -> int:
        """How many characters of the line can be read as a piece of it, if there are so many."""
        if self._long or (len(line) >= STEP and self._blocks.is_text(_harmless(line[:STEP]))):
            return STEP
        return len(line) + 1 if self._blocks.verbatim else LONG

    def _taken(self) -> list[str]:
        taken, self._painter.lines = self._painter.lines, []
        return taken

    def _open(self) -> list[str]:
        tail = "".join(self._tail).removesuffix("\r")[-_SHOWN:]
        if self._plain:
            return [safe(tail).replace("\n", " ")] if tail else []
        painter = self._painter.copy()
        ahead = self._blocks.copy(painter)
        if self._long:
            ahead.piece(_harmless(tail), more=False)
        elif tail and (ahead.verbatim or not _MARKS.match(tail)) and not ahead.waits(tail):
            ahead.line(_harmless(tail))
        ahead.end()
        return painter.lines


def _harmless(text: str) -> str:
    return safe(text).replace("\n", " ")
