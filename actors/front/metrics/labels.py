"""Bounds the number of values that each label may have."""

from __future__ import annotations

from typing import final

MOST_NAMES = 100
"""Values that a label has at most; what comes later is counted as `other`."""

OTHER = "other"


@final
class Names:
    """The values that each label has so far."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def of(self, label: str, value: str) -> str:
        """A label's value, as long as there are not too many of them."""
        known = self._known.setdefault(label, set())
        if value not in known:
            if len(known) >= MOST_NAMES:
                return OTHER
            known.add(value)
        return value
