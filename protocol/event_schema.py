"""JSON Schema of the event stream, for those who read it in other languages."""

from __future__ import annotations

from typing import Any

import msgspec

from .events import KINDS, SCHEMA_VERSION


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one event on the wire; `data` depends on `kind`."""
    schemas, components = msgspec.json.schema_components(list(KINDS.values()), ref_template="#/$defs/{name}")
    text = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard event",
        "type": "object",
        "required": ["schema_version", "seq", "ts", "run", "actor", "kind", "data"],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "seq": {"type": "integer", "minimum": 1},
            "ts": {"type": "string", "format": "date-time"},
            "run": text,
            "actor": text,
            "parent": text,
            "kind": {"enum": sorted(KINDS)},
            "id": text,
            "corr": text,
            "data": {"type": "object"},
        },
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"data": schema}}}
            for kind, schema in zip(KINDS, schemas, strict=True)
        ],
        "$defs": components,
    }
