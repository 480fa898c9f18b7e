"""Finds a run by the beginning of its id."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.errors import UsageError


def meant(word: str, ids: Iterable[str]) -> str | None:
    """The one id that begins so, `run-` left out or not; None if there is none.

    Raises:
        UsageError: there are several.
    """
    found = [id for id in ids if id == word] or [id for id in ids if id.startswith((word, f"run-{word}"))]
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise UsageError(f"'{word}' begins the ids of several runs: {shown}")
    return found[0] if found else None
