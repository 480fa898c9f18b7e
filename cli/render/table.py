"""Rows in columns, for lists that people read."""

from __future__ import annotations

from collections.abc import Sequence

_WIDEST = 40


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One indented line per row, all columns but the last as wide as their widest cell, within reason."""
    if not rows:
        return []
    widths = [min(max(len(row[column]) for row in rows), _WIDEST) for column in range(len(rows[0]) - 1)]
    return [
        ("  " + "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]
