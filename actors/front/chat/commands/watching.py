"""`.tools`, `.mcp`: what the model may call, and which servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from .....protocol.mcp.config import split
from ....work.tools.registry import OURS
from ..line import Line
from ..table import command
from .looking import counted, table

if TYPE_CHECKING:
    from .....protocol.mcp.status import ServerStatus

MOST_RUNS = 1000


@command(".tools", "Show what the model may call", at_work=True)
async def _tools(line: Line) -> None:
    chat = line.chat
    agent = chat.loop_agent
    if agent is not None:
        own, servers = agent.agent.global_tools, agent.agent.mcp_servers
    else:
        session, settings = chat.place.session, chat.settings
        own = tuple(split(settings.enabled_tools if session.enabled_tools is None else session.enabled_tools))
        named = session.enabled_mcp_servers
        servers = tuple(split(settings.enabled_mcp_servers if named is None else named))
    registry = line.root.registry
    names = await trio.to_thread.run_sync(registry.spelled_out, own)
    known = await trio.to_thread.run_sync(registry.global_names)
    rows: list[tuple[str, object]] = [("tools", ", ".join(names) or "none")]
    rows += [("servers", ", ".join(servers))] if servers else []
    rows += [("also there", ", ".join(sorted({*known, *OURS} - set(names))))]
    await line.say(table(rows))


@command(
    ".mcp", "Show the MCP servers, or start one anew", usage="[reload [server]]", at_work=True, scopes=("admin:mcp",)
)
async def _mcp(line: Line) -> None:
    action, _, server = line.rest.partition(" ")
    if action == "reload":
        names = await line.hub.mcp_reload(line.caller, server.strip() or None)
        await line.note(f"read mcp.json again; {', '.join(names) or 'no server'} will start anew")
        return
    if action:
        raise line.misused()
    servers = line.hub.mcp_status(line.caller)
    await line.say(table([(each.name, _server(each)) for each in servers]) if servers else "mcp.json names no servers.")


def _server(each: ServerStatus) -> str:
    tools = "" if each.tools is None else f", {counted(each.tools, 'tool')}"
    failed = f" ({each.last_error})" if each.last_error else ""
    return f"{each.state}, {each.type}{tools}{failed}"
