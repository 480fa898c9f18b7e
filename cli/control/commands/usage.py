"""What `callboard usage` does: reads the book of what models have cost. Needs no server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from ....actors.io.directories import state_dir
from ....actors.work.spending.book import read
from ....actors.work.spending.report import first_day, report
from ....protocol.control.things import UsageGroup, UsageRow
from ....protocol.errors import NotKept
from ...render.text import json_object, safe, table_of_figures
from ..figures import amount, money

_HEAD = ("REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST")
_KEPT = ((0, 1, 2, 3, 4), (1, 2, 3, 4), (1, 3, 4), (4,))
"""Which of these narrow terminals have, and narrower ones."""


def show_usage(groups: Sequence[UsageGroup], *, days: int, as_json: bool) -> str:
    """The sums of the last days, grouped.

    Raises:
        NotKept: the book can't be read.
    """
    path = state_dir(os.environ) / "usage.db"
    today = datetime.now(UTC).date()
    since = first_day(today, days)
    try:
        found = report(read(path, since, groups), groups, since, today)
    except (OSError, sqlite3.Error) as error:
        broken = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        remedy = "; move it away, and a new one is begun" if broken else ""
        raise NotKept(f"what models have cost can't be read: {path}: {error}{remedy}") from None
    if as_json:
        return json_object(**msgspec.to_builtins(found))
    if not found.usage:
        return f"nothing was spent on models since {since}\n"
    rows = found.usage if "day" in groups else sorted(found.usage, key=_dearest_first)
    head = [group.upper() for group in groups]
    names = [[safe(getattr(row, group)) or "-" for group in groups] for row in rows]
    foot = ["total", *[""] * (len(groups) - 1)]
    whole, short = ([_HEAD, *(_figures(row, say) for row in (*rows, found.total))] for say in ("{:,}".format, amount))
    narrower = ([[row[column] for column in kept] for row in short] for kept in _KEPT)
    return table_of_figures([head, *names, foot], whole, *narrower)


def _dearest_first(row: UsageRow) -> tuple[float, int]:
    return -row.cost, -row.input_tokens - row.output_tokens


def _figures(row: UsageRow, count: Callable[[int], str]) -> tuple[str, ...]:
    cached = f"{100 * row.cached_tokens // row.input_tokens}%" if row.input_tokens else ""
    counts = (count(row.requests), count(row.input_tokens), cached, count(row.output_tokens))
    return (*counts, money(row.cost, row.priced) or "-")
