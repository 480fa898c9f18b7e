"""Validates values against JSON Schemas (2020-12, or the draft that a schema's `$schema` names).

Schemas come from files, from tools and from strangers' servers: `$ref`s to other documents are not fetched.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

LIBRARY = ("jsonschema", "referencing.exceptions")
"""What a task awaits as `imported` before it checks its first value."""

SHOWN = 5
"""Errors that are reported per value."""


_ENDLESS = "$: the value nests too deep to be checked, or the schema refers to itself without end"


def schema_errors(value: Any, schema: dict[str, Any]) -> list[str]:
    """Where a value does not fit a schema, one sentence each, with the path."""
    return errors_by(validator(json.dumps(schema)), value)


def errors_by(check: Validator, value: Any) -> list[str]:
    """`schema_errors` for a caller that keeps the `validator`."""
    from referencing.exceptions import Unresolvable

    try:
        errors = sorted(check.iter_errors(value), key=lambda error: list(map(str, error.path)))
    except Unresolvable as error:
        return [f"the schema refers to what is not in it: {error}"[:300]]
    except RecursionError:
        return [_ENDLESS]
    except BaseException as error:  # the library's registry is Rust, which makes a panic of a RecursionError
        if type(error).__name__ != "PanicException":
            raise
        return [_ENDLESS]
    return [f"{error.json_path}: {error.message[:300]}" for error in errors[:SHOWN]]


def quick(schema: dict[str, Any]) -> dict[str, Any]:
    """What of a stranger's schema can be checked in no time, whatever it says: types, names, bounds, choices.

    Left out is what one can be made of that takes a check for ever (patterns, references that fan out), and what makes
    no sense without that. So a value that fits the schema fits this one; the other way around the stranger has to look.
    """
    if "$ref" in schema or "$dynamicRef" in schema:
        return {}
    kept = {key: schema[key] for key in _PLAIN if key in schema}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        kept["properties"] = {name: _quick(each) for name, each in properties.items()}
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            kept["additionalProperties"] = False
    if isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
        kept["items"] = _quick(schema["items"])
    if isinstance(schema.get("anyOf"), list):
        kept["anyOf"] = [_quick(each) for each in schema["anyOf"]]
    return kept


def _quick(schema: Any) -> Any:
    return quick(schema) if isinstance(schema, dict) else schema


_PLAIN = (
    "$schema", "type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip


@lru_cache(maxsize=256)
def validator(schema: str) -> Validator:
    """The validator of a schema, given as JSON text."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    parsed = json.loads(schema)
    kind = validator_for(parsed, default=Draft202012Validator)
    return kind(parsed, registry=Registry())
