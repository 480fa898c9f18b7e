"""Where a text that is too long for one chunk is cut.

Filling chunks to the brim moves every later cut as soon as a word is put in at the top, and all of them
have to be embedded again. So a cut does not depend on how full the chunk is, but on what is written there: of the
strongest places in the last part of the room (paragraphs before sentences before words), the one whose next few
characters have the smallest checksum is taken. Two versions of a text, whatever came before, agree on such a
place sooner or later, and from there on all their chunks are the same.

A chunk begins with the end of the one before it (the overlap), from the start of a sentence or word. The overlap is
within the size, never beyond it, and doesn't move the cuts.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_SEEN = 24
"""Characters after a place that decide whether it is cut there."""

_LINE = re.compile(r"\n")
_WORD = re.compile(r"(\s)(?=\S)")
_SENTENCE = re.compile(r"(\n|[.!?]\s+|[。！？])(?=\S)")


class Piece(NamedTuple):
    """A part of a text.

    Attributes:
        start, end: where it is.
        heading: what it stands under.
        before: repeated before it, such as a table's first row.
        whole: it is complete, so that its neighbour may be joined to it.
    """

    start: int
    end: int
    heading: tuple[str, ...] = ()
    before: str = ""
    whole: bool = True


class Level(NamedTuple):
    """Places of one strength: after group 1 of `pattern`, or at sorted `places`.

    A chunk that is cut at one is at least `least` of its room full: rather a short one that ends with a section
    than a long one that ends with a word.
    """

    least: float
    pattern: re.Pattern[str] | None = None
    places: Sequence[int] = ()

    def between(self, text: str, start: int, end: int) -> Iterable[int]:
        """The places after `start`, up to `end`."""
        if self.pattern is None:
            return self.places[bisect_right(self.places, start) : bisect_right(self.places, end)]
        found = (match.end(1) for match in self.pattern.finditer(text, start, end + 1))  # one more, to look ahead at
        return [place for place in found if start < place <= end]


class Cutter:
    """Cuts one text.

    Args:
        text: all of it.
        size: characters of a chunk at most.
        overlap: characters of the chunk before that a chunk begins with, at most; less than `size`.
    """

    def __init__(self, text: str, size: int, overlap: int) -> None:
        self.text = text
        self.room = size
        self._overlap = overlap

    def fits(self, start: int, end: int, before: str = "") -> bool:
        """Whether that part is no longer than a chunk may be."""
        return end - start + len(before) <= self.room

    def cut(self, piece: Piece, levels: Sequence[Level], *, by_lines: bool = False) -> Iterator[Piece]:
        """The piece in chunks. They overlap, `by_lines` by whole lines only; without the overlaps they are it."""
        if self.fits(piece.start, piece.end, piece.before):
            yield piece
            return
        position = piece.start
        while position < piece.end:
            limit = min(piece.end, position + self.room - self._overlap)
            end = piece.end if limit == piece.end else self._best(position, limit, piece.end, levels)
            yield piece._replace(start=self._overlapping(position, piece.start, by_lines), end=end, whole=False)
            position = end

    def packed(self, pieces: Iterable[Piece], heading: tuple[str, ...]) -> Iterator[Piece]:
        """The pieces, whole neighbours joined as far as they fit together; what is joined stands under `heading`."""
        waiting: Piece | None = None
        for piece in pieces:
            if waiting is None:
                waiting = piece
            elif waiting.whole and piece.whole and self.fits(waiting.start, piece.end, waiting.before):
                waiting = waiting._replace(end=piece.end, heading=heading)
            else:
                yield waiting
                waiting = piece
        if waiting is not None:
            yield waiting

    def _best(self, start: int, limit: int, end: int, levels: Sequence[Level]) -> int:
        """Where to cut the part after `start`, at `limit` at the latest; nothing after `end` has a say in it."""

        def checksum(place: int) -> int:
            return zlib.crc32(self.text[place : min(end, place + _SEEN)].encode(errors="surrogatepass"))

        for level in levels:
            least = start + int((limit - start) * level.least)
            places = list(level.between(self.text, least, limit))
            if places:
                return min(places, key=checksum)
        return limit

    def _overlapping(self, position: int, first: int, by_lines: bool) -> int:
        """Where a chunk begins whose own text begins at `position`, the whole piece beginning at `first`."""
        if position == first or not self._overlap:
            return position
        start = max(first, position - self._overlap)
        for pattern in (_LINE,) if by_lines else (_SENTENCE, _WORD):
            match = pattern.search(self.text, max(first, start - 1), position)
            if match is not None and start <= match.end() < position:
                return match.end()
        return position if by_lines else start


class LineIndex:
    """Numbers of lines by positions in a text."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def of(self, start: int, end: int) -> tuple[int, int]:
        """First and last line of a part that is not empty, counted from 1."""
        return bisect_left(self._ends, start) + 1, bisect_left(self._ends, end - 1) + 1


PARAGRAPHS = Level(0.3, re.compile(r"(\n[ \t]*\n)"))
ITEMS = Level(0.4, re.compile(r"(\n)(?=[ \t]*(?:[-*+•]|\d+[.)])[ \t])"))
SENTENCES = Level(0.4, re.compile(r"""([.!?…]["'”’»)\]]*\s+|[。！？])"""))
LINES = Level(0.5, re.compile(r"(\n)"))
CLAUSES = Level(0.5, re.compile(r"([,;:]\s+|[、，；：])"))
WORDS = Level(0.5, re.compile(r"(\s+)"))

LEVELS = (PARAGRAPHS, ITEMS, SENTENCES, LINES, CLAUSES, WORDS)
