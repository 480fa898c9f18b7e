"""An MCP server over stdio, cheap enough never to be what is measured: `echo` gives back the text that it got.

    python -S benchmarks/harness/mcp_server.py

It knows both eras of the protocol and checks nothing.
"""

from __future__ import annotations

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL = {"name": "echo", "description": "Gives back the text.", "inputSchema": SCHEMA}
ABOUT = {"name": "echo", "version": "1"}
PAGE = {"ttlMs": 0, "cacheScope": "private"}
RESULTS = {
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "_meta": {"io.modelcontextprotocol/serverInfo": ABOUT},
        "resultType": "complete",
        **PAGE,
    },
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": ABOUT},
    "tools/list": {"tools": [TOOL], "resultType": "complete", **PAGE},
}


def main() -> None:
    """Serve until stdin ends."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = RESULTS.get(request["method"])
        if result is None:
            text = request["params"]["arguments"]["text"]
            result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
        out.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
