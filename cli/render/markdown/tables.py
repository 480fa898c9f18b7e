"""GFM tables with columns that fit the terminal.

The known rows define the column widths when the table begins to settle. Later rows use the same widths, so that a table
of any length is painted once. Where columns would be too narrow to read, each row becomes a list of `header: cell`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..text import width_of
from .inline import BOLD, RULE, Span, spans
from .layout import Row, lines_of, wrapped

SAMPLE_ROWS = 16
"""Rows that are sampled before widths are settled, within `SAMPLE` characters."""

SAMPLE = 4096

_NARROWEST = 6
_MOST_COLUMNS = 64
_GAP = 2
_DELIMITER = re.compile(r"\s*:?-+:?\s*\Z")
_PIPES = re.compile(r"\\.|`[^`]*`|\|", re.DOTALL)

Cells = list[str]


def cells_of(line: str) -> Cells:
    """Return the cells of a row. A pipe in code or after a backslash separates nothing."""
    text = line.strip().removeprefix("|")
    cells: Cells = []
    begin = 0
    for found in _PIPES.finditer(text):
        if found.group() == "|" and len(cells) < _MOST_COLUMNS - 1:
            cells.append(text[begin : found.start()])
            begin = found.end()
    if text[begin:].strip() or not cells:
        cells.append(text[begin:])
    return [cell.strip().replace("\\|", "|") for cell in cells]


def alignments(line: str) -> str | None:
    """Return the alignment of each column (`<`, `^` or `>`) in a delimiter row, or None for another line."""
    if "-" not in line or ("|" not in line and ":" not in line):
        return None
    cells = cells_of(line)
    if not all(_DELIMITER.match(cell) for cell in cells):
        return None
    return "".join("^" if cell[0] == cell[-1] == ":" else ">" if cell[-1] == ":" else "<" for cell in cells)


@dataclass(frozen=True)
class Columns:
    """Table layout: the width of each column; no widths if rows are lists."""

    header: Cells
    align: str
    widths: tuple[int, ...]


def columns(header: Cells, align: str, rows: Sequence[Cells], room: int) -> Columns:
    """Return the layout of a table in `room` columns for the sampled rows; no widths if they would be too narrow."""
    natural = [
        max(_widest(cell) for cell in column)
        for column in zip(header, *(_even(row, len(header)) for row in rows), strict=True)
    ]
    left = room - _GAP * (len(header) - 1)
    widths = _shrunk(natural, left)
    return Columns(header, align, tuple(widths) if widths is not None else ())


def _even(row: Cells, count: int) -> Cells:
    return (row + [""] * count)[:count]


def _widest(cell: str) -> int:
    return max(sum(width_of(span.text) for span in line) for line in lines_of(spans(cell))) or 1


def _shrunk(natural: list[int], room: int) -> list[int] | None:
    """Fit columns into `room`: narrow ones retain their width, wide ones share the rest.

    None if that is unreadably narrow.
    """
    left, open_ = room, sorted(range(len(natural)), key=natural.__getitem__)
    widths = list(natural)
    while open_:
        share = left // len(open_)
        if natural[open_[0]] > share:
            if share < _NARROWEST:
                return None
            for at, column in enumerate(open_):
                widths[column] = share + (at >= len(open_) - left % len(open_))
            break
        left -= natural[open_.pop(0)]
    return widths


def head(layout: Columns) -> Iterator[Row]:
    """Yield the header and its underline; nothing if rows are lists, because each of them repeats the header."""
    if layout.widths:
        yield from _laid(layout, layout.header, BOLD)
        yield [Span((" " * _GAP).join("─" * width_ for width_ in layout.widths), RULE)]


def body(layout: Columns, row: Cells, room: int) -> Iterator[Row]:
    """Yield the lines of one table row, with missing cells empty and surplus ones left out.

    A row as a list has a line per cell, broken at `room` columns, and a rule below it.
    """
    if layout.widths:
        yield from _laid(layout, _even(row, len(layout.header)), 0)
        return
    for name, cell in zip(layout.header, _even(row, len(layout.header)), strict=True):
        title = [span._replace(style=span.style | BOLD) for span in spans(name)]
        for line in lines_of([*title, Span(": ", BOLD), *spans(cell)]):
            yield from wrapped(line, room)
    yield [Span("─" * min(room, 8), RULE)]


def _laid(layout: Columns, row: Cells, style: int) -> Iterator[Row]:
    columns_ = [
        [part for line in lines_of(spans(cell)) for part in wrapped(line, room)]
        for cell, room in zip(row, layout.widths, strict=True)
    ]
    last = len(columns_) - 1
    for height in range(max(len(column) for column in columns_)):
        line: Row = []
        for at, column in enumerate(columns_):
            cell = column[height] if height < len(column) else []
            blank = layout.widths[at] - sum(width_of(span.text) for span in cell)
            before = blank if layout.align[at] == ">" else blank // 2 if layout.align[at] == "^" else 0
            line.append(Span(" " * before))
            line += [span._replace(style=span.style | style) for span in cell]
            line.append(Span(" " * (blank - before + _GAP if at < last else 0)))
        while line and not line[-1].text.strip(" "):
            line.pop()
        yield line
