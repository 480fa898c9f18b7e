"""A small MCP server over stdio, which tests write into a file and start: its tools, and what each call does."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

_PROGRAM = """
import json, os, subprocess, sys

TOOLS = json.loads({tools!r})

def called(name, arguments):
{code}

def answer(message):
    method, params = message["method"], message.get("params", {{}})
    if method == "initialize":
        info = {{"name": "scripted", "version": "1"}}
        return {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}, "serverInfo": info}}
    if method == "tools/list":
        return {{"tools": TOOLS}}
    text = called(params["name"], params.get("arguments", {{}}))
    return {{"content": [{{"type": "text", "text": text}}]}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}}), flush=True)
"""


def scripted_server(code: str, **tools: Mapping[str, Any]) -> str:
    """Its program.

    Args:
        code: the body of a function of `name` and `arguments` that returns the text of a call's result. It has `json`,
            `os`, `subprocess`, `sys`.
        tools: what is said of each, besides its name; a description and a schema without properties are there.
    """
    usual = {"description": "Does something.", "inputSchema": {"type": "object"}}
    listed = [{"name": name, **usual, **more} for name, more in tools.items()]
    return _PROGRAM.format(tools=json.dumps(listed), code=textwrap.indent(textwrap.dedent(code), "    "))
