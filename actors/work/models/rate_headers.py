"""The headers in which providers tell what remains of a limit.

    x-ratelimit-limit-requests: 500         OpenAI, Groq and others; the time until all of it is back as `6m0s`, `20ms`
    x-ratelimit-remaining-requests: 499
    x-ratelimit-reset-requests: 120ms
    anthropic-ratelimit-requests-limit, -remaining, -reset      Anthropic; the time as a date (RFC 3339)

and the same with `tokens`. Sources: https://platform.openai.com/docs/guides/rate-limits,
https://docs.claude.com/en/api/rate-limits.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from .allowance import Level, Remaining

if TYPE_CHECKING:
    import httpx

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def remaining_in(headers: httpx.Headers, now: float) -> Remaining | None:
    """What remains, or None if the headers don't say; `now` is in seconds since the epoch."""
    if "x-ratelimit-remaining-requests" in headers or "x-ratelimit-remaining-tokens" in headers:
        names = "x-ratelimit-{what}-{of}"
    elif "anthropic-ratelimit-requests-remaining" in headers:
        names = "anthropic-ratelimit-{of}-{what}"
    else:
        return None
    return Remaining(_level(headers, names, "requests", now), _level(headers, names, "tokens", now))


def _level(headers: httpx.Headers, names: str, of: str, now: float) -> Level | None:
    try:
        limit = float(headers[names.format(what="limit", of=of)])
        remaining = float(headers[names.format(what="remaining", of=of)])
    except (KeyError, ValueError):
        return None
    if not 1 <= limit < 1e12 or not -1e12 < remaining <= limit:
        return None
    return Level(limit, max(0.0, remaining), _seconds(headers.get(names.format(what="reset", of=of), ""), now))


def _seconds(text: str, now: float) -> float | None:
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
