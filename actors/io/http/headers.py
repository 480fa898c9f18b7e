"""The headers of a request, as servers look at them."""

from __future__ import annotations

from collections.abc import Iterable


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case name; what is given twice is joined, so that it equals nothing."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
