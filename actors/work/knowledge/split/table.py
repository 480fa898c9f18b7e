"""Tables (CSV, TSV): as many whole rows as fit, each chunk with the first row before them, which names the columns.

Quoted fields may hold line breaks. A quote that is never closed would swallow the rest of the table, so a row that goes
on for too long is taken to have a stray one.
"""

from __future__ import annotations

from collections.abc import Iterator

from .cutter import Cutter, Piece
from .prose import LEVELS

_LONGEST = 200
"""Lines a row may have."""


def pieces(cutter: Cutter) -> Iterator[Piece]:
    """The chunks of a table."""
    text = cutter.text
    rows = list(_rows(text))
    if not rows:
        return
    first_end = rows[0][1]
    header = text[:first_end].rstrip("\n") + "\n"
    if not cutter.fits(0, 0, header * 2):  # it would fill more than half of every chunk
        header = ""
    waiting = Piece(0, first_end)
    for start, end in rows[1:]:
        if cutter.fits(waiting.start, end, waiting.before):
            waiting = waiting._replace(end=end)
            continue
        yield from cutter.cut(waiting, LEVELS)
        waiting = Piece(start, end, before=header)
        if not cutter.fits(start, end, header):
            waiting = Piece(start, end)
    yield from cutter.cut(waiting, LEVELS)


def _rows(text: str) -> Iterator[tuple[int, int]]:
    """Where the rows are, their line breaks included."""
    start = 0
    while start < len(text):
        end = _end_of_line(text, start)
        quotes = text.count('"', start, end)
        first_end, lines = end, 1
        while quotes % 2 and end < len(text) and lines < _LONGEST:
            following = _end_of_line(text, end)
            quotes += text.count('"', end, following)
            end = following
            lines += 1
        if quotes % 2:
            end = first_end
        yield start, end
        start = end


def _end_of_line(text: str, start: int) -> int:
    found = text.find("\n", start)
    return len(text) if found < 0 else found + 1
