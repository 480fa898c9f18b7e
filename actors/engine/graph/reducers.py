"""How the writes of one super-step become the next state.

A node writes the keys whose value it *changed* (`changed`); the writes of all nodes of a step are merged in
the alphabetical order of the node ids, so that the result does not depend on who was fastest:

- a key with a reducer: each write is folded onto what is there, also when a single node wrote it;
- a key without one: a single writer's value replaces what is there, several writers are a mistake.

Either every write is merged or none, and the error names every key that can't be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ....protocol.errors import GraphMistake

Json: TypeAlias = Any
Writes: TypeAlias = Mapping[str, Json]
"""The state keys that one node changed, with their new values."""

_ABSENT: Any = object()


class _MismatchError(Exception):
    """A value that the reducer can't work on."""


def merge_writes(
    current: Mapping[str, Json], writes: Mapping[str, Writes], reducers: Mapping[str, str]
) -> dict[str, Json]:
    """The state after a step.

    Args:
        current: the state before it; left as it is, and so are the values in it.
        writes: node id to the keys it changed.
        reducers: state key to the name of its reducer.

    Raises:
        GraphMistake: several nodes wrote a key without a reducer, or a value does not suit its reducer.
    """
    state = dict(current)
    if len(writes) == 1 and not reducers:
        for written in writes.values():
            state.update(written)
        return state
    by_key: dict[str, list[str]] = {}
    for node in sorted(writes):
        for key in writes[node]:
            by_key.setdefault(key, []).append(node)
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
    """The keys of `after` that are new, or whose JSON value differs from `before`."""
    writes: dict[str, Json] = {}
    for key, value in after.items():
        old = before.get(key, _ABSENT)
        if old is not value and not same_json(old, value):
            writes[key] = value
    return writes


def same_json(one: Json, other: Json) -> bool:
    """Equality of JSON values, where `1`, `1.0` and `true` are three different things."""
    if one is other:
        return True
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
    """JSON's name for a value's type: null bool number string array object."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


# --- the reducers: what is there (or _ABSENT), and the incoming values in order ---------------------------


def _append(current: Json, values: list[Json]) -> Json:
    return _list("append", current) + values


def _extend(current: Json, values: list[Json]) -> Json:
    result = list(_list("extend", current))
    for value in values:
        if type(value) is not list:
            raise _incoming("extend", "an array", value)
        result.extend(value)
    return result


def _concat(current: Json, values: list[Json]) -> Json:
    if current is not _ABSENT and type(current) is not str:
        raise _current("concat", "a string", current)
    for value in values:
        if type(value) is not str:
            raise _incoming("concat", "a string", value)
    parts = values if current is _ABSENT else [current, *values]
    # An empty text gets no newline after it, however many of them come first.
    first = next((i for i, part in enumerate(parts) if part), len(parts) - 1)
    return "\n".join(parts[first:])


def _sum(current: Json, values: list[Json]) -> Json:
    return _number("sum", current, values, lambda a, b: a + b, start=0)


def _max(current: Json, values: list[Json]) -> Json:
    return _number("max", current, values, max)


def _min(current: Json, values: list[Json]) -> Json:
    return _number("min", current, values, min)


def _merge(current: Json, values: list[Json]) -> Json:
    if current is not _ABSENT and type(current) is not dict:
        raise _current("merge", "an object", current)
    result = {} if current is _ABSENT else dict(current)
    for value in values:
        if type(value) is not dict:
            raise _incoming("merge", "an object", value)
        result.update(value)
    return result


def _overwrite(_current: Json, values: list[Json]) -> Json:
    return values[-1]


REDUCERS: dict[str, Callable[[Json, list[Json]], Json]] = {
    "append": _append,
    "extend": _extend,
    "concat": _concat,
    "sum": _sum,
    "max": _max,
    "min": _min,
    "merge": _merge,
    "overwrite": _overwrite,
}
"""Name to function; the names are those of `protocol.graph.model.Reducer`."""


def _list(name: str, current: Json) -> list[Json]:
    if current is _ABSENT:
        return []
    if type(current) is not list:
        raise _current(name, "an array", current)
    return current


def _number(
    name: str, current: Json, values: list[Json], fold: Callable[[Any, Any], Any], start: Json = _ABSENT
) -> Json:
    if current is not _ABSENT and type_name(current) != "number":
        raise _current(name, "a number", current)
    total = start if current is _ABSENT else current
    for value in values:
        if type_name(value) != "number":
            raise _incoming(name, "a number", value)
        total = value if total is _ABSENT else fold(total, value)
    return _whole(name, total)


def _whole(name: str, number: float) -> float:
    """A whole result as an int, as JSON readers of Loki's state expect it."""
    if type(number) is float:
        if not math.isfinite(number):
            raise _MismatchError(f"reducer '{name}' gives a number too large for JSON")
        if number.is_integer() and abs(number) < 2**63:
            return int(number)
    elif not -(2**63) <= number < 2**64:
        return float(number)
    return number


def _current(name: str, wanted: str, value: Json) -> _MismatchError:
    return _MismatchError(
        f"reducer '{name}' requires {wanted} (or absent) for the current value, got {type_name(value)}"
    )


def _incoming(name: str, wanted: str, value: Json) -> _MismatchError:
    return _MismatchError(f"reducer '{name}' requires {wanted} for the incoming value, got {type_name(value)}")
