"""Error texts for rows that can't be stored: they name the Python object in a state or in a node's output."""

from __future__ import annotations

from typing import Any

import msgspec

from ....protocol.journal import Told, encode_value

DEEPEST = 50
"""Nesting levels that are searched."""


def what_is_no_data(row: object, error: Exception) -> str:
    """Return a text for the author of a file: the node, the place of the value, and its type; never the value.

    Args:
        row: the row, or a value of one.
        error: error of the encoder.
    """
    inside = row.message if isinstance(row, Told) else row
    node = getattr(inside, "node", None)
    whose = f"node '{node}'" if isinstance(node, str) else type(inside).__name__
    found = _found(inside, (), DEEPEST)
    if found is None:
        return f"{whose} can't be kept: {error}"
    place, value = found
    return f"{whose} has a {type(value).__name__} at `{'.'.join(place)}`, which is no data ({error})"


def _found(value: Any, place: tuple[str, ...], deep: int) -> tuple[tuple[str, ...], Any] | None:
    """Return the innermost first value that can't be stored, with its place; None if all values can be."""
    if _is_data(value) or not deep:
        return None
    for name, each in _parts(value):
        found = _found(each, (*place, name), deep - 1)
        if found is not None:
            return found
    return place, value


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(str(number), each) for number, each in enumerate(value)]
    return []


def _is_data(value: Any) -> bool:
    try:
        encode_value(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
