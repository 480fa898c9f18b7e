"""JSON Schema of the event stream, for readers in other languages."""

from __future__ import annotations

from typing import Any

import msgspec

from .events import KINDS, SCHEMA_VERSION


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one event on the wire: one of the kinds, distinguished by `kind`."""
    schemas, components = msgspec.json.schema_components(list(KINDS.values()), ref_template="#/$defs/{name}")
    kinds = event_kinds(schemas)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard event",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": {**components, **kinds},
    }


def event_kinds(schemas: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the envelope of each kind under a name such as `RunStartedEvent`.

    Args:
        schemas: schemas of the payloads, in the order of `KINDS`.
    """
    made = zip(KINDS.items(), schemas, strict=True)
    return {f"{kind.__name__}Event": _envelope(name, schema) for (name, kind), schema in made}


def _envelope(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        # `parent`, `id` and `corr` are omitted if they are empty (`omit_defaults`).
        "required": ["schema_version", "seq", "ts", "run", "actor", "kind", "data"],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "seq": {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
            "ts": {"type": "string", "format": "date-time"},
            "run": text,
            "actor": text,
            "parent": text,
            "kind": {"const": kind},
            "id": text,
            "corr": text,
            "data": data,
        },
    }
