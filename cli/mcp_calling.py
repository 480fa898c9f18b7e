"""What `callboard mcp call` does: one tool of a server, called by hand exactly as an agent calls it."""

from __future__ import annotations

import os
import shlex
import sys

from .. import Limits, Root
from ..actors.work.context import AgentCall, RunContext
from ..actors.work.mcp.pool.scope import Scope
from ..actors.work.mcp.tools.direct import direct_tool
from ..actors.work.mcp.tools.elicitation import UNANSWERED
from ..actors.work.mcp.tools.names import offered_name
from ..actors.work.mcp.tools.view import Talk, View
from ..actors.work.tools.permissions import Permissions
from ..actors.work.tools.tool import shortened
from ..protocol.chat import ToolTurn
from ..protocol.errors import NobodyToAsk, UsageError
from ..protocol.events import Event, Warned
from ..protocol.mcp.model import Tool
from ..protocol.problems import did_you_mean
from ..supervisors import Actor
from . import flag_values
from .calling import check, play, tell
from .frame import act, person_at_terminal
from .mcp_servers import tell_if_off
from .render.plain import choose
from .render.text import redrawable, safe
from .stdin import piped_text

_SHOWN = 2_000
"""Characters of the names that an error lists."""


def call_tool(
    *,
    server: str,
    tool: str,
    arguments: str,
    yes: bool,
    allow: tuple[str, ...],
    no_input: bool,
    verbose: bool,
    as_json: bool,
    config_dir: str | None,
) -> int:
    """Calls the tool; returns the exit code. The arguments are the flags of `callboard mcp call`.

    Raises:
        UsageError: there is no such server or tool, or the arguments don't fit.
        McpError, McpLost, ConfigError: the server can't be reached.
    """
    person = person_at_terminal(no_input=no_input)
    given = flag_values.arguments(piped_text() if arguments == "-" else arguments)
    unanswered: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event.data, Warned) and event.data.code == UNANSWERED:
            unanswered.append(event.data.message)

    async def by_hand(me: Actor, root: Root) -> ToolTurn:
        entry, context = root.mcp.config.get(server), _context(root, yes, allow)
        tell_if_off(root)
        with me.stream.listen(hear), root.mcp.scope(run=me.stream.run, agent=me.path) as scope:
            view = View(talk=Talk(scope=scope, context=context), server=entry)
            found = await view.admitted(me, lambda: _tool(me, scope, server, tool))
            show = f"callboard mcp tools {shlex.quote(server)} -o json"
            check(given, found.input_schema, show)
            return await play(me, direct_tool(view, found), given, context.permissions)

    quiet = not (verbose or redrawable(sys.stderr))
    progress = choose(sys.stderr, quiet=quiet, verbose=verbose, prompting=person, by_hand=True)
    turn = act(by_hand, config_dir=config_dir, progress=progress, person=person)
    for text in unanswered if quiet else ():
        sys.stderr.write(f"callboard: {safe(text)}\n")
    code = tell(turn, as_json=as_json)
    return NobodyToAsk.exit_code if code and unanswered else code


async def _tool(me: Actor, scope: Scope, server: str, name: str) -> Tool:
    """The tool, under its own name or the one that models know it by, as the running server has it."""
    async with scope.client(server, me):
        catalog = await scope.catalog(server, me)
    for tool in catalog.tools:
        if name in (tool.name, offered_name(server, tool.name)):
            return tool
    names = [tool.name for tool in catalog.tools]
    hint = did_you_mean(name, names) or f"there are: {shortened(', '.join(names), _SHOWN) or 'none'}"
    raise UsageError(f"MCP server '{server}' has no tool '{name}'; {hint}")


def _context(root: Root, yes: bool, allow: tuple[str, ...]) -> RunContext:
    rules, allowed = root.registry.permissions(root.settings.permissions), root.registry.spelled_out(allow)
    return RunContext(
        gateway=root.gateway,
        limits=Limits(),
        config_dir=root.config_dir,
        environ=os.environ,
        run_agent=_no_agents,
        permissions=Permissions(rules, allowed=allowed, yes=yes, once=True),
        settings=root.settings,
        mcp=lambda: root.mcp,
    )


async def _no_agents(_me: Actor, _call: AgentCall) -> str:
    raise AssertionError("a call by hand has no agents")
