"""What `callboard usage` does: reads the book of what models have cost. Needs no server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ....actors.io.directories import state_dir
from ....actors.work.spending.book import read
from ....actors.work.spending.report import first_day, report
from ....protocol.control.things import UsageGroup, UsageRow
from ....protocol.errors import NotKept
from ...render.text import json_object, safe, table
from ..figures import money

_HEAD = ("REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST")


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
        raise NotKept(f"what models have cost can't be read: {path}: {error}") from None
    if as_json:
        return json_object(**msgspec.to_builtins(found))
    if not found.usage:
        return f"nothing was spent on models since {since}\n"
    lines = [(*(safe(getattr(row, group)) for group in groups), *_cells(row)) for row in found.usage]
    foot = ("total", *[""] * (len(groups) - 1), *_cells(found.total))
    return table([(*(group.upper() for group in groups), *_HEAD), *lines, foot])


def _cells(row: UsageRow) -> tuple[str, ...]:
    counts = (row.requests, row.input_tokens, row.cached_tokens, row.output_tokens)
    return (*map(str, counts), money(row.cost, row.priced))
