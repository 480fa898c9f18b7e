"""One run: from `run.started` to exactly one of `run.finished`, `run.failed`, `run.cancelled`.

The run is an actor at the top of the tree, `/run-7f3a01bc`, whose child is the graph or agent that was named. What
is wrong before that actor starts (no such target, an invalid file, a missing variable, an unknown model) is
raised; what goes wrong afterwards is the outcome's `error`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.errors import CallboardError, ConfigError, ShuttingDown, TimedOut, UsageError
from ...protocol.events import Event, EventData, RunCancelled, RunFailed, RunFinished, RunStarted, Warned
from ...protocol.outcome import ErrorReport, Outcome, Status
from ...protocol.problems import Problem
from ..agent.record import Record
from ..context import Limits, RunContext
from ..graph.compat import MODES
from ..graph.scheduler import GraphResult
from ..tools.collect import ToolOptions
from ..tools.functions import Function, function_tool
from ..tools.permissions import Permissions
from ..tools.tool import Tool
from .answers import Answers, Given
from .children import Children
from .given import check_unicode, plain_state
from .prepared import Prepared
from .root import Root, current
from .target import GraphAgent, LoopAgent, find, read
from .tool_checks import check_listed, check_user

if TYPE_CHECKING:
    from ...supervisors import Actor, End

INTERRUPTED = 130
"""Exit code of a run that was cancelled without a signal."""


async def run(
    target: str | os.PathLike[str] | GraphAgent | LoopAgent | Agent,
    prompt: str = "",
    *,
    model: str | None = None,
    variables: Mapping[str, str] | None = None,
    state: Mapping[str, Any] | None = None,
    answers: Given | None = None,
    on_event: Callable[[Event], None] | None = None,
    compat: str | None = None,
    limits: Limits | None = None,
    strict: bool = False,
    config_dir: str | os.PathLike[str] | None = None,
    root: Root | None = None,
    tools: Sequence[Function | Tool] = (),
    allow: Iterable[str] = (),
    yes: bool = False,
    roots: Iterable[str | os.PathLike[str]] = (),
) -> Outcome:
    """Run an agent to its end.

    Args:
        target: an agent's name, an agent's directory, a YAML file, what `load` returned, or an `Agent` made in Python.
        prompt: the user's words; a graph finds them as `{{initial_prompt}}`.
        model: `client:model` for everything that does not name its own.
        variables: values of the agent's variables.
        state: replaces keys of a graph's `initial_state`; JSON values.
        answers: to questions: a list used in order, or node id to an answer or a list of answers.
        on_event: called with every event of the run, in order, in the run's tasks; must be quick.
        compat: `standard` or `loki`, whatever the file says.
        limits: what the run may use at most.
        strict: warnings about the file are errors.
        config_dir: where agents and settings live, for a run with a root of its own.
        root: the root to run under; by default that of the block we are in, else a new one for this run.
        tools: Python functions, sync or async, that the agent may call (see `actors.tools.functions`).
        allow: names of tools that need not ask a person for permission.
        yes: no tool asks for permission.
        roots: directories beside the working directory in which the `fs_*` tools may work.

    Returns:
        How it ended. A run that failed, or was cancelled by its root's end, does not raise.

    Raises:
        UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        trio.Cancelled: the caller was cancelled; nothing of the run is left.
    """
    root = root or current.get()
    if root is None:
        async with Root(config_dir=config_dir) as own:
            return await run(
                target,
                prompt,
                model=model,
                variables=variables,
                state=state,
                answers=answers,
                on_event=on_event,
                compat=compat,
                limits=limits,
                strict=strict,
                root=own,
                tools=tools,
                allow=allow,
                yes=yes,
                roots=roots,
            )
    if compat is not None and compat not in MODES:
        raise UsageError(f"compat must be one of {', '.join(MODES)}, not '{compat}'")
    functions = tuple(function if isinstance(function, Tool) else function_tool(function) for function in tools)
    agent = _agent(target, root, [tool.name for tool in functions], strict=strict, compat=compat)
    allow = root.shelf.spelled_out(allow)
    children = Children(root.config_dir, compat)
    context = RunContext(
        gateway=root.gateway,
        limits=limits or Limits(),
        config_dir=root.config_dir,
        environ=os.environ,
        run_agent=children,
        unknown_agent=children.unknown,
        model=model or "",
        compat=compat,
        streams=root.settings.stream,
        shelf=root.shelf,
        tool_options=ToolOptions(yes=yes, roots=tuple(Path(path) for path in roots)),
        permissions=Permissions(root.shelf.permissions(root.settings.permissions), allowed=allow, yes=yes),
        functions=functions,
    )
    if isinstance(agent, LoopAgent) and not root.settings.calls_functions:
        raise ConfigError("Please enable function calling support before using the agent.")
    prepared = Prepared(agent, variables or {}, compat, context)
    if state and not prepared.has_state:
        raise UsageError(f"'{agent.name}' is not a graph, so it has no state to set")
    if not prompt.strip() and not prepared.has_state:
        raise UsageError(f"'{agent.name}' is an LLM agent: it needs a prompt to answer")
    given_state = plain_state(state or {})
    check_unicode("the prompt", prompt)
    for name, value in (variables or {}).items():
        check_unicode(f"the value of variable '{name}'", value)
    model, why = _default_model(root, prepared, context)
    for name in prepared.models | ({model} if model is not None else set()):
        root.gateway.check(name)
    started = RunStarted(
        target=agent.file if isinstance(target, msgspec.Struct) else os.fspath(target),
        name=agent.name,
        dialect="graph" if isinstance(agent, GraphAgent) else "agent",
        model=model,
        why=why,
        prompt=prompt,
    )
    performance = _Performance(root, prepared, context, prompt, given_state, Answers(answers))
    strange = check_user(allow, (*prepared.tool_names, *(tool.name for tool in functions)), root.shelf, root.settings)
    problems = (*root.problems, *agent.problems, *strange)
    return await performance.run(started, problems, on_event)


def _agent(
    target: str | os.PathLike[str] | GraphAgent | LoopAgent | Agent,
    root: Root,
    functions: Sequence[str],
    *,
    strict: bool,
    compat: str | None,
) -> GraphAgent | LoopAgent:
    if isinstance(target, Agent):
        return LoopAgent.of(target, check_listed(target, functions, root.shelf))
    if isinstance(target, GraphAgent | LoopAgent):
        return target
    found = find(target, config_dir=root.config_dir)
    return read(found, root.config_dir, strict=strict, compat=compat, functions=functions, shelf=root.shelf)


def _default_model(root: Root, prepared: Prepared, context: RunContext) -> tuple[str | None, str]:
    """The model of whatever names none, and why it is that one if nobody chose it; None if all name their own."""
    if not prepared.needs_default:
        return None, ""
    named = context.model or prepared.model or root.settings.model
    if named:
        return named, ""
    choice = root.gateway.choice()
    return choice.model, choice.why


class _Performance:
    """One run under way."""

    def __init__(
        self,
        root: Root,
        prepared: Prepared,
        context: RunContext,
        prompt: str,
        state: dict[str, Any],
        answers: Answers,
    ) -> None:
        self.id = f"run-{secrets.token_hex(4)}"
        self._root = root
        self._prepared = prepared
        self._context = context
        self._prompt = prompt
        self._state = state
        self._answers = answers
        self._result = GraphResult()
        self._record = Record()

    async def run(
        self, started: RunStarted, problems: tuple[Problem, ...], on_event: Callable[[Event], None] | None
    ) -> Outcome:
        """Put the run's actor on the stage, wait for its end, tell it once."""
        with self._actor(on_event) as actor:
            actor.emit(started)
            for problem in problems:
                actor.emit(Warned(code=problem.code, message=str(problem), node=problem.node))
            actor.launch()
            try:
                end = await actor.ref.wait()
            except trio.Cancelled:
                actor.interrupt()
                with self._root.kernel.shield(actor.time_to_end()):
                    await actor.wait_over()
                self._tell(actor, "cancelled", None)
                raise
            return self._close(actor, end)

    @contextlib.contextmanager
    def _actor(self, on_event: Callable[[Event], None] | None) -> Iterator[Actor]:
        bus = self._root.bus
        stream = bus.open(self.id)
        try:
            with contextlib.nullcontext() if on_event is None else stream.listen(on_event):
                top = self._root.kernel.actor
                actor = top.adopt(self._play, (), name=self.id, bond="watched", stream=stream)
                actor.policy = self._answers.policy
                yield actor
        finally:
            bus.close(stream)

    async def _play(self, me: Actor) -> None:
        """Body of the run's actor."""
        seconds = self._context.meter.limits.timeout
        playing = self._prepared.play(
            me, self._prompt, self._context, state=self._state, result=self._result, record=self._record
        )
        if seconds is None:
            await playing
            return
        with trio.move_on_after(seconds) as clock:
            await playing
        if clock.cancelled_caught:
            self._result.error = TimedOut(f"the run did not end within {seconds:g} s (--timeout)")

    def _close(self, actor: Actor, end: End) -> Outcome:
        error = self._result.error
        if end.error is not None:
            error = end.error if isinstance(end.error, CallboardError) else CallboardError(f"crashed: {end.error!r}")
        if end.reason in ("cancelled", "stopped") or isinstance(error, ShuttingDown):
            return self._tell(actor, "cancelled", None)
        if error is not None:
            return self._tell(actor, "failed", error)
        if self._answers.left:
            text = "answers that no question asked for: " + ", ".join(self._answers.left)
            actor.emit(Warned(code="answers_left", message=text))
        return self._tell(actor, "done", None)

    def _tell(self, actor: Actor, status: Status, error: CallboardError | None) -> Outcome:
        result = self._result
        code = 0 if error is None else error.exit_code
        if status == "cancelled":
            signal = self._root.kernel.signal
            code = INTERRUPTED if signal is None else 128 + signal
        outcome = Outcome(
            run_id=self.id,
            status=status,
            output=result.output if status == "done" else "",
            state=result.state,
            order=result.order,
            nodes=result.nodes,
            usage=self._context.meter.models,
            turns=self._context.meter.turns,
            tool_calls=self._context.meter.tool_calls,
            children=self._record.children,
            error=None if error is None else ErrorReport(code=error.code, message=str(error), node=error.node),
            exit_code=code,
        )
        if not actor.stream.heard:
            return outcome
        wire = outcome.to_wire()
        data: EventData
        if status == "done":
            data = RunFinished(outcome=wire)
        elif status == "failed":
            data = RunFailed(outcome=wire)
        else:
            data = RunCancelled(outcome=wire)
        actor.emit(data)
        return outcome
