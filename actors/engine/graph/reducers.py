"""Reducers: merge the writes of one super-step into the next state.

A node writes the keys whose value it *changed* (`changed`). The writes of a super-step are merged in the
alphabetical order of the node ids, so that the result does not depend on execution speed:

- a key with a reducer: each write is folded into the current value, also the write of a single node;
- a key without one: a single write replaces the current value, several writes are a mistake.

Either all writes are merged or none. The error names every key that cannot be merged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import chain
from typing import Any, TypeAlias

from ....protocol.errors import GraphMistake

Json: TypeAlias = Any
Writes: TypeAlias = Mapping[str, Json]
"""State keys that one node changed, with their new values."""

_ABSENT: Any = object()


class _MismatchError(Exception):
    """Value of a type that the reducer does not accept."""


def merge_writes(
    current: Mapping[str, Json], writes: Mapping[str, Writes], reducers: Mapping[str, str]
) -> dict[str, Json]:
    """Return the state after a super-step.

    Args:
        current: the state before it; neither the mapping nor its values are modified.
        writes: node id to the keys it changed.
        reducers: state key to the name of its reducer.

    Raises:
        GraphMistake: several nodes wrote a key without a reducer, or a value does not suit its reducer.
    """
    # Fast path for the common case of a single writer.
    if len(writes) == 1 and not reducers:
        return {**current, **next(iter(writes.values()))}
    state = dict(current)
    by_key: dict[str, list[str]] = {}
    for node in sorted(writes):
        for key in writes[node]:
            by_key.setdefault(key, []).append(node)
    # Collected, so that one error names every key that cannot be merged.
    mistakes: list[str] = []
    for key, nodes in by_key.items():
        name = reducers.get(key)
        if name is not None:
            values = [writes[node][key] for node in nodes]
            try:
                state[key] = REDUCERS[name](current.get(key, _ABSENT), values)
            except _MismatchError as mismatch:
                mistakes.append(f"{mismatch} (key '{key}', written by {', '.join(nodes)})")
        elif len(nodes) == 1:
            state[key] = writes[nodes[0]][key]
        else:
            mistakes.append(
                f"Key '{key}' was written by {len(nodes)} parallel branches but has no reducer declared. "
                f"Add a reducer for '{key}' to the graph's `reducers:` block, or rename one writer. "
                f"(written by {', '.join(nodes)})"
            )
    if mistakes:
        raise GraphMistake("\n".join(mistakes))
    return state


def changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """Return the keys of `after` that are new, or whose JSON value differs from `before`."""
    writes: dict[str, Json] = {}
    for key, value in after.items():
        old = before.get(key, _ABSENT)
        if old is not value and not same_json(old, value):
            writes[key] = value
    return writes


def same_json(one: Json, other: Json) -> bool:
    """Return True if two JSON values are equal; `1`, `1.0` and `true` are different values."""
    if one is other:
        return True
    # Python's `==` treats 1, 1.0 and True as equal. A node that changes only the type has written the key.
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return len(one) == len(other) and all(
            key in other and same_json(value, other[key]) for key, value in one.items()
        )
    if type(one) is list:
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def type_name(value: Json) -> str:
    """Return JSON's name for a value's type: null bool number string array object."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _append(current: Json, values: list[Json]) -> Json:
    return [*chain(*_checked("append", "array", current, [])), *values]


def _extend(current: Json, values: list[Json]) -> Json:
    return list(chain(*_checked("extend", "array", current, values)))


def _concat(current: Json, values: list[Json]) -> Json:
    parts = _checked("concat", "string", current, values)
    # Leading empty texts add no newline.
    first = next((i for i, part in enumerate(parts) if part), len(parts) - 1)
    return "\n".join(parts[first:])


def _merge(current: Json, values: list[Json]) -> Json:
    return dict(chain.from_iterable(each.items() for each in _checked("merge", "object", current, values)))


def _overwrite(_current: Json, values: list[Json]) -> Json:
    return values[-1]


def _number(name: str, fold: Callable[[Any, Any], Any], current: Json, values: list[Json]) -> Json:
    return _whole(name, reduce(fold, _checked(name, "number", current, values)))


def _checked(name: str, kind: str, current: Json, values: list[Json]) -> list[Json]:
    """Return the current value, if there is one, and the new values; raise if one is of another kind."""
    wanted = f"{'an' if kind[0] in 'ao' else 'a'} {kind}"
    # As in Loki, a null is not absent: it does not suit any of these reducers.
    if current is not _ABSENT and type_name(current) != kind:
        raise _mismatch(name, wanted, current)
    for value in values:
        if type_name(value) != kind:
            raise _mismatch(name, wanted, value, incoming=True)
    return values if current is _ABSENT else [current, *values]


REDUCERS: dict[str, Callable[[Json, list[Json]], Json]] = {
    "append": _append,
    "extend": _extend,
    "concat": _concat,
    "sum": partial(_number, "sum", operator.add),
    "max": partial(_number, "max", max),
    "min": partial(_number, "min", min),
    "merge": _merge,
    "overwrite": _overwrite,
}
"""Function by name; the names are those of `protocol.graph.Reducer`."""


def _whole(name: str, number: float) -> float:
    """Return a whole result as an int, as JSON readers of Loki's state expect it."""
    if type(number) is float:
        # JSON has no infinity.
        if not math.isfinite(number):
            raise _MismatchError(f"reducer '{name}' gives a number too large for JSON")
        if number.is_integer() and abs(number) < 2**63:
            return int(number)
    # Readers of JSON in Rust, such as Loki's, have whole numbers of 64 bits, signed or unsigned.
    elif not -(2**63) <= number < 2**64:
        return float(number)
    return number


def _mismatch(name: str, wanted: str, value: Json, *, incoming: bool = False) -> _MismatchError:
    which = " for the incoming value" if incoming else " (or absent) for the current value"
    return _MismatchError(f"reducer '{name}' requires {wanted}{which}, got {type_name(value)}")
