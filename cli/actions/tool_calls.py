"""Calls by hand: of a tool, for `callboard tools call`, and of an MCP server's tool, for `callboard mcp call`.

A call is executed exactly as in the agent loop: it is an actor under a root, with its own event stream for progress. It
passes the same checks, permissions and time limits as a model's call. That needs the engine, which the lists in
`.tools` and `.mcp` do not import.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from ... import GraphAgent, Limits, LoopAgent
from ...actors.engine.conversation.run import CallRounds
from ...actors.io.json_schema import schema_errors
from ...actors.runs.root import Root
from ...actors.runs.target import load_agent
from ...actors.work.context import AgentCall, RunContext
from ...actors.work.mcp.pool.servers import ServerScope
from ...actors.work.mcp.tools.direct import direct_tool
from ...actors.work.mcp.tools.elicitation import UNANSWERED
from ...actors.work.mcp.tools.names import offered_name
from ...actors.work.mcp.tools.view import ServersView, ServerView
from ...actors.work.tools.permissions import Permissions
from ...actors.work.tools.registry import ToolOptions
from ...actors.work.tools.tool import Tool, shortened
from ...actors.work.variables import resolve_variables
from ...protocol.chat import ToolCall, ToolTurn
from ...protocol.errors import NobodyToAsk, ToolFailed, UsageError
from ...protocol.events import Event, Warned
from ...protocol.mcp.model import McpTool as ServerTool
from ...protocol.permissions import Permissions as Rules
from ...protocol.problems import did_you_mean
from ...supervisors import Actor
from .. import flag_values
from ..frame import act, choose_display, person_at_terminal
from ..render.text import json_object, redrawable, safe, uncoloured
from ..stdin import piped_text
from ..vault_passphrase import vault_of
from .mcp import warn_if_off
from .missing_inputs import definition, with_missing
from .tools import Toolbox, rules_of


def call_tool(
    *,
    name: str,
    arguments: str,
    agent: str | None,
    variables: tuple[str, ...],
    yes: bool,
    allow: tuple[str, ...],
    roots: tuple[str, ...],
    no_input: bool,
    verbose: bool,
    config_dir: str | None,
) -> int:
    """Call a tool and print its result; return 1 if the call failed, else 0.

    The arguments are the flags of `callboard tools call`.

    Raises:
        UsageError: there is no such tool, or the arguments are invalid.
        CallboardError: a file has errors.
    """
    person = person_at_terminal(no_input=no_input)
    given = flag_values.arguments(piped_text() if arguments == "-" else arguments)
    flag_values.directories(roots)
    of = None if agent is None else load_agent(agent, config_dir=config_dir)
    values = {} if of is None else _values(of, variables, person, config_dir)
    # yes: tools receive AUTO_CONFIRM, and ask no question of their own.
    options = ToolOptions(yes=yes, roots=tuple(Path(path) for path in roots))

    async def by_hand(me: Actor, root: Root) -> ToolTurn:
        tool = Toolbox(config_dir, registry=root.registry, options=options).one(name, of, values).tool
        mine = f" --agent {shlex.quote(agent)}" if agent else ""
        # Checked here for exit code 2: the call itself reports invalid arguments as a failed result, as to a model.
        check_arguments(given, tool.spec.parameters, f"callboard tools show {tool.name}{mine}")
        registry = root.registry
        rules, allowed = registry.permissions(root.settings.permissions), registry.spelled_out(allow)
        # once: the question offers no `always`, since no further calls follow.
        permissions = Permissions(rules, allowed=allowed, yes=yes, once=True)
        return await execute_call(me, tool, given, permissions, registry.permissions(rules_of(of)))

    # The result or the error is enough; `--verbose` shows the events too.
    progress = choose_display(sys.stderr, quiet=not verbose, verbose=True, prompting=person)
    return print_result(act(by_hand, config_dir=config_dir, progress=progress, person=person))


def check_arguments(arguments: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    """Raise `UsageError` if the arguments are invalid; `where` is a command that prints their schema."""
    wrong = schema_errors(arguments, schema)
    if wrong:
        raise UsageError(f"the arguments don't fit: {'; '.join(wrong)}\n    to see them: {where}")


async def execute_call(
    me: Actor, tool: Tool, arguments: dict[str, Any], permissions: Permissions, own: Rules | None = None
) -> ToolTurn:
    """Execute the call and return its result as a model gets it."""
    calls = CallRounds([tool], permissions, own=own)
    return (await calls.play(me, [ToolCall(id="call", name=tool.name, arguments=arguments)]))[0]


def _values(
    agent: GraphAgent | LoopAgent, variables: tuple[str, ...], person: bool, config_dir: str | None
) -> dict[str, str]:
    values = flag_values.variables(variables)
    if person:
        values = with_missing(agent, values, config_dir)
    file = definition(agent)
    vault = vault_of(config_dir, no_input=not person)
    return resolve_variables(agent.name, file.variables, values, os.environ, secrets=vault, source=file.source).real


def print_result(turn: ToolTurn, *, as_json: bool = False) -> int:
    """Print the result to stdout as the model would read it, or the error to stderr; return 1 for an error, else 0.

    Args:
        as_json: print either to stdout, as an object.
    """
    content = turn.content
    assert isinstance(content, str)  # a direct call's result is always text
    if as_json and not turn.error:
        sys.stdout.write(json_object(result=content, error=None))
        return 0
    if not turn.error:
        # A pipe gets the result unchanged; only a terminal obeys control characters.
        text = safe(content) if sys.stdout.isatty() else content
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return 0
    message, stderr = content, ""
    try:
        told = json.loads(content)
        message, stderr = told["tool_call_error"], told.get("stderr", "")
    except (ValueError, KeyError, TypeError):
        pass  # truncated, or another kind of refusal: print it unchanged
    if stderr:
        sys.stderr.write(safe(uncoloured(stderr.rstrip())) + "\n")
    sys.stderr.write(f"callboard: {safe(str(message))}\n")
    if as_json:
        sys.stdout.write(json_object(result=None, error={"code": ToolFailed.code, "message": str(message)}))
    return 1


_SHOWN_NAMES = 2_000
"""Characters of the tool names that an error lists."""


def call_mcp_tool(
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
    """Call a tool of an MCP server and print its result; return 0 or an exit code for the failed call.

    That code is the one of `NobodyToAsk` if a question of the server was not answered, else 1. The arguments are the
    flags of `callboard mcp call`.

    Raises:
        UsageError: there is no such server or tool, or the arguments are invalid.
        McpError, McpLost, ConfigError: the server can't be reached.
    """
    person = person_at_terminal(no_input=no_input)
    given = flag_values.arguments(piped_text() if arguments == "-" else arguments)
    unanswered: list[str] = []

    def hear(event: Event) -> None:
        # Collected apart from the display, which prints nothing if stderr can't be redrawn.
        if isinstance(event.data, Warned) and event.data.code == UNANSWERED:
            unanswered.append(event.data.message)

    async def by_hand(me: Actor, root: Root) -> ToolTurn:
        entry, context = root.mcp.config.get(server), _call_context(root, yes, allow)
        warn_if_off(root)
        with me.stream.listen(hear), root.mcp.scope(run=me.stream.run, agent=me.path) as scope:
            view = ServerView(talk=ServersView(scope=scope, context=context), server=entry)
            found = await view.admitted(me, lambda: _tool_to_call(me, scope, server, tool))
            show = f"callboard mcp tools {shlex.quote(server)} -o json"
            check_arguments(given, found.input_schema, show)
            return await execute_call(me, direct_tool(view, found), given, context.permissions)

    quiet = not (verbose or redrawable(sys.stderr))
    progress = choose_display(sys.stderr, quiet=quiet, verbose=verbose, prompting=person, by_hand=True)
    turn = act(by_hand, config_dir=config_dir, progress=progress, person=person)
    for text in unanswered if quiet else ():
        sys.stderr.write(f"callboard: {safe(text)}\n")
    code = print_result(turn, as_json=as_json)
    # Only if the tool failed: it may succeed without the answer.
    return NobodyToAsk.exit_code if code and unanswered else code


async def _tool_to_call(me: Actor, scope: ServerScope, server: str, name: str) -> ServerTool:
    """Return the tool of the running server, by its own name or by its name for models."""
    async with scope.client(server, me):
        catalog = await scope.catalog(server, me)
    for tool in catalog.tools:
        if name in (tool.name, offered_name(server, tool.name)):
            return tool
    names = [tool.name for tool in catalog.tools]
    hint = did_you_mean(name, names) or f"there are: {shortened(', '.join(names), _SHOWN_NAMES) or 'none'}"
    raise UsageError(f"MCP server '{server}' has no tool '{name}'; {hint}")


def _call_context(root: Root, yes: bool, allow: tuple[str, ...]) -> RunContext:
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
    raise AssertionError("a call from the command line has no agents")
