"""Age of a moment in few characters, for tables and lists of commands and of the chat."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def seconds_since(moment: str, now: datetime | None = None) -> float | None:
    """Return the seconds since a moment in RFC 3339; None for an invalid text. Never less than 0, because clocks
    differ.
    """
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(((now or datetime.now(UTC)) - then).total_seconds(), 0.0)


def age(seconds: float | None) -> str:
    """Return a duration as `45s`, `12m`, `3h05m` or `2d04h`; "" for None."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"{seconds:.0f}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f}m"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f}h{seconds % _HOUR // _MINUTE:02.0f}m"
    return f"{seconds // _DAY:.0f}d{seconds % _DAY // _HOUR:02.0f}h"
