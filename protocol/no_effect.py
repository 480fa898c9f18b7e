"""Keys that a file may have and that do nothing: the mark that a field of a struct carries for it.

    skills_enabled: Annotated[bool | None, no_effect("there are no skills here yet")] = None

What reads a file into structs (`reading`) warns of such a key where it is given, so that nothing is accepted in
silence. A test goes through all structs: a field that no module reads has to carry the mark, and one that is read must
not.
"""

from __future__ import annotations

from msgspec import Meta, inspect

_MARK = "no_effect"


def no_effect(why: str) -> Meta:
    """The mark for a field's `Annotated`."""
    return Meta(description=f"Accepted, without effect: {why}.", extra={_MARK: why})


def why_without_effect(field: inspect.Field) -> str | None:
    """Why the key of a field does nothing; None if it does something."""
    wanted = field.type
    while isinstance(wanted, inspect.Metadata):
        if _MARK in (wanted.extra or {}):
            return str((wanted.extra or {})[_MARK])
        wanted = wanted.type
    return None
