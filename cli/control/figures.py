"""Compact formats for tables: amounts, money and run rows."""

from __future__ import annotations

from collections.abc import Sequence

from ...actors.views.money import usd
from ...protocol.control.resources import RunInfo
from ..render.text import one_line


def amount(number: int) -> str:
    """Format a count: `0`, `950`, `12.3k`, `4.5M`."""
    if number < 1000:
        return str(number)
    for unit, size in (("k", 1e3), ("M", 1e6)):
        if number < 999.95 * size:
            return f"{number / size:.1f}{unit}"
    return f"{number / 1e9:.1f}G"


def cells(run: RunInfo, when: Sequence[str], last: str) -> Sequence[str]:
    """Return the table row of a run, with the cells `when` after its target and `last` after its cost."""
    tokens = run.input_tokens + run.output_tokens
    target = one_line(run.title or run.name or run.target, 30)
    return (
        one_line(run.run, 40),
        run.status,
        target,
        *when,
        amount(tokens) if tokens else "",
        money(run.cost, run.priced),
        last,
    )


def money(cost: float, priced: bool = True) -> str:
    """Format a cost: `$0.0123`, `$12.30`; "" for zero; `unpriced`, or `$0.0123+` if a part has no known price."""
    return usd(cost, priced) if cost or not priced else ""
