"""JSON Schema of `graph.yaml`, for editors: made from the structs, so that the two can't drift apart."""

from __future__ import annotations

from typing import Any

from ..schema import schema_of
from .model import NODE_TYPES, GraphFile


def graph_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `graph.yaml`.

    A file may point to it in its first line: `# yaml-language-server: $schema=./graph.schema.json`.
    """
    schema = schema_of(GraphFile, title="Callboard graph agent (graph.yaml)")
    schema["properties"]["nodes"]["additionalProperties"] = _node()
    return schema


def _node() -> dict[str, Any]:
    """A node: its `type` decides what else it has.

    Written with `if` and not as a choice of eight, so that an editor complains about the one key that is wrong.
    """
    return {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": list(NODE_TYPES), "description": "What kind of step this is."}},
        "allOf": [
            {
                "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
                "then": {"$ref": f"#/$defs/{cls.__name__}"},
            }
            for kind, cls in NODE_TYPES.items()
        ],
    }
