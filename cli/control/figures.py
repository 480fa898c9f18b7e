"""Amounts, money and runs in few characters, for tables."""

from __future__ import annotations

from collections.abc import Sequence

from ...actors.views.money import usd
from ...protocol.control.things import RunInfo
from ..render.text import one_line


def amount(number: int) -> str:
    """`0`, `950`, `12.3k`, `4.5M`."""
    if number < 1000:
        return str(number)
    for unit, size in (("k", 1e3), ("M", 1e6)):
        if number < 999.95 * size:
            return f"{number / size:.1f}{unit}"
    return f"{number / 1e9:.1f}G"


def cells(run: RunInfo, when: Sequence[str], last: str) -> Sequence[str]:
    """The row of a run in a table: `when` stands behind its target, `last` behind its cost."""
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
    """`$0.0123`, `$12.30`; "" for what costs nothing; `unpriced`, or `$0.0123+` if the price of a part is not known."""
    return usd(cost, priced) if cost or not priced else ""
