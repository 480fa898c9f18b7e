"""Streaming Markdown: text in, lines out.

    stream = MarkdownStream(80, theme)
    drawn = stream.feed("# Hello\\n\\nThis is **bo")
    drawn.settled   # lines that never change again: write each once, in order
    drawn.open      # lines of the open block: draw them below, and replace them after the next `feed`
    stream.resize(40)
    drawn = stream.end()   # the rest is settled, nothing is open

Lines are ANSI text without line breaks. They are at most `width` columns wide, except code (unless `wrap_code`) and
text that is not wrapped. The settled lines depend only on the text, not on how it was split into pieces. Settled text
is discarded, so the total time is linear in the length of the text; `open` is painted only when it is read. Control
characters are escaped here (see `render.text`): callers pass model output unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..text import safe
from .blocks import LONG, STEP, Blocks
from .paint import Painter
from .theme import Theme

_MARKS = re.compile(r"[ \t]*(?:(?:[-=*_#`~>+|:]+|\d{1,9}[.)]?|\[[ xX]?|<)[ \t]*)+\Z")
"""Matches a line that holds only the start of a mark. Its meaning is still unknown, so it is not drawn."""

_SHOWN = 4_096
"""Characters at the end of an incomplete line, and of open lines, that are drawn."""


class DrawnText:
    """Result of feeding a piece of text.

    Attributes:
        settled: lines that are final.
        open: lines of the growing block as they look now; valid until the next piece.
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
    """Renderer of one growing Markdown text.

    Args:
        width: columns of the terminal.
        theme: colours.
        wrap: column at which text is broken: 0 for the width of the terminal, another number for at most that many
            columns, None for nowhere, which leaves wrapping to the terminal.
        wrap_code: True breaks code where text is broken.
        colour: False prints the text as it was written, with control characters escaped and otherwise unchanged.
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

    def feed(self, text: str) -> DrawnText:
        """Parse the next piece of the text; return the lines that it settled, and the open block."""
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
        return DrawnText(self._taken(), self._open)

    def resize(self, width: int) -> None:
        """Set the width of the terminal. Settled lines do not change."""
        self._painter.width = max(width, 1)

    def end(self) -> DrawnText:
        """Settle the remaining text at its end."""
        if self._tail:
            self._line("".join(self._tail))
            self._tail, self._size = [], 0
        self._blocks.end()
        return DrawnText(self._taken())

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
        """Parse a long line as far as possible and return the rest."""
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
        """Return the size of the next piece of the line, or a larger number than its length if it must wait."""
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
