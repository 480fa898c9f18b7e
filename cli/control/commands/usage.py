"""Implementation of `callboard usage`: reads model usage and daily limits from the ledger. Needs no server."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ....actors.io.directories import config_dir as configured
from ....actors.io.directories import state_dir
from ....actors.io.settings import load_settings
from ....actors.work.spending.book import read
from ....actors.work.spending.days import DayReading, readings
from ....actors.work.spending.ledger import DAY, today_of
from ....actors.work.spending.report import first_day, report
from ....protocol.control.resources import DailyUse, UsageGroup, UsageReport, UsageRow
from ....protocol.errors import ConfigError, NotKept
from ...render.text import fitted, json_object, one_line, safe, table_of_figures
from ..client import ControlClient, with_client
from ..figures import amount, money
from ..servers import Where

_HEAD = ("REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST")
_KEPT = ((0, 1, 2, 3, 4), (1, 2, 3, 4), (1, 3, 4), (4,))
"""Columns of the table, for narrower and narrower terminals."""


def show_usage(groups: Sequence[UsageGroup], *, days: int, as_json: bool, config_dir: str | None) -> str:
    """Return usage of the last days by group, and consumption of the daily limits in these settings.

    Raises:
        NotKept: the ledger can't be read.
    """
    path, now = state_dir(os.environ) / "usage.db", datetime.now(UTC)
    since = first_day(now.date(), days)
    try:
        limits = _limits(path, now.timestamp(), config_dir)
        found = report(read(path, since, groups), groups, since, now.date(), limits)
    except (OSError, sqlite3.Error) as error:
        broken = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        remedy = "; move it away to begin a new one" if broken else ""
        raise NotKept(f"the record of costs can't be read: {path}: {error}{remedy}") from None
    return _usage_text(found, as_json=as_json)


def usage_at(where: Where, groups: Sequence[UsageGroup], *, days: int, as_json: bool) -> str:
    """Return the usage report of a server.

    Raises:
        NoServer: there is no server.
        CallboardError: the server refuses.
    """

    async def ask(client: ControlClient) -> UsageReport:
        return await client.ask("_usage/read", UsageReport, by=groups, days=days)

    return _usage_text(with_client(where, ask), as_json=as_json)


def _usage_text(found: UsageReport, *, as_json: bool) -> str:
    if as_json:
        return json_object(**msgspec.to_builtins(found))
    told = _table(found) if found.usage else f"nothing was spent on models since {found.since}\n"
    return told + ("\n" + fitted(map(_daily, found.daily)) if found.daily else "")


def _limits(path: Path, now: float, config_dir: str | None) -> list[DayReading]:
    try:
        settings, _ = load_settings(configured(config_dir, os.environ)[0])
    except ConfigError as error:  # usage is still shown, without the limits
        sys.stderr.write(f"callboard: daily limits are not shown: {one_line(str(error), 1000)}\n")
        return []
    return readings(path, settings.api, today_of(int(now // DAY), now))


def _table(found: UsageReport) -> str:
    groups = found.by
    rows = (
        found.usage
        if "day" in groups
        else sorted(found.usage, key=lambda row: (-row.cost, -row.input_tokens - row.output_tokens))
    )  # by day the rows are a history; otherwise the most expensive comes first
    head = [group.upper() for group in groups]
    names = [[safe(getattr(row, group)) or "-" for group in groups] for row in rows]
    foot = ["total", *[""] * (len(groups) - 1)]
    whole, short = ([_HEAD, *(_figures(row, say) for row in (*rows, found.total))] for say in ("{:,}".format, amount))
    narrower = ([[row[column] for column in kept] for row in short] for kept in _KEPT)
    return table_of_figures([head, *names, foot], whole, *narrower)


def _figures(row: UsageRow, count: Callable[[int], str]) -> tuple[str, ...]:
    cached = f"{100 * row.cached_tokens // row.input_tokens}%" if row.input_tokens else ""
    counts = (count(row.requests), count(row.input_tokens), cached, count(row.output_tokens))
    return (*counts, money(row.cost, row.priced) or "-")


def _daily(use: DailyUse) -> str:
    whose = one_line(use.subject, 40) or "all together"
    parts = []
    if use.max_cost is not None:
        parts.append(f"{_usd(use.cost)} of {_usd(use.max_cost)}{_share(use.cost, use.max_cost)}")
    if use.max_tokens is not None:
        parts.append(f"{use.tokens:,} of {use.max_tokens:,} tokens{_share(use.tokens, use.max_tokens)}")
    if use.max_cost is not None and use.held_cost:
        parts.append(f"{_usd(use.held_cost)} reserved")
    if use.max_tokens is not None and use.held_tokens:
        parts.append(f"{use.held_tokens:,} tokens reserved")
    return f"today, {whose}: {', '.join(parts)}"


def _share(spent: float, most: float) -> str:
    if spent >= most:
        return " (no more until 00:00 UTC)"
    percent = int(100 * spent / most)
    return f" ({percent}%)" if percent or not spent else " (<1%)"


def _usd(cost: float) -> str:
    return money(cost) or "$0"
