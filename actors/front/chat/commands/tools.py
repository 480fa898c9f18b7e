"""`.tools`, `.permissions`, `.mcp`: available tools, permissions without a question, and MCP servers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .....protocol.control.caller import LOCAL
from .....protocol.errors import UsageError
from .....protocol.mcp.config import split
from .....protocol.permissions import PermissionRule, Verdict
from .....protocol.role import role_of_prompt
from ....io.secret_redaction import hidden
from ....runs.target import GraphAgent, LoopAgent, WorkflowAgent
from ....work.roles import find
from ....work.tools.permissions import StoredAnswers
from ....work.tools.registry import agent_file, read_tool_file
from ....work.trust import offers, record_of, refuse, root_of, rows_of, trust, undecided, workspace_of
from ....work.workspace import unused
from .. import completion
from ..command_line import ChatLine, command
from .info import LONGEST, counted, table

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from .....protocol.control.resources import ServerStatus
    from ..chat import Chat


MOST_RUNS = 1000


@command(".tools", "Show what the model may call", at_work=True)
async def _tools(line: ChatLine) -> None:
    loaded = line.chat.loaded
    if isinstance(loaded, WorkflowAgent):
        raise UsageError(
            f"'{line.chat.agent}' is a workflow: each of its nodes names its own tools, in the workflow's file"
        )
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
        rows += [("also there", f"{', '.join(others)}; let the model use them with `.set enabled_tools NAME,NAME`")]
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


@command(".permissions", "Show which tools run without asking", at_work=True, scopes=("run:files",))
async def _permissions(line: ChatLine) -> None:
    settings, kept = line.chat.settings, StoredAnswers(Path.cwd(), os.environ)
    sandbox = settings.sandbox
    rows: list[tuple[str, object]] = [("sandbox", sandbox if isinstance(sandbox, str) else sandbox.profile)]
    rows += [(f"config.yaml: {name}", _rule(rule)) for name, rule in settings.permissions.items()]
    for each in await trio.to_thread.run_sync(kept.all):
        what = f"may {each.subject}" if each.beyond else each.subject or "any call"
        rows.append((f"permanently allowed in this directory: {each.tool}", " ".join(what.split())[:LONGEST]))
    rows.append(("all others", "tools that write, execute or send need approval; other tools run without asking"))
    await line.say(
        f"{table(rows)}\n\n`callboard permissions explain COMMAND` shows whether a call is allowed, and why."
    )


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
        await line.note(f"mcp.json was read again; restarting {', '.join(names) or 'no server'}")
        return
    if action:
        raise line.misused()
    servers = line.hub.mcp_status(line.caller)
    await line.say(
        table([(each.name, _server(each)) for each in servers]) if servers else "mcp.json configures no servers."
    )


def _server(each: ServerStatus) -> str:
    tools = "" if each.tools is None else f", {counted(each.tools, 'tool')}"
    failed = f" ({each.last_error})" if each.last_error else ""
    return f"{each.state}, {each.type}{tools}{failed}"


_YES, _NO, _LATER = "Yes, load them", "No, and do not ask again", "Not now"


def asks_for_trust(caller: Caller) -> bool:
    """Return True if the local user must decide about the directory; reads none of its files."""
    if caller.subject != LOCAL.subject:
        return False
    workspace = workspace_of(Path.cwd(), os.environ)
    decided = workspace is None or workspace.is_trusted or workspace.is_refused
    return workspace is not None and not decided and offers(workspace, Path.cwd()) != ""


def _words(_chat: Chat, _caller: Caller, words: Sequence[str]) -> completion.Names:
    if len(words) > 1:
        return []
    return [("yes", "load them"), ("no", "load nothing, and do not ask again")]


@command(
    ".trust",
    "Load this directory's AGENTS.md, skills, hooks and servers",
    usage="[yes|no]",
    scopes=("run:files", "admin:mcp"),
    in_macros=False,
    completes=_words,
)
async def _trust(line: ChatLine) -> None:
    if line.rest not in ("", "yes", "no"):
        raise line.misused()
    root = root_of(Path.cwd(), os.environ)
    if root is None:
        raise UsageError(
            "Nothing is loaded from the home directory or a directory above it: neither counts as a repository."
        )
    # The user sees the state here, so runs need not warn of ignored files again.
    line.chat.warned.update(str(each) for each in (unused(root, Path.cwd(), os.environ),) if each is not None)
    record = record_of(root, os.environ)
    files = await trio.to_thread.run_sync(undecided, root, os.environ)
    if not files and line.rest != "no":
        state = (
            "all files for agents are loaded"
            if record is not None and record.trusted
            else "there are no files for agents"
        )
        await line.note(f"{root}: {state}")
        return
    picked = {"yes": _YES, "no": _NO}.get(line.rest)
    if picked is None:
        known = record is not None and record.trusted
        changed = (
            "The files for agents in this directory have changed since you trusted them"
            if known
            else "This directory has files for agents"
        )
        rows = await trio.to_thread.run_sync(rows_of, root, files)
        until = "Until you trust them, no model reads them and nothing in them runs."
        asked = f"{changed} in {root}. Load them?\n{table(rows)}\n{until}"
        picked = await line.choose(hidden(asked), [_YES, _NO, _LATER], default=_LATER)
    if picked == _YES:
        await trio.to_thread.run_sync(trust, root, os.environ)
        await line.note("Takes effect with the next prompt. You are asked again when a file changes.")
    elif picked == _NO:
        await trio.to_thread.run_sync(refuse, root, os.environ)
        await line.note("None of these files is loaded; load them with `.trust yes`.")
    else:
        await line.note("The files are not loaded in this chat; to be asked again, use `.trust`.")
