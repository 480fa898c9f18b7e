"""Marker for keys that a file may have and that have no effect.

    skills_enabled: Annotated[bool | None, no_effect("there are no skills here yet")] = None

The reader of structs (`reading`) warns about such a key, so that nothing is ignored silently. A test checks all
structs: a field that no module reads must have the marker, and a field that is read must not.
"""

from __future__ import annotations

from msgspec import Meta, inspect

_MARK = "no_effect"


def no_effect(why: str) -> Meta:
    """Return the marker for a field's `Annotated`."""
    return Meta(description=f"Accepted, without effect: {why}.", extra={_MARK: why})


def why_without_effect(wanted: inspect.Type) -> str | None:
    """Return the reason why a key of this type has no effect; None if it has one."""
    while isinstance(wanted, inspect.Metadata):
        if _MARK in (wanted.extra or {}):
            return str((wanted.extra or {})[_MARK])
        wanted = wanted.type
    return None
