"""Rows in columns, for lists that people read."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

_WIDEST = 40


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One indented line per row, all columns but the last as wide as their widest cell, within reason."""
    if not rows:
        return []
    widths = [min(max(width_of(row[column]) for row in rows), _WIDEST) for column in range(len(rows[0]) - 1)]
    return [
        (
            "  " + "  ".join([*(_padded(cell, width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        ).rstrip()
        for row in rows
    ]


def table(rows: Sequence[Sequence[str]]) -> str:
    """The rows in columns, from the first column of the terminal on; see `fitted`."""
    return fitted(line.removeprefix("  ") for line in columns(rows))


def fitted(lines: Iterable[str]) -> str:
    """The lines as a text; on a terminal none is wider than that."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        lines = [_cut(line, width) for line in lines]
    return "".join(line + "\n" for line in lines)


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes: as many as it has characters, in most languages."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - width_of(cell))


def _cut(line: str, width: int) -> str:
    if width_of(line) <= width:
        return line
    end = len(line)
    while width_of(line[:end]) > width - 1:
        end -= 1
    return line[:end] + "…"
