"""Parser for HTTP error responses: the reason, and the time of the next attempt."""

from __future__ import annotations

import email.utils
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.json_values import UNREADABLE
from ..handed_out import hidden_head

if TYPE_CHECKING:
    import httpx

SHOWN = 500
"""Maximum characters of a server's explanation in an error."""


def retry_after(headers: httpx.Headers, now: float) -> float | None:
    """Return the seconds to wait, given by the server as seconds, milliseconds or a date; None if it gives none.

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
        return None  # the year 99999, and other dates beyond the calendar


def message_in(body: bytes) -> str:
    """Return the server's text: `{"error": {"message": ...}}`, `{"error": ...}`, `{"message": ...}`, or plain text."""
    try:
        decoded: Any = msgspec.json.decode(body)
    except UNREADABLE:
        text = hidden_head(body.decode("utf-8", errors="replace").strip(), SHOWN)
        return "" if text.startswith("<") else text
    for key in ("error", "message", "detail"):
        if isinstance(decoded, dict) and decoded.get(key):
            decoded = decoded[key]
    text = decoded if isinstance(decoded, str) else body.decode("utf-8", errors="replace")
    return hidden_head(text, SHOWN)
