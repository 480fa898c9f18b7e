"""A small MCP server over stdio, which remembers what it is told as long as it lives. Standard library only.

note{text}    does it to the world, and says how many it has been told; kills the program in the midst if it is told so
notes{}       what it was told (readOnlyHint)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "note", "description": "Notes a text.", "inputSchema": TEXT},
    {
        "name": "notes",
        "description": "What was noted.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]
noted: list[str] = []


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that there is not."""
    if method == "initialize":
        server = {"name": "notes", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "ping":
        return {}
    if method != "tools/call":
        return None
    if params["name"] == "note":
        text = params["arguments"]["text"]
        subprocess.run(["sh", "-c", os.environ["DO"].replace("NAME", text)], check=True)
        noted.append(text)
        return {"content": [{"type": "text", "text": str(len(noted))}]}
    return {"content": [{"type": "text", "text": json.dumps(noted)}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
