"""What `callboard tools call` does: one tool, run by hand exactly as the agent loop runs it.

The call is an actor under a root, with an event stream of its own on which progress hangs, and goes through the same
checks, permissions and clock as a model's call.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from .. import GraphAgent, LoopAgent, Root, load
from ..actors.json_schema import schema_errors
from ..actors.tools.calls import Calls
from ..actors.tools.collect import ToolOptions
from ..actors.tools.permissions import Permissions
from ..actors.tools.tool import Tool
from ..actors.variables import resolve_variables
from ..protocol.chat import ToolCall, ToolTurn
from ..protocol.errors import CallboardError, ShuttingDown, UsageError
from ..supervisors import Actor
from . import given, logging
from .frame import open_frame, person_at_terminal
from .render.progress import Progress, choose
from .render.text import safe, uncoloured
from .stdin import prompt_text
from .toolbox import Toolbox, rules_of
from .variables import declared, with_missing

_INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class CallRequest:
    """The flags of `callboard tools call`, as click read them."""

    name: str
    arguments: str
    agent: str | None
    variables: tuple[str, ...]
    yes: bool
    allow: tuple[str, ...]
    roots: tuple[str, ...]
    no_input: bool
    verbose: bool
    config_dir: str | None


def call_tool(request: CallRequest) -> int:
    """Calls the tool; returns the exit code.

    Raises:
        UsageError: there is no such tool, or the arguments don't fit.
        CallboardError: a file has errors.
    """
    logging.configure()
    person = person_at_terminal(no_input=request.no_input)
    arguments = given.arguments(prompt_text("-") if request.arguments == "-" else request.arguments)
    given.directories(request.roots)
    agent = None if request.agent is None else load(request.agent, config_dir=request.config_dir)
    values = {} if agent is None else _values(agent, request, person)
    # The result says it all, and so does an error; the story is for who wants to see how it comes about.
    progress = choose(sys.stderr, quiet=not request.verbose, verbose=True, prompting=person)
    result = trio.run(_drive, request, arguments, agent, values, progress, person)
    if isinstance(result, CallboardError):
        raise result
    return result if isinstance(result, int) else _tell(result)


async def _drive(
    request: CallRequest,
    arguments: dict[str, Any],
    agent: GraphAgent | LoopAgent | None,
    values: Mapping[str, str],
    progress: Progress,
    person: bool,
) -> ToolTurn | CallboardError | int:
    """What the tool answered; an error before it ran; the exit code if it was interrupted."""
    options = ToolOptions(yes=request.yes, roots=tuple(Path(path) for path in request.roots))
    async with open_frame(progress, config_dir=request.config_dir, person=person) as root:
        try:
            tool = Toolbox(request.config_dir, shelf=root.shelf, options=options).one(request.name, agent, values).tool
            _check(tool, arguments, request.agent)
        except CallboardError as error:
            return error
        permissions = Permissions(root.settings.permissions, allowed=request.allow, yes=request.yes)
        calls = Calls([tool], permissions, own=rules_of(agent))
        return await _play(root, calls, ToolCall(id="call", name=tool.name, arguments=arguments), progress)
    raise AssertionError("unreachable: the root swallows no errors")


async def _play(root: Root, calls: Calls, call: ToolCall, progress: Progress) -> ToolTurn | CallboardError | int:
    stream = root.bus.open(f"call-{secrets.token_hex(4)}")

    async def by_hand(me: Actor) -> ToolTurn:
        return (await calls.play(me, [call]))[0]

    try:
        with stream.listen(progress.on_event):
            end = await root.kernel.spawn(by_hand, name=stream.run, stream=stream, link=False).wait()
    finally:
        root.bus.close(stream)
    if end.reason in ("cancelled", "stopped") or isinstance(end.error, ShuttingDown):
        return _INTERRUPTED if root.kernel.signal is None else 128 + root.kernel.signal
    if end.error is not None:
        return end.error if isinstance(end.error, CallboardError) else CallboardError(f"crashed: {end.error!r}")
    assert isinstance(end.value, ToolTurn)
    return end.value


def _values(agent: GraphAgent | LoopAgent, request: CallRequest, person: bool) -> dict[str, str]:
    values = given.variables(request.variables)
    if person:
        assert request.agent is not None
        values = with_missing(request.agent, values, strict=False, compat=None, config_dir=request.config_dir)
    return resolve_variables(agent.name, declared(agent), values, os.environ)


def _check(tool: Tool, arguments: dict[str, Any], agent: str | None) -> None:
    wrong = schema_errors(arguments, tool.spec.parameters)
    if wrong:
        show = f"callboard tools show {tool.name}" + (f" --agent {shlex.quote(agent)}" if agent else "")
        raise UsageError(f"the arguments don't fit: {'; '.join(wrong)}\n    {show} shows what it takes")


def _tell(turn: ToolTurn) -> int:
    """The result on stdout as the model would read it, or what went wrong on stderr."""
    content = turn.content
    assert isinstance(content, str)  # a call's result is text, however it came about
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
    return 1
