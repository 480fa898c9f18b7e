"""What `callboard tools call` does: one tool, run by hand exactly as the agent loop runs it.

The call is an actor under a root, with an event stream of its own on which progress hangs, and goes through the same
checks, permissions and clock as a model's call.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from .. import GraphAgent, LoopAgent, Root
from ..actors.engine.conversation.calls import Calls
from ..actors.io.json_schema import schema_errors
from ..actors.runs.target import load_agent
from ..actors.work.tools.permissions import Permissions
from ..actors.work.tools.registry import ToolOptions
from ..actors.work.tools.tool import Tool
from ..actors.work.variables import resolve_variables
from ..protocol.chat import ToolCall, ToolTurn
from ..protocol.errors import ToolFailed, UsageError
from ..protocol.permissions import Permissions as Rules
from ..supervisors import Actor
from . import flag_values
from .frame import act, person_at_terminal
from .render.plain import choose
from .render.text import json_object, safe, uncoloured
from .stdin import piped_text
from .tool_catalog import Toolbox, rules_of
from .variables import definition, with_missing
from .vault_opening import vault_of


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
    """Calls the tool; returns the exit code. The arguments are the flags of `callboard tools call`.

    Raises:
        UsageError: there is no such tool, or the arguments don't fit.
        CallboardError: a file has errors.
    """
    person = person_at_terminal(no_input=no_input)
    given = flag_values.arguments(piped_text() if arguments == "-" else arguments)
    flag_values.directories(roots)
    of = None if agent is None else load_agent(agent, config_dir=config_dir)
    values = {} if of is None else _values(of, variables, person, config_dir)
    options = ToolOptions(yes=yes, roots=tuple(Path(path) for path in roots))

    async def by_hand(me: Actor, root: Root) -> ToolTurn:
        tool = Toolbox(config_dir, registry=root.registry, options=options).one(name, of, values).tool
        mine = f" --agent {shlex.quote(agent)}" if agent else ""
        check(given, tool.spec.parameters, f"callboard tools show {tool.name}{mine}")
        registry = root.registry
        rules, allowed = registry.permissions(root.settings.permissions), registry.spelled_out(allow)
        permissions = Permissions(rules, allowed=allowed, yes=yes, once=True)
        return await play(me, tool, given, permissions, registry.permissions(rules_of(of)))

    # The result says it all, and so does an error; the story is for who wants to see how it comes about.
    progress = choose(sys.stderr, quiet=not verbose, verbose=True, prompting=person)
    return tell(act(by_hand, config_dir=config_dir, progress=progress, person=person))


def check(arguments: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    """Raise `UsageError` if the arguments don't fit; `where` is the command that shows what would."""
    wrong = schema_errors(arguments, schema)
    if wrong:
        raise UsageError(f"the arguments don't fit: {'; '.join(wrong)}\n    {where} shows what it takes")


async def play(
    me: Actor, tool: Tool, arguments: dict[str, Any], permissions: Permissions, own: Rules | None = None
) -> ToolTurn:
    """The call's result, as a model gets it."""
    calls = Calls([tool], permissions, own=own)
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


def tell(turn: ToolTurn, *, as_json: bool = False) -> int:
    """The result on stdout as the model would read it, or what went wrong on stderr.

    Args:
        as_json: either is on stdout, as an object.
    """
    content = turn.content
    assert isinstance(content, str)  # a call's result is text, however it came about
    if as_json and not turn.error:
        sys.stdout.write(json_object(result=content, error=None))
        return 0
    if not turn.error:
        text = safe(content) if sys.stdout.isatty() else content
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return 0
    message, stderr = content, ""
    try:
        told = json.loads(content)
        message, stderr = told["tool_call_error"], told.get("stderr", "")
    except (ValueError, KeyError, TypeError):
        pass  # cut in its middle, or another kind of refusal: as it is
    if stderr:
        sys.stderr.write(safe(uncoloured(stderr.rstrip())) + "\n")
    sys.stderr.write(f"callboard: {safe(str(message))}\n")
    if as_json:
        sys.stdout.write(json_object(result=None, error={"code": ToolFailed.code, "message": str(message)}))
    return 1
