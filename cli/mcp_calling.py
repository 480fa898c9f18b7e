"""What `callboard mcp call` does: one tool of a server, called by hand exactly as an agent calls it."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class McpCall:
    """The flags of `callboard mcp call`, as click read them."""

    server: str
    tool: str
    arguments: str
    yes: bool
    allow: tuple[str, ...]
    no_input: bool
    verbose: bool
    as_json: bool
    config_dir: str | None


def call_tool(request: McpCall) -> int:
    """Calls the tool; returns the exit code.

    Raises:
        UsageError: there is no such server or tool, or the arguments don't fit.
        McpError, McpLost, ConfigError: the server can't be reached.
    """
    person = person_at_terminal(no_input=request.no_input)
    arguments = flag_values.arguments(piped_text() if request.arguments == "-" else request.arguments)
    unanswered: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event.data, Warned) and event.data.code == UNANSWERED:
            unanswered.append(event.data.message)

    async def by_hand(me: Actor, root: Root) -> ToolTurn:
        server, context = root.mcp.config.get(request.server), _context(root, request)
        tell_if_off(root)
        with me.stream.listen(hear), root.mcp.scope(run=me.stream.run, agent=me.path) as scope:
            found = await _tool(me, scope, request)
            show = f"callboard mcp tools {shlex.quote(request.server)} -o json"
            check(arguments, found.input_schema, show)
            view = View(talk=Talk(scope=scope, context=context), server=server)
            return await play(me, direct_tool(view, found), arguments, context.permissions)

    quiet = not (request.verbose or redrawable(sys.stderr))
    progress = choose(sys.stderr, quiet=quiet, verbose=request.verbose, prompting=person, by_hand=True)
    turn = act(by_hand, config_dir=request.config_dir, progress=progress, person=person)
    for text in unanswered if quiet else ():
        sys.stderr.write(f"callboard: {safe(text)}\n")
    code = tell(turn, as_json=request.as_json)
    return NobodyToAsk.exit_code if code and unanswered else code


async def _tool(me: Actor, scope: Scope, request: McpCall) -> Tool:
    """The tool, under its own name or the one that models know it by, as the running server has it."""
    async with scope.client(request.server, me):
        catalog = await scope.catalog(request.server, me)
    for tool in catalog.tools:
        if request.tool in (tool.name, offered_name(request.server, tool.name)):
            return tool
    names = [tool.name for tool in catalog.tools]
    hint = did_you_mean(request.tool, names) or f"there are: {shortened(', '.join(names), _SHOWN) or 'none'}"
    raise UsageError(f"MCP server '{request.server}' has no tool '{request.tool}'; {hint}")


def _context(root: Root, request: McpCall) -> RunContext:
    rules, allowed = root.shelf.permissions(root.settings.permissions), root.shelf.spelled_out(request.allow)
    return RunContext(
        gateway=root.gateway,
        limits=Limits(),
        config_dir=root.config_dir,
        environ=os.environ,
        run_agent=_no_agents,
        permissions=Permissions(rules, allowed=allowed, yes=request.yes, once=True),
        settings=root.settings,
        mcp=lambda: root.mcp,
    )


async def _no_agents(_me: Actor, _call: AgentCall) -> str:
    raise AssertionError("a call by hand has no agents")
