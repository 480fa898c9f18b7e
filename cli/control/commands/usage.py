"""What `callboard usage` does: reads the book of what models have cost. Needs no server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from ....actors.io.directories import state_dir
from ....actors.work.spending.book import Entry, Spent, read
from ....protocol.errors import NotKept
from ...render.text import json_object, safe, table
from ..figures import money

_PLACES = {"day": 0, "key": 1, "agent": 2, "model": 3}
_HEAD = ("REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST")


def show_usage(groups: Sequence[str], *, days: int, as_json: bool) -> str:
    """The sums of the last days, grouped.

    Raises:
        NotKept: the book can't be read.
    """
    path = state_dir(os.environ) / "usage.db"
    since = (datetime.now(UTC).date() - timedelta(days=days - 1)).isoformat()
    try:
        found = read(path, since)
    except sqlite3.Error as error:
        raise NotKept(f"what models have cost can't be read: {path}: {error}") from None
    rows, total = _grouped(found, groups)
    if as_json:
        told = [
            dict(zip(groups, names, strict=True)) | msgspec.to_builtins(spent) | {"priced": not spent.unpriced}
            for names, spent in rows.items()
        ]
        return json_object(since=since, by=list(groups), usage=told, total=msgspec.to_builtins(total))
    if not rows:
        return f"nothing was spent on models since {since}\n"
    lines = [(*map(safe, names), *_cells(spent)) for names, spent in rows.items()]
    foot = ("total", *[""] * (len(groups) - 1), *_cells(total))
    return table([(*(group.upper() for group in groups), *_HEAD), *lines, foot])


def _grouped(found: dict[Entry, Spent], groups: Sequence[str]) -> tuple[dict[tuple[str, ...], Spent], Spent]:
    rows: dict[tuple[str, ...], Spent] = {}
    total = Spent()
    for entry, spent in found.items():
        names = tuple(entry[_PLACES[group]] for group in groups)
        rows.setdefault(names, Spent()).add(spent)
        total.add(spent)
    return dict(sorted(rows.items())), total


def _cells(spent: Spent) -> tuple[str, ...]:
    counts = (spent.requests, spent.input_tokens, spent.cached_tokens, spent.output_tokens)
    return (*map(str, counts), money(spent.cost, not spent.unpriced))
