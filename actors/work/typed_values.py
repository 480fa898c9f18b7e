"""Python types as JSON Schemas, and JSON values as objects of those types: parameters of tools, results of runs.

    shape = Shape.of(list[Item])
    shape.schema                     # {"type": "array", "items": {"$ref": "#/$defs/Item"}, "$defs": {...}}
    shape.convert([{"sku": "a"}])    # [Item(sku="a")]

msgspec handles the types that it supports: JSON types, dataclasses, TypedDicts, NamedTuples, Structs, enums, dates,
`Literal`, and `Annotated` with `msgspec.Meta`. This module adds `Path`, and constraints of `annotated_types`.

A type that mentions pydantic and nothing of msgspec (a model, a pydantic dataclass, `Annotated[int, Field(gt=3)]`) is
handled by pydantic's own `TypeAdapter`, whose validators and constraints msgspec would ignore. This module never
imports pydantic: a program that has such a type has imported it.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, final, get_args, get_origin

import msgspec

from ...protocol.decoding import convert
from ...protocol.json_values import JSON_TYPES, UnfitValue
from ...supervisors.user_code import user_code
from ..io.json_schema import schema_errors

if TYPE_CHECKING:
    from collections.abc import Callable

Json = Any

REFERENCE = "#/$defs/{name}"

_CONSTRAINTS = {
    "gt": "gt",
    "ge": "ge",
    "lt": "lt",
    "le": "le",
    "multiple_of": "multiple_of",
    "min_length": "min_length",
    "max_length": "max_length",
    "pattern": "pattern",
}
"""Attributes of `annotated_types` objects, and the equivalent arguments of `msgspec.Meta`."""


class NotJsonType(TypeError):
    """The type has no JSON Schema; the text names the type."""


@final
class Shape:
    """Type or JSON Schema that validates values. Create it with `of` or `of_schema`.

    Attributes:
        schema: a JSON Schema document, definitions included.
    """

    def __init__(self, schema: dict[str, Json], convert: Callable[[Json], Any]) -> None:
        self.schema = schema
        self._convert = convert

    @classmethod
    def of(cls, kind: Any) -> Shape:
        """Return the shape of a type; a mapping is treated as a JSON Schema.

        Raises:
            NotJsonType: the type has no JSON Schema.
        """
        if isinstance(kind, Mapping):
            return cls.of_schema(dict(kind))
        reader = ValueReader.of(kind)
        (schema,), definitions = schemas_of([reader])
        name = schema.get("$ref", "").removeprefix(REFERENCE.format(name=""))
        if name in definitions:  # providers require an object at the top, not a reference
            schema = definitions[name]
            if f'"{REFERENCE.format(name=name)}"' not in msgspec.json.encode(definitions).decode():
                definitions = {key: value for key, value in definitions.items() if key != name}
        return cls({**schema, "$defs": definitions} if definitions else schema, reader.convert)

    @classmethod
    def of_schema(cls, schema: dict[str, Json]) -> Shape:
        """Return the shape of a JSON Schema; its values are validated, but not converted."""

        def check(value: Json) -> Json:
            wrong = schema_errors(value, schema)
            if wrong:
                raise UnfitValue("; ".join(wrong))
            return value

        return cls(schema, check)

    def convert(self, value: Json) -> Any:
        """Convert a JSON value to an object of the type.

        Raises:
            UnfitValue: the value does not fit.
        """
        return self._convert(value)


@final
class ValueReader:
    """Converts JSON values to objects of one type.

    Attributes:
        kind: the type in the form that msgspec gets.
        adapter: pydantic's `TypeAdapter` for the type; None if msgspec handles it.
    """

    __slots__ = ("adapter", "kind")

    def __init__(self, kind: Any, adapter: Any = None) -> None:
        self.kind = kind
        self.adapter = adapter

    @classmethod
    def of(cls, kind: Any) -> ValueReader:
        """Return the reader of a type.

        It uses pydantic if the type mentions pydantic and neither a `msgspec.Struct` nor `msgspec.Meta`; else msgspec.

        Raises:
            NotJsonType: pydantic refuses the type, or a constraint has no JSON Schema.
        """
        mentioned = _libraries_of(kind, set())
        if "pydantic" in mentioned and "msgspec" not in mentioned:
            return cls(kind, _adapter(kind))
        return cls(_with_constraints(kind))

    def convert(self, value: Json) -> Any:
        """Convert a JSON value to an object of the type.

        Raises:
            UnfitValue: the value does not fit.
        """
        with user_code:  # a type may check its values in Python
            if self.adapter is not None:
                return _validated(self.adapter, value)
            try:
                return convert(value, self.kind, strict=False, dec_hook=_object_of)
            except msgspec.ValidationError as error:
                raise UnfitValue(str(error)) from error


def schemas_of(readers: Sequence[ValueReader]) -> tuple[list[dict[str, Json]], dict[str, Json]]:
    """Return the JSON Schemas of several types, and their shared definitions.

    Raises:
        NotJsonType: one of the types has no JSON Schema.
    """
    shared: dict[str, Json] = {}

    def of_foreign(kind: Any) -> dict[str, Json]:
        """Return the schema of a type that msgspec does not support, nested in one that it does."""
        if isinstance(kind, type) and issubclass(kind, PurePath):
            return {"type": "string", "format": "path"}
        if _is_pydantic(kind):
            return _pydantic_schema(_adapter(kind), shared)
        raise NotJsonType(f"the type {kind.__name__}, which can't be represented in JSON: {JSON_TYPES}")

    plain = [reader.kind for reader in readers if reader.adapter is None]
    try:
        schemas, components = msgspec.json.schema_components(plain, schema_hook=of_foreign, ref_template=REFERENCE)
    except NotJsonType:
        raise
    except TypeError as error:
        raise NotJsonType(f"a type that can't be represented in JSON ({error}): {JSON_TYPES}") from error
    shared = {**components, **shared}
    by_msgspec = iter(schemas)
    found = [
        next(by_msgspec) if reader.adapter is None else _pydantic_schema(reader.adapter, shared) for reader in readers
    ]
    return found, shared


def _object_of(kind: Any, value: Any) -> Any:
    """Convert a value to a type that msgspec does not support."""
    if isinstance(kind, type) and issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise ValueError(f"Expected a path as `str`, got `{type(value).__name__}`")
        return kind(value)
    if _is_pydantic(kind):
        return _validated(_adapter(kind), value)
    raise NotImplementedError(f"{kind} is not a type that JSON can represent")


# --- pydantic, by its interface ---------------------------------------------------------------------------------------


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__get_pydantic_core_schema__")


def _adapter(kind: Any) -> Any:
    make = getattr(sys.modules.get("pydantic"), "TypeAdapter", None)
    if make is None:
        raise NotJsonType(f"the type {kind}, which needs pydantic 2")
    try:
        return make(kind)
    except Exception as error:  # pydantic's errors have no common class, and it is not imported here
        raise NotJsonType(f"a type that pydantic refuses: {error}") from error


def _validated(adapter: Any, value: Json) -> Any:
    """Validate a JSON value with pydantic. It gets JSON text, so that strict models accept dates and enums."""
    try:
        return adapter.validate_json(msgspec.json.encode(value))
    except ValueError as error:  # pydantic's `ValidationError` is one
        raise UnfitValue(_words_of(error)) from error


def _words_of(error: ValueError) -> str:
    """Return all errors of pydantic, without the links to its documentation."""
    list_errors = getattr(error, "errors", None)
    if list_errors is None:
        return str(error)
    found = list_errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{each['msg']} - at `{_place(each['loc'])}`" for each in found)


def _place(location: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _pydantic_schema(adapter: Any, shared: dict[str, Json]) -> dict[str, Json]:
    """Return pydantic's schema of a type. Its definitions are added to `shared`, under names that are free there."""
    try:
        schema: dict[str, Json] = adapter.json_schema(ref_template="#/$defs/{model}")
        if any(shared.get(name, own) != own for name, own in schema.get("$defs", {}).items()):
            schema = adapter.json_schema(ref_template=f"#/$defs/{(prefix := f'p{len(shared)}_')}{{model}}")
            schema["$defs"] = {f"{prefix}{name}": own for name, own in schema["$defs"].items()}
    except Exception as error:  # pydantic's errors have no common class
        raise NotJsonType(f"a type for which pydantic has no JSON Schema: {error}") from error
    shared.update(schema.pop("$defs", {}))
    return schema


# --- parts of a type --------------------------------------------------------------------------------------------------


def _libraries_of(kind: Any, seen: set[int]) -> set[str]:
    """Return the libraries that a type mentions in any of its parts: `pydantic` and `msgspec`."""
    if id(kind) in seen:
        return set()
    seen.add(id(kind))
    found: set[str] = set()
    if get_origin(kind) is Annotated:
        for each in kind.__metadata__:
            library = type(each).__module__.partition(".")[0]
            if library == "pydantic" or (isinstance(each, type) and each.__module__.startswith("pydantic.")):
                found.add("pydantic")
            elif isinstance(each, msgspec.Meta):
                found.add("msgspec")
    for part in get_args(kind):
        found |= _libraries_of(part, seen)
    if isinstance(kind, type) and get_origin(kind) is None:
        if _is_pydantic(kind):
            return {*found, "pydantic"}
        if issubclass(kind, msgspec.Struct):
            return {*found, "msgspec"}
        if dataclasses.is_dataclass(kind) or hasattr(kind, "__total__") or hasattr(kind, "_field_defaults"):
            for part in _hints(kind).values():
                found |= _libraries_of(part, seen)
    return found


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError, AttributeError):  # msgspec or pydantic will report the error
        return {}


def _with_constraints(kind: Any) -> Any:
    """Return the type with `annotated_types` constraints as `msgspec.Meta`; msgspec would ignore them otherwise."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is None or origin is typing.Literal:
        return kind
    if origin is Annotated:
        metadata = [_meta(each) for each in kind.__metadata__]
        return Annotated[(_with_constraints(kind.__origin__), *metadata)]
    if not any(get_origin(part) is not None for part in args if not isinstance(part, list)):
        return kind
    parts = tuple(_with_constraints(part) for part in args)
    if origin in (types.UnionType, typing.Union):
        return typing.Union[parts]  # noqa: UP007 - of a tuple
    try:
        return origin[parts]
    except TypeError:  # an alias that can't be subscripted again
        return kind


def _meta(item: Any) -> Any:
    if type(item).__module__.partition(".")[0] != "annotated_types":
        return item
    said = {ours: value for name, ours in _CONSTRAINTS.items() if (value := getattr(item, name, None)) is not None}
    try:
        return msgspec.Meta(**said) if said else item
    except (TypeError, ValueError) as error:
        raise NotJsonType(f"a constraint that JSON Schema can't express, {item!r}: {error}") from error
