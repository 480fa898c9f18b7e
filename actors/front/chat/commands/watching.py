"""`.tools`, `.permissions`, `.mcp`: available tools, permissions without a question, and MCP servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import UsageError
from .....protocol.mcp.config import split
from .....protocol.permissions import PermissionRule, Verdict
from .....protocol.role import role_of_prompt
from ....runs.target import GraphAgent, LoopAgent, WorkflowAgent
from ....work.roles.files import find
from ....work.tools.registry import agent_file, read_tool_file
from ....work.tools.stored_answers import StoredAnswers
from ..line import ChatLine
from ..table import command
from .looking import LONGEST, counted, table

if TYPE_CHECKING:
    from .....protocol.mcp.status import ServerStatus

MOST_RUNS = 1000


@command(".tools", "Show what the model may call", at_work=True)
async def _tools(line: ChatLine) -> None:
    loaded = line.chat.loaded
    if isinstance(loaded, WorkflowAgent):
        raise UsageError(f"'{line.chat.agent}' is a workflow: each of its nodes names its own tools, in its file")
    registry = line.root.registry
    if loaded is not None:
        about = loaded.graph if isinstance(loaded, GraphAgent) else loaded.agent
        listed, servers = tuple(about.global_tools), tuple(about.mcp_servers)
        own = await trio.to_thread.run_sync(_of_its_file, loaded)
    else:
        listed, servers = await line.root.loader.threaded(lambda: _without_agent(line))
        own = []
    known = await trio.to_thread.run_sync(registry.global_names)
    named = [name for name in await trio.to_thread.run_sync(registry.spelled_out, listed) if name in known]
    rows = [("tools", ", ".join(dict.fromkeys((*own, *named))) or "none")]
    rows += [("servers", ", ".join(servers))] if servers else []
    if loaded is None and (others := sorted(set(known) - set(named))):
        rows += [("also there", f"{', '.join(others)}; `.set enabled_tools NAME,NAME` has the model use them")]
    await line.say(table(rows))


def _of_its_file(loaded: GraphAgent | LoopAgent) -> list[str]:
    """Return the tools of an agent's own file, which was valid when the agent started."""
    path = agent_file(loaded.directory) if loaded.directory is not None else None
    return [] if path is None else [each.name for each in read_tool_file(path, agent=True).declarations]


def _without_agent(line: ChatLine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tools and servers of the first source that names them: session, role, or settings."""
    chat = line.chat
    session, settings = chat.place.session, chat.settings
    if session.enabled_tools is not None or session.enabled_mcp_servers is not None:  # these override the role's
        tools = settings.enabled_tools if session.enabled_tools is None else session.enabled_tools
        named = session.enabled_mcp_servers
        return tuple(split(tools)), tuple(split(settings.enabled_mcp_servers if named is None else named))
    role = find(chat.role, line.root.config_dir) if chat.role is not None else None
    role = role_of_prompt(chat.role_prompt) if chat.role_prompt is not None else role
    of_role, servers = (role.tools, role.servers) if role is not None else (None, None)
    return (
        tuple(split(settings.enabled_tools)) if of_role is None else of_role,
        tuple(split(settings.enabled_mcp_servers)) if servers is None else servers,
    )


@command(".permissions", "Show what tools may do without asking", at_work=True, scopes=("run:files",))
async def _permissions(line: ChatLine) -> None:
    settings, kept = line.chat.settings, StoredAnswers(Path.cwd(), os.environ)
    sandbox = settings.sandbox
    rows: list[tuple[str, object]] = [("sandbox", sandbox if isinstance(sandbox, str) else sandbox.profile)]
    rows += [(f"config.yaml: {name}", _rule(rule)) for name, rule in settings.permissions.items()]
    for each in await trio.to_thread.run_sync(kept.all):
        what = f"may {each.subject}" if each.beyond else each.subject or "any call"
        rows.append((f"allowed for good here: {each.tool}", " ".join(what.split())[:LONGEST]))
    rows.append(("all others", "tools that write, run or send something ask; all else goes ahead"))
    await line.say(f"{table(rows)}\n\n`callboard permissions explain COMMAND` says what becomes of a call, and why.")


def _rule(rule: Verdict | PermissionRule) -> str:
    if isinstance(rule, str):
        return rule
    said = ((verdict, getattr(rule, verdict)) for verdict in ("allow", "ask", "deny"))
    return "; ".join(f"{verdict} {', '.join(patterns)}" for verdict, patterns in said if patterns)


@command(".mcp", "Show the MCP servers, or restart one", usage="[reload [server]]", at_work=True, scopes=("admin:mcp",))
async def _mcp(line: ChatLine) -> None:
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
