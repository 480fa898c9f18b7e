"""`.tools`, `.mcp`, `.ps`, `.attach`: what the model may call, which servers run, and what else goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.control import chat as frames
from .....protocol.errors import Conflict, NotFound
from .....protocol.mcp.config import split
from ....work.tools.registry import OURS
from ..line import Line
from ..table import command
from .looking import counted, table

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from .....protocol.mcp.status import ServerStatus
    from ...control.logs.reading import LoggedEvent
    from ..chat import Chat

MOST_RUNS = 1000


@command(".ps", "Show the runs under way", at_work=True, scopes=("read:runs",))
async def _ps(line: Line) -> None:
    runs, _ = line.hub.page(line.caller, status=None, limit=MOST_RUNS, before=None)
    shown = [
        (each.run, f"{each.status:<9} {each.name or each.target}  {each.title}".rstrip())
        for each in runs
        if not each.over
    ]
    await line.say(table(shown) if shown else "Nothing runs.")


def _runs(chat: Chat, caller: Caller, words: Sequence[str]) -> list[tuple[str, str]]:
    if len(words) > 1 or not caller.has("read:runs"):
        return []
    runs, _ = chat.hub.page(caller, status=None, limit=20, before=None)
    return [(each.run, f"{each.status} {each.title or each.name}") for each in runs]


@command(
    ".attach",
    "Watch a run, as if it answered here",
    usage="<run>",
    scopes=("read:runs",),
    in_macros=False,
    completes=_runs,
)
async def _attach(line: Line) -> None:
    word = line.rest
    if not word:
        raise line.misused()
    runs, _ = line.hub.page(line.caller, status=None, limit=MOST_RUNS, before=None)
    found = [each for each in runs if each.run == word] or [
        each for each in runs if each.run.startswith((word, f"run-{word}"))
    ]
    if not found:
        raise NotFound(f"there is no run {word[:60]!r}; .ps shows those under way")
    if len(found) > 1:
        raise Conflict(
            f"{word[:60]!r} begins the ids of {len(found)} runs: {', '.join(each.run for each in found[:5])}"
        )
    run = found[0]
    await line.person.began(frames.Began(chat=line.chat.id, run=run.run, prompt="", title=run.name or run.target))

    async def passed_over(_: LoggedEvent) -> None:
        await trio.lowlevel.checkpoint()

    with line.chat.attached_to(run.run):
        await line.hub.follow(line.caller, run.run, passed_over, run.seq if run.over else 0)
    line.run, line.status = run.run, line.hub.get(line.caller, run.run).status


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
