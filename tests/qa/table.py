"""Writes docs/loki-qa.md: `python tests/qa/table.py` (or `make docs`). A test compares the page with this."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "loki-qa.md"
sys.path.insert(0, str(ROOT / "tests"))

from qa.rows import Row, by_row, rows  # noqa: E402 - found through the line above

HEAD = """\
# Loki's QA checklists

Loki's documents contain two lists of manual checks: a plan of flows (`P`, with its intended changes, `I`) and a
checklist (`C`, its boxes numbered by section). This page lists the automatic test of each row; use it to see which
behaviour of Loki's command line and chat Callboard tests. The tests run `callboard loki` at a real terminal, against
a scripted model. Run them all with `.venv/bin/python -m pytest tests/qa`.

`make docs` generates this page from `tests/qa/rows.yaml`, which describes the rows in Callboard's own words.
"""


def page() -> str:
    """The whole page."""
    all_rows, tested = rows(), by_row()
    counts = (
        f"{len(all_rows)} rows: {sum(row.number in tested for row in all_rows)} have tests, "
        f"{sum(bool(row.reason) for row in all_rows)} do not apply to Callboard."
    )
    lines = [HEAD, counts, ""]
    for section, group in groupby(all_rows, key=lambda row: (row.number.split(".")[0], row.section)):
        lines += [f"## {section[0]} {section[1]}", "", "| row | action | expected result | test |"]
        lines += ["| --- | --- | --- | --- |", *_lines(group, tested), ""]
    return "\n".join(lines)


def _lines(group: Iterator[Row], tested: dict[str, list[str]]) -> Iterator[str]:
    for row in group:
        shown = "; ".join(f"`{name}`" for name in tested.get(row.number, ()))
        why = f"not applicable: {row.reason}" if row.reason else shown
        yield f"| {row.number} | {row.does} | {row.expects} | {why} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
