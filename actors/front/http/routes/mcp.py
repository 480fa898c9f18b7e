"""The MCP servers that agents share."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from ...access.scopes import READ_MCP, RELOAD_MCP
from ..call import Call, reply
from ..shapes.api import McpInfo, ReloadBody, ReloadReply
from ..table import route

_route = partial(route, tag="mcp")


@_route("GET", "/v1/info/mcp", READ_MCP, gives=McpInfo)
async def status(call: Call) -> Response:
    """The MCP servers, and what their pool did so far."""
    servers = call.hub.mcp_status(call.caller)
    counters = msgspec.to_builtins(call.api.root.mcp.statistics())
    return reply(McpInfo(servers=servers, counters=counters))


@_route("POST", "/v1/mcp/reload", RELOAD_MCP, gives=ReloadReply, optional_body=True)
async def reload(call: Call, body: ReloadBody) -> Response:
    """Read mcp.json again."""
    return reply(ReloadReply(reloaded=await call.hub.mcp_reload(call.caller, body.server)))
