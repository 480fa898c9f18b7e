"""Positions of cuts in a text that is too long for one chunk.

Problem: if chunks are filled to the brim, a word inserted at the top moves every later cut, and all chunks have to be
embedded again. So the position of a cut must not depend on how full the chunk is, but on the text at the position.

The cutter looks at the last part of the available room. It takes the strongest kind of position there: paragraphs
before sentences before words. Of the positions of that kind, it takes the one whose next few characters have the
smallest checksum. Two versions of a text eventually agree on such a position, whatever precedes it. From there on, all
their chunks are the same.

A chunk begins with the end of the previous one (the overlap), from the start of a sentence or word. The overlap counts
towards the size and does not move the cuts.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_SEEN = 24
"""Characters after a position that its checksum covers."""

_LINE = re.compile(r"\n")
_WORD = re.compile(r"(\s)(?=\S)")
_SENTENCE = re.compile(r"(\n|[.!?]\s+|[。！？])(?=\S)")


class TextPiece(NamedTuple):
    """Part of a text.

    Attributes:
        start, end: its positions.
        heading: headings above it.
        before: text repeated before it, such as a table's first row.
        whole: it is complete, so it may be joined with its neighbour.
    """

    start: int
    end: int
    heading: tuple[str, ...] = ()
    before: str = ""
    whole: bool = True


class CutLevel(NamedTuple):
    """Positions of one strength: after group 1 of `pattern`, or at sorted `places`.

    A chunk that is cut at this level fills at least the fraction `least` of its room. A short chunk that ends with a
    section is better than a long one that ends with a word.
    """

    least: float
    pattern: re.Pattern[str] | None = None
    places: Sequence[int] = ()

    def between(self, text: str, start: int, end: int) -> Iterable[int]:
        """Return the positions after `start`, up to `end`."""
        if self.pattern is None:
            return self.places[bisect_right(self.places, start) : bisect_right(self.places, end)]
        # one more character, for lookahead
        found = (match.end(1) for match in self.pattern.finditer(text, start, end + 1))
        return [place for place in found if start < place <= end]


class Cutter:
    """Cutter of one text.

    Args:
        text: the whole text.
        size: most characters of a chunk.
        overlap: most characters of the previous chunk at the start of a chunk; less than `size`.
    """

    def __init__(self, text: str, size: int, overlap: int) -> None:
        self.text = text
        self.room = size
        self._overlap = overlap

    def fits(self, start: int, end: int, before: str = "") -> bool:
        """Return whether that part fits into a chunk."""
        return end - start + len(before) <= self.room

    def cut(self, piece: TextPiece, levels: Sequence[CutLevel], *, by_lines: bool = False) -> Iterator[TextPiece]:
        """Yield the piece in chunks.

        Chunks overlap, with `by_lines` by whole lines only. Without the overlaps, they are exactly the piece.
        """
        if self.fits(piece.start, piece.end, piece.before):
            yield piece
            return
        position = piece.start
        while position < piece.end:
            limit = min(piece.end, position + self.room - self._overlap)
            end = piece.end if limit == piece.end else self._best(position, limit, piece.end, levels)
            yield piece._replace(start=self._overlapping(position, piece.start, by_lines), end=end, whole=False)
            position = end

    def packed(self, pieces: Iterable[TextPiece], heading: tuple[str, ...]) -> Iterator[TextPiece]:
        """Yield the pieces, with adjacent whole pieces joined as far as they fit; joined pieces get `heading`."""
        waiting: TextPiece | None = None
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

    def _best(self, start: int, limit: int, end: int, levels: Sequence[CutLevel]) -> int:
        """Return the cut for the part after `start`, at most `limit`. Text after `end` does not influence it."""

        def checksum(place: int) -> int:
            return zlib.crc32(self.text[place : min(end, place + _SEEN)].encode(errors="surrogatepass"))

        for level in levels:
            least = start + int((limit - start) * level.least)
            places = list(level.between(self.text, least, limit))
            if places:
                return min(places, key=checksum)
        return limit

    def _overlapping(self, position: int, first: int, by_lines: bool) -> int:
        """Return the start of a chunk with its overlap.

        Its own text begins at `position`; the piece that is cut begins at `first`.
        """
        if position == first or not self._overlap:
            return position
        # The overlap never reaches back across the start of the piece.
        start = max(first, position - self._overlap)
        for pattern in (_LINE,) if by_lines else (_SENTENCE, _WORD):
            match = pattern.search(self.text, max(first, start - 1), position)
            if match is not None and start <= match.end() < position:
                return match.end()
        return position if by_lines else start


class LineIndex:
    """Line numbers by position in a text."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def of(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and last line of a non-empty part, counted from 1."""
        return bisect_left(self._ends, start) + 1, bisect_left(self._ends, end - 1) + 1


PARAGRAPHS = CutLevel(0.3, re.compile(r"(\n[ \t]*\n)"))
ITEMS = CutLevel(0.4, re.compile(r"(\n)(?=[ \t]*(?:[-*+•]|\d+[.)])[ \t])"))
SENTENCES = CutLevel(0.4, re.compile(r"""([.!?…]["'”’»)\]]*\s+|[。！？])"""))
LINES = CutLevel(0.5, re.compile(r"(\n)"))
CLAUSES = CutLevel(0.5, re.compile(r"([,;:]\s+|[、，；：])"))
WORDS = CutLevel(0.5, re.compile(r"(\s+)"))

LEVELS = (PARAGRAPHS, ITEMS, SENTENCES, LINES, CLAUSES, WORDS)
