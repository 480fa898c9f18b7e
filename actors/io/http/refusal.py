"""Reads HTTP error responses: the reason, and when to try again."""

from __future__ import annotations

import email.utils
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.json_values import UNREADABLE

if TYPE_CHECKING:
    import httpx

SHOWN = 500
"""Characters of a server's explanation that become part of an error."""


def retry_after(headers: httpx.Headers, now: float) -> float | None:
    """Seconds that the server asks us to wait, given as seconds, milliseconds or a date; None if it doesn't.

    `now` is in seconds since the epoch.
    """
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "")
        return max(0.0, float(text)) if text else None
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_tz(headers["retry-after"]) if "retry-after" in headers else None
        return max(0.0, email.utils.mktime_tz(date) - now) if date is not None else None
    except (ValueError, OverflowError):
        return None  # the year 99999, and what else a calendar does not know


def message_in(body: bytes) -> str:
    """The server's words: `{"error": {"message": ...}}`, `{"error": ...}`, `{"message": ...}`, or plain text."""
    try:
        decoded: Any = msgspec.json.decode(body)
    except UNREADABLE:
        text = body[:SHOWN].decode("utf-8", errors="replace").strip()
        return "" if text.startswith("<") else text
    for key in ("error", "message", "detail"):
        if isinstance(decoded, dict) and decoded.get(key):
            decoded = decoded[key]
    return decoded[:SHOWN] if isinstance(decoded, str) else body[:SHOWN].decode("utf-8", errors="replace")
