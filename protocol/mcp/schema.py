"""JSON Schema of `mcp.json`, for editors: `Server`, and the liberties that `read_config` takes."""

from __future__ import annotations

from typing import Any

import msgspec

from ..schema import schema_of
from .config import Server, ToolList
from .read_config import TYPES


class _File(msgspec.Struct, frozen=True, kw_only=True, rename={"servers": "mcpServers"}):
    servers: dict[str, Server]
    tools: ToolList = ToolList()


def mcp_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `mcp.json`. A file may name it under `$schema`."""
    schema = schema_of(_File, title="Callboard MCP servers (mcp.json)")
    del schema["properties"]["tools"]
    schema["properties"]["$schema"] = {"type": "string"}
    server = schema["$defs"]["Server"]
    server["description"] = "One MCP server."
    keys = server["properties"]
    for ours in ("name", "where"):
        del keys[ours]
    del server["required"]
    keys["type"] = {"enum": [*TYPES], "description": keys["type"]["description"]}
    for texts in ("env", "headers"):
        keys[texts]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    keys["tools"]["anyOf"].append({"type": "array", "items": {"type": "string"}})
    server["oneOf"] = [{"required": ["command"]}, {"required": ["url"]}]
    return schema
