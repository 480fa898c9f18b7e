"""The MCP servers that agents share."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ..call import Call, reply
from ..shapes.api import McpInfo, ReloadBody, ReloadReply
from ..table import Route


async def status(call: Call) -> Response:
    """How they stand."""
    servers = call.hub.mcp_status(call.caller)
    counters = msgspec.to_builtins(call.api.root.mcp.statistics())
    return reply(McpInfo(servers=servers, counters=counters))


async def reload(call: Call, body: ReloadBody) -> Response:
    """Read `mcp.json` again, and start anew what has changed."""
    return reply(ReloadReply(reloaded=await call.hub.mcp_reload(call.caller, body.server)))


ROUTES = (
    Route(
        method="GET",
        path="/v1/info/mcp",
        handler=status,
        summary="The MCP servers, and what their pool did so far",
        tag="mcp",
        gives=McpInfo,
    ),
    Route(
        method="POST",
        path="/v1/mcp/reload",
        handler=reload,
        summary="Read mcp.json again",
        tag="mcp",
        body=ReloadBody,
        optional_body=True,
        gives=ReloadReply,
    ),
)
