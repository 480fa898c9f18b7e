"""JSON Schema (2020-12) of structs that describe a file, for editors.

msgspec generates the types, their bounds and their descriptions. Its schema lacks the differences between our reader
and its decoder: keys that begin with `x-` are allowed everywhere, a key without a value counts as missing, and some
lists with one item may be written without brackets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

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
