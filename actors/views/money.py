"""What something has cost, in few characters; the page's `format.js` has the same rule."""

from __future__ import annotations

_LEAST = 0.0001


def usd(cost: float, priced: bool = True) -> str:
    """`$0.0123`, `$12.30`; `<$0.0001` for less, so that what was charged never reads as nothing. With a `+` where the
    price of a part is not known, and `unpriced` where that of all is.
    """
    more = "" if priced else "+"
    if not cost:
        return "$0" if priced else "unpriced"
    if cost < _LEAST:
        return f"${_LEAST}+" if more else f"<${_LEAST}"
    return (f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}") + more
