"""A server behind three tools, however many it has: `mcp_search_<server>`, `mcp_describe_<server>` and
`mcp_invoke_<server>`.

Names, arguments and results are Loki's. The server is asked for its tools when the first of the three is called, not
before. What `mcp_invoke_*` may do is decided as if the tool it names were called by itself (`direct`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

import msgspec

from .....protocol.errors import ToolFailed
from .....protocol.mcp.model import Tool as ServerTool
from .....protocol.problems import did_you_mean
from .....supervisors import Actor
from ...tools.tool import Arguments, Json, Run, Tool, ToolSpec, shortened
from .direct import direct_tool, without_bytes
from .names import marked, meta_name, offered_name, other_name
from .search import search
from .view import UNREACHABLE, View

FOUND, MOST_FOUND = 8, 20
"""How many tools a search returns if it does not say, and at most."""

_FAILED = {"search": "MCP search failed", "describe": "MCP describe failed", "invoke": "MCP tool invocation failed"}
_LONGEST_DESCRIPTION = 1_000

_TOOL = {"type": "string", "description": "Name of the tool, as the search tells it."}
_GIVEN = {"anyOf": [{"type": "object"}, {"type": "string"}], "default": {}, "description": "As described."}
_SEARCH = {
    "query": {"type": "string", "description": "What the tool should do, in a few words; empty for any tool."},
    "top_k": {"type": "integer", "default": FOUND, "description": f"How many tools at most, up to {MOST_FOUND}."},
}


def meta_tools(view: View, taken: Container[str] = ()) -> list[Tool]:
    """The three tools of a server, in the order of `names.VERBS`.

    Args:
        taken: names that others have; of two servers whose names look alike (`a.b`, `a_b`) the second is marked.
    """
    name = view.server.name
    about = f": {view.server.description.strip()}" if view.server.description.strip() else ""

    async def run_search(me: Actor, arguments: Arguments) -> Json:
        tools = await _tools(me, view, "search")
        most = min(max(int(arguments.get("top_k", FOUND)), 1), MOST_FOUND)
        return [
            {
                "name": tool.name,
                "server": name,
                "description": shortened(tool.description or tool.title or "", _LONGEST_DESCRIPTION),
            }
            for tool in search(arguments["query"], name, tools, most)
        ]

    async def run_describe(me: Actor, arguments: Arguments) -> Json:
        tool = await _named(me, view, arguments["tool"], "describe")
        properties = {"tool": {"type": "string"}, "arguments": tool.input_schema}
        schema: dict[str, Json] = {"type": "object", "properties": properties}
        return {"description": tool.description, **schema} if tool.description else schema

    async def meant(me: Actor, arguments: Arguments) -> tuple[Tool, Arguments]:
        tool = await _named(me, view, arguments["tool"], "invoke")
        return _invoked(view, tool), _object(arguments.get("arguments"))

    async def run_invoke(me: Actor, arguments: Arguments) -> Json:
        tool, given = await meant(me, arguments)
        return await tool.run(me, given)

    def one(verb: str, run: Run, description: str, **properties: Json) -> Tool:
        required = [key for key, schema in properties.items() if "default" not in schema]
        parameters = {"type": "object", "properties": properties, "required": required}
        own = meta_name(verb, name)
        own = marked(f"mcp_{verb}_{name}") if own in taken else own
        spec = ToolSpec(name=own, description=description, parameters=parameters)
        return Tool(spec=spec, run=run, alias=other_name(verb, name), origin="mcp")

    invoke = one("invoke", run_invoke, f"Call a tool of the MCP server '{name}'.", tool=_TOOL, arguments=_GIVEN)
    return [
        one("search", run_search, f"Search the tools of the MCP server '{name}'{about}.", **_SEARCH),
        one("describe", run_describe, f"Tell which arguments a tool of the MCP server '{name}' takes.", tool=_TOOL),
        msgspec.structs.replace(invoke, means=meant, timeout=None),
    ]


def _invoked(view: View, tool: ServerTool) -> Tool:
    """The tool as `mcp_invoke_*` calls it: the same for permissions, but its answer stays as it came."""
    direct = direct_tool(view, tool)

    async def run(me: Actor, arguments: Arguments) -> Json:
        try:
            return without_bytes(await view.call(me, tool.name, arguments, direct.name))
        except ToolFailed as error:
            raise ToolFailed(f"{_FAILED['invoke']}: {error}") from error

    return msgspec.structs.replace(direct, spec=ToolSpec(name=direct.name), run=run)


async def _tools(me: Actor, view: View, verb: Literal["search", "describe", "invoke"]) -> list[ServerTool]:
    try:
        return await view.tools(me)
    except UNREACHABLE as error:
        raise ToolFailed(f"{_FAILED[verb]}: {error}") from error


async def _named(me: Actor, view: View, name: str, verb: Literal["describe", "invoke"]) -> ServerTool:
    """The tool of this name, or of the name it is offered by in direct mode."""
    server = view.server.name
    tools = await _tools(me, view, verb)
    for tool in tools:
        if name in (tool.name, offered_name(server, tool.name)):
            return tool
    near = did_you_mean(name[:100], [tool.name for tool in tools])
    text = f"{_FAILED[verb]}: {shortened(name, 100)} not found in {server} MCP server catalog"
    raise ToolFailed(f"{text}; {near}" if near else text)


def _object(value: Json) -> Arguments:
    """Arguments given as an object, or as its JSON text."""
    if isinstance(value, str) and value.strip():
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ToolFailed(f"{_FAILED['invoke']}: 'arguments' is no JSON object ({error})") from None
    if not value:
        return {}
    if not isinstance(value, dict):
        raise ToolFailed(f"{_FAILED['invoke']}: 'arguments' has to be a JSON object")
    return value
