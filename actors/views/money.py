"""Short form of costs. The page's `format.js` has the same rule."""

from __future__ import annotations

_LEAST = 0.0001


def usd(cost: float, priced: bool = True) -> str:
    """Return a cost as `$0.0123` or `$12.30`, and smaller ones as `<$0.0001`, so that a charge never reads as zero.

    If the price of a part is unknown, `+` is appended. If all prices are unknown, the result is `unpriced`.
    """
    more = "" if priced else "+"
    if not cost:
        return "$0" if priced else "unpriced"
    if cost < _LEAST:
        return f"${_LEAST}+" if more else f"<${_LEAST}"
    return (f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}") + more
