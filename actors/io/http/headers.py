"""Conversion of raw request headers to a dictionary."""

from __future__ import annotations

from collections.abc import Iterable


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return values by lower-case name; repeated ones are joined, so that they match no expected value."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
