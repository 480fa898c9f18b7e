"""JSON Schema (2020-12) of structs that describe a file, for editors, and the mark of keys without an effect.

msgspec generates the types, their bounds and their descriptions. Its schema lacks the differences between our reader
and its decoder: keys that begin with `x-` are allowed everywhere, a key without a value counts as missing, and some
lists with one item may be written without brackets.

A file may have keys that Callboard accepts and does not use. Their fields are marked:

    skills_enabled: Annotated[bool | None, no_effect("there are no skills here yet")] = None

The mark appears in the schema, and the reader of structs (`reading`) warns about such a key, so that nothing is ignored
silently. A test checks all structs: a field that no module reads must have the mark, and a field that is read must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
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


Schema = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)


def by_tag(*kinds: type[T]) -> dict[str, type[T]]:
    """Return structs by their tags, which files write as `type`; pass the members of a union."""
    return {str(kind.__struct_config__.tag): kind for kind in kinds}


def schema_of(cls: type[msgspec.Struct], *, title: str) -> Schema:
    """Return the schema of a file with the top level `cls`, with all referenced structs under `$defs`."""
    (_, components) = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    definitions = {name: as_read(schema) for name, schema in components.items()}
    top = definitions.pop(cls.__name__)
    top["title"] = title
    schema: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **top}
    if definitions:
        schema["$defs"] = definitions
    return schema


def by_type(blocks: Mapping[str, Schema]) -> list[Schema]:
    """Return the `allOf` of a block whose `type` determines its other keys.

    It uses `if` instead of a choice, so that an editor reports the one wrong key.
    """
    return [
        {"if": {"properties": {"type": {"const": kind}}, "required": ["type"]}, "then": then}
        for kind, then in blocks.items()
    ]


def as_read(schema: Schema) -> Schema:
    """Return a struct's schema with the exceptions of our reader."""
    properties: dict[str, Schema] | None = schema.get("properties")
    if properties is None:
        return schema
    required = schema.get("required", [])
    for key, value in properties.items():
        if key not in required:
            properties[key] = _or_nothing(value)
    # `additionalProperties: false` does not apply to keys that match a pattern here.
    schema["patternProperties"] = {"^x-": {}}
    return schema


def _or_nothing(schema: Schema) -> Schema:
    if schema.pop("x-one-or-many", False):
        return {**schema, "anyOf": [{"type": "string"}, *schema["anyOf"]]}
    if schema.pop("x-number-too", False):
        return {**schema, "type": ["string", "number", "null"]}
    if schema.pop("x-joined", False):
        names = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
        described = {key: value for key, value in schema.items() if key != "type"}
        return {**described, "anyOf": [{"type": "string"}, names, {"type": "null"}]}
    kind = schema.get("type")
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]} | ({"type": _with_null(kind)} if kind else {})
    if kind is not None:
        return {**schema, "type": _with_null(kind)}
    choices = schema.get("anyOf")
    if choices is not None and {"type": "null"} not in choices:
        return {**schema, "anyOf": [*choices, {"type": "null"}]}
    if "$ref" in schema:
        outer = {key: value for key, value in schema.items() if key != "$ref"}
        return {**outer, "anyOf": [{"$ref": schema["$ref"]}, {"type": "null"}]}
    return schema


def _with_null(kind: str | list[str]) -> list[str]:
    kinds = [kind] if isinstance(kind, str) else list(kind)
    return kinds if "null" in kinds else [*kinds, "null"]
