"""Line breaking of spans.

Words move to the next line as a whole; a word wider than a line is cut. Between wide characters (Chinese, Japanese) a
line may end anywhere, except before closing punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..text import char_width, fitting, width_of
from .inline import Span

Row = list[Span]

_WORDS = re.compile(r"[ ]+|[^ ]+")
_CLOSING = frozenset("、。，．！？；：）」』】》〉〕”’…ー々,.!?;:)")


def lines_of(spans: Iterable[Span]) -> list[Row]:
    """Split spans at their line breaks."""
    lines: list[Row] = [[]]
    for span in spans:
        first, *others = span.text.split("\n")
        if first:
            lines[-1].append(span._replace(text=first))
        lines += [[span._replace(text=other)] if other else [] for other in others]
    return lines


def wrapped(line: Row, room: int) -> list[Row]:
    """Wrap one line into rows of at most `room` columns; blanks at the end of a row are dropped."""
    if sum(width_of(span.text) for span in line) <= room:
        return [line]
    breaker = _Breaker(max(room, 1))
    for span in line:
        for part in _WORDS.findall(span.text):
            if part[0] == " ":
                breaker.blank(span._replace(text=part))
            else:
                for piece in _pieces(part):
                    breaker.piece(span._replace(text=piece))
                    if not piece.isascii() and char_width(piece[-1]) == 2:
                        breaker.may_break = True
    return breaker.end()


def cut(line: Row, room: int) -> list[Row]:
    """Cut one line into rows of at most `room` columns wherever they are full, as terminals do."""
    rows: list[Row] = [[]]
    left = room
    for span in line:
        text = span.text
        while text:
            if width_of(text) > left and (left <= 0 or width_of(text[: fitting(text, left)]) > left) and rows[-1]:
                rows.append([])
                left = room
                continue
            end = fitting(text, left) if width_of(text) > left else len(text)
            rows[-1].append(span._replace(text=text[:end]))
            left -= width_of(text[:end])
            text = text[end:]
    return rows


def _pieces(word: str) -> Iterator[str]:
    """Yield the pieces of a word between which a row may end: one piece, unless it has wide characters."""
    if word.isascii():
        yield word
        return
    begin = 0
    for at in range(1, len(word)):
        char = word[at]
        if not char_width(char) or char in _CLOSING:
            continue
        if (char_width(char) == 2 or char_width(word[at - 1]) == 2) and word[at - 1] != "\u200d":
            yield word[begin:at]
            begin = at
    yield word[begin:]


class _Breaker:
    """Row builder. Adjacent pieces without a blank between them move together."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._rows: list[Row] = []
        self._row: Row = []
        self._taken = 0
        self._word: Row = []
        self._word_width = 0
        self.may_break = False

    def blank(self, span: Span) -> None:
        self._place()
        if self._taken or not self._rows:
            self._row.append(span)
            self._taken += len(span.text)

    def piece(self, span: Span) -> None:
        if self.may_break and span.text[0] not in _CLOSING:
            self._place()
        self.may_break = False
        self._word.append(span)
        self._word_width += width_of(span.text)

    def _place(self) -> None:
        """Place the completed word in a row."""
        self.may_break = False
        if not self._word:
            return
        if self._taken + self._word_width > self._room and self._taken:
            self._next_row()
        if self._word_width > self._room:
            *full, self._row = cut(self._word, self._room)
            self._rows += full
            self._taken = sum(width_of(span.text) for span in self._row)
        else:
            self._row += self._word
            self._taken += self._word_width
        self._word, self._word_width = [], 0

    def _next_row(self) -> None:
        while self._row and not self._row[-1].text.strip(" "):
            self._row.pop()
        if self._row or not self._rows:
            self._rows.append(self._row)
        self._row, self._taken = [], 0

    def end(self) -> list[Row]:
        self._place()
        if self._taken > self._room or not self._row:
            self._next_row()
            return self._rows or [[]]
        return [*self._rows, self._row]
