"""Pieces of JSON Schema that the readers of all three languages build from.

While a type is read, "may be null" is one more alternative, `{"type": "null"}`. A parameter that may be null becomes
one that need not be given (`without_null`), because models are better at leaving out than at writing null; deeper
inside it stays an alternative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Generic, TypeVar

from .declaration import Schema
from .docstrings import Entry
from .script import Unreadable

Node = TypeVar("Node")

NO_VALUE: Final = object()
"""What is no JSON value, or can't be known without running the file."""

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

_DEEPEST = 40
MOST_PARTS = 2_000
"""Parts of one function's schema; ten nested types that each use the next one twice are a thousand."""


def null() -> Schema:
    """The type of `None`."""
    return {"type": "null"}


def array(items: Schema) -> Schema:
    """A list. `items` is always there, since some providers refuse an array without it."""
    return {"type": "array", "items": items}


def fixed_array(items: Sequence[Schema]) -> Schema:
    """A tuple; its items' order can't be told in a way that all providers know, their number can."""
    return {**array(any_of(items) if items else {}), "minItems": len(items), "maxItems": len(items)}


def obj(properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def parameters(properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    """What a function takes."""
    return {"type": "object", "properties": properties, "required": list(required)}


def enum(values: Iterable[Any]) -> Schema:
    """One of these values; null among them is an alternative of its own."""
    values = list(dict.fromkeys((type(value), value) for value in values))
    plain = [value for _, value in values if value is not None]
    schema: Schema = {}
    if plain:
        kinds = {_TYPES[type(value)] for value in plain}
        schema = {"type": kinds.pop(), "enum": plain} if len(kinds) == 1 else {"enum": plain}
    if len(plain) == len(values):
        return schema
    return any_of([schema, null()]) if plain else null()


def any_of(parts: Iterable[Schema]) -> Schema:
    """One of these, written as shortly as it can be."""
    flat: list[Schema] = []
    for part in parts:
        for one in part["anyOf"] if set(part) == {"anyOf"} else [part]:
            _join(flat, one)
    if {} in flat:
        return {}
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _join(flat: list[Schema], one: Schema) -> None:
    if one in flat and not _enums(one):
        return
    for number, other in enumerate(flat):
        if _enums(one) and _enums(other) and one.get("type") == other.get("type"):
            merged = dict.fromkeys((type(value), value) for value in [*other["enum"], *one["enum"]])
            flat[number] = {**other, "enum": [value for _, value in merged]}
            return
    flat.append(one)


def _enums(schema: Schema) -> bool:
    return "enum" in schema and not schema.keys() - {"enum", "type"}


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """The schema without the alternative null, and whether there was one."""
    if schema == null():
        return {}, True
    parts = schema.get("anyOf", [])
    if null() not in parts:
        return schema, False
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**any_of(part for part in parts if part != null()), **rest}, True


def described(schema: Schema, description: str = "", **more: Any) -> Schema:
    """The schema with a description, unless that is empty, and with `more` behind it."""
    schema = dict(schema)
    if description:
        schema.pop("description", None)
        schema["description"] = description
    schema.update(more)
    return schema


def with_default(schema: Schema, value: Any) -> Schema:
    """The schema with this default, unless that is null or of another type, as `(1, 2)` for a named tuple is."""
    kind = schema.get("type")
    if isinstance(value, list):
        fits = kind in (None, "array")
    elif isinstance(value, dict):
        fits = kind in (None, "object")
    else:
        fits = value is not None and kind in (None, _TYPES[type(value)], "number" if type(value) is int else None)
    return {**schema, "default": value} if fits else schema


def parameter(schema: Schema, said: Entry | None, value: Any, *, annotated: bool) -> tuple[Schema, bool]:
    """A parameter's schema with what its comment and its default say, and whether it may be left out for that.

    Args:
        said: what the comment says of it.
        value: its default, or `NO_VALUE`.
        annotated: the schema is that of an annotation, which knows better than the comment.
    """
    schema, optional = without_null(schema)
    schema = described(schema, said.text if said is not None else "")
    if value is not NO_VALUE:
        schema = with_default(schema, value)
    return schema, optional or (not annotated and said is not None and said.optional)


class TypeReader(ABC, Generic[Node]):
    """Reads the types of one function, which are written out in place: no circle, no explosion."""

    numbers: ClassVar[str]
    """The type that a default value suggests which is a whole number."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._open: list[str] = []
        self._parts = 0

    @abstractmethod
    def wrong(self, node: Node, message: str, *, expected: str = "", hint: str = "") -> Unreadable:
        """An error at this place."""

    @abstractmethod
    def _schema(self, node: Node) -> Schema: ...

    def schema(self, node: Node) -> Schema:
        """The schema of a type; null is an alternative of its own.

        Raises:
            Unreadable: there is none.
        """
        self._nodes.append(node)
        try:
            if len(self._nodes) > _DEEPEST:
                raise self.wrong(node, "the type is nested too deeply")
            self._part()
            return self._schema(node)
        finally:
            self._nodes.pop()

    def of_value(self, value: Any) -> Schema:
        """The schema that a default value suggests."""
        if isinstance(value, list):
            return array({})
        if isinstance(value, dict):
            return {"type": "object"}
        if value is NO_VALUE or value is None:
            return {"type": "string"}
        return {"type": self.numbers if type(value) is int else _TYPES[type(value)]}

    @contextmanager
    def written_out(self, name: str) -> Iterator[None]:
        """While the type `name` is written out.

        Raises:
            Unreadable: it is being written out already, or enough was written.
        """
        if name in self._open:
            hint = "take an object, or JSON as a text, for nested data"
            raise self.wrong(self._nodes[-1], f"the type '{name}' contains itself", hint=hint)
        self._part()
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()

    def _part(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise self.wrong(self._nodes[-1], "the types of this function are too large to be told to a model")
