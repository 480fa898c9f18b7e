"""Checks values against JSON Schemas (2020-12, or the draft that a schema's `$schema` names).

Schemas come from files, from tools and from strangers' servers: `$ref`s to other documents are not fetched.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

SHOWN = 5
"""Errors of one value that are told at most."""


def schema_errors(value: Any, schema: dict[str, Any]) -> list[str]:
    """Where a value does not fit a schema, one sentence each, with the path."""
    return errors_by(validator(json.dumps(schema)), value)


def errors_by(check: Validator, value: Any) -> list[str]:
    """As `schema_errors`, for whoever keeps the `validator`."""
    from referencing.exceptions import Unresolvable

    try:
        errors = sorted(check.iter_errors(value), key=lambda error: list(map(str, error.path)))
    except Unresolvable as error:
        return [f"the schema refers to what is not in it: {error}"[:300]]
    return [f"{error.json_path}: {error.message[:300]}" for error in errors[:SHOWN]]


@lru_cache(maxsize=256)
def validator(schema: str) -> Validator:
    """The validator of a schema, given as JSON text."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    parsed = json.loads(schema)
    kind = validator_for(parsed, default=Draft202012Validator)
    return kind(parsed, registry=Registry())
