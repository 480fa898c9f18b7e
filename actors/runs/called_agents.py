"""Agents that a run calls, executed as children of the caller.

`ChildAgentRunner` finds the agents that agents call by name, and reads each once per run. `ChildRuns` runs the agents
that Python functions pass to `Context.run`.
"""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import read_agent
from ...protocol.errors import CallboardError, FailedEnd, NodeFailed, ShuttingDown, UsageError
from ...protocol.events import Warned
from ...protocol.graph import read_graph
from ...protocol.outcome import ChildRecord, ChildStatus, ErrorReport, Outcome
from ...protocol.placement import needs_of
from ...protocol.problems import did_you_mean
from ...protocol.requests import RunRequest
from ..engine.graph.findings import agents_in
from ..engine.graph.result import reworded, run_error
from ..work.agent.history import History
from ..work.context import AgentCall, CallingAgent, RunContext, SeparatePart
from ..work.journal.actor_journal import scope_of
from ..work.library import AGENTS
from ..work.playback import playback
from ..work.transcript import Record, error_in, take_over
from .finding import find, named_file
from .loading import NO_HOOKS, Loader
from .pinned_files import called, called_in, load_again, note_called
from .prepared import AgentInput, Prepared
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.journal import Definition
    from ...supervisors import Actor
    from ..engine.graph.result import GraphResult
    from ..work.journal.run_journal import JournaledRun


class ChildAgentRunner:
    """Implementation of `run_agent` for one run.

    Args:
        config_dir: its `agents/` are searched first, then the siblings of the calling agent.
        compat: the dialect forced by the caller, or None.
        loader: loader of the run's root.
        made: agents made by the run's program, by name; they are searched before all others.
    """

    def __init__(
        self, config_dir: Path, compat: str | None, loader: Loader, made: Mapping[str, LoopAgent] | None = None
    ) -> None:
        self._made = made or {}
        self._loader = loader
        self._config_dir = config_dir
        self._compat = compat
        self._read: dict[tuple[str, Path], Loaded] = {}
        self._told: dict[str, None] = {}
        self._called: dict[str, Definition] | None = None

    def with_made(self, made: Mapping[str, LoopAgent]) -> ChildAgentRunner:
        """Return a runner that searches these agents before all others."""
        return ChildAgentRunner(self._config_dir, self._compat, self._loader, {**self._made, **made})

    async def __call__(self, me: Actor, call: AgentCall) -> str:
        """Run the agent and return the text of its answer. Failures that it survived are in the call's record.

        Raises:
            CallboardError: the agent failed; the class is that of the child's error.
        """
        scope = scope_of(me)
        kept = None if scope is None else scope.run
        # In a thread: reading and checking a file takes milliseconds, in which no other agent would run.
        prepared, definition = await self._loader.threaded(lambda: self._prepared(call, kept))
        if kept is not None and definition is not None:
            note_called(kept, _named(call), definition)
        for problem in prepared.absent:
            # Once per run: an agent that is called a hundred times has one missing server.
            if (told := str(problem)) not in self._told:
                self._told[told] = None
                me.emit(Warned(code=problem.code, message=told))
        needs = needs_of(call.place if call.place is not None else prepared.place)
        if needs is not None and call.context.elsewhere is not None:
            output, failed = await self._on_other_worker(me, call, needs)
        else:
            kind = self._made[call.name].result if call.name in self._made else None
            record = Record() if call.record is None else call.record
            result = await prepared.play(
                me,
                AgentInput(prompt=call.prompt),
                call.context,
                depth=call.depth,
                record=record,
                seat=call.seat,
                escalation_timeout=call.escalation_timeout,
                history=None if kind is None else History(result=kind),
            )
            output, failed = result.output if kind is None or result.error is not None else record.last, result.error
        if failed is not None:
            if isinstance(failed, FailedEnd) and call.record is not None:
                # The calling agent reads this output instead of all texts of the child's models.
                call.record.texts = [output]
            error = run_error(call.record.failures if call.record is not None else (), failed)
            assert error is not None
            raise reworded(error, f"Agent '{call.name}' failed: {error}")
        return output

    async def _on_other_worker(
        self, me: Actor, call: AgentCall, needs: tuple[str, ...]
    ) -> tuple[str, CallboardError | None]:
        """Run the agent on another worker; return its output and its error."""
        assert call.context.elsewhere is not None
        if call.seat is not None:
            # Team messages do not reach an agent on another worker.
            call.seat.address.elsewhere = True
        part = SeparatePart(
            name=call.name,
            target=await self._loader.threaded(lambda: self._found(call)),
            needs=needs,
            context=call.context,
            depth=call.depth,
            prompt=call.prompt,
            variables=call.variables,
            attempt=call.attempt,
        )
        outcome = await call.context.elsewhere(me, part)
        if call.record is not None:
            take_over(call.record, outcome)
            if outcome.failures and outcome.output:  # The agent reached its end in spite of these failures.
                return outcome.output, None
        return outcome.output, error_in(outcome)

    def unknown(self, name: str, near: Path) -> str | None:
        """Return why an agent in the directory `near` cannot call an agent of this name; None if it can."""
        if name in self._made or self._home(name, near) is not None:
            return None
        places = [place for place in self._places(near) if place.is_dir()]
        names = {path.name for place in places for path in place.iterdir() if path.is_dir()} | self._made.keys()
        where = f"{self._config_dir / 'agents'} or {near.parent}, and not built in"
        hint = did_you_mean(name[:100], names)
        return f"Agent '{name[:100]}' not found in {where}" + (f"; {hint}" if hint else "")

    def near(self, near: Path) -> list[tuple[str, str]]:
        """Return names and descriptions of the agents that the agent in the directory `near` can call."""
        homes: dict[str, Path] = {}
        for place in self._places(near):
            for home in sorted(place.iterdir()) if place.is_dir() else ():
                if agents_in(place)(home.name) == "found":
                    homes.setdefault(home.name, home)
        made = [(name, agent.agent.description) for name, agent in self._made.items() if name != near.name]
        found = sorted(homes.items())
        return [*made, *((name, _description(home)) for name, home in found if home != near and name not in self._made)]

    def _prepared(self, call: AgentCall, kept: JournaledRun | None) -> tuple[Prepared, Definition | None]:
        """Return the agent, and its definition if a durable run calls it for the first time."""
        if call.name in self._made:
            return Prepared(self._made[call.name], call.variables, self._compat, call.context), None
        key = (call.name, call.near)
        agent, known = self._read.get(key), self._definition(call, kept)
        is_new = agent is None
        if agent is None:
            request = RunRequest(target="", compat=self._compat, variables=dict(call.variables))
            if known is not None:
                agent = load_again(known, request, self._config_dir, call.context.registry)
            else:
                request = msgspec.structs.replace(request, target=str(self._found(call)))
                agent = self._loader.loaded(request, NO_HOOKS)
            # A workflow is read with its variables replaced, so it cannot be cached across calls with other variables.
            if not isinstance(agent, WorkflowAgent):
                self._read[key] = agent
        prepared = Prepared(agent, call.variables, self._compat, call.context)
        return prepared, called(agent, prepared) if is_new and known is None and kept is not None else known

    def _definition(self, call: AgentCall, kept: JournaledRun | None) -> Definition | None:
        """Return the definition of the agent if an earlier incarnation of the run called it."""
        if kept is None:
            return None
        if self._called is None:
            # Read once: the rows of a run that was resumed may be many, and each call would scan them.
            self._called = called_in(kept)
        return self._called.get(_named(call))

    def _found(self, call: AgentCall) -> Path:
        home = named_file(call.name, call.near) if call.by_file else None
        home = home or self._home(call.name, call.near)
        if home is None:
            raise NodeFailed(self.unknown(call.name, call.near) or "")
        return home

    def _home(self, name: str, near: Path) -> Path | None:
        # Models invent names; the name becomes a part of a path.
        if name in ("", ".", "..") or os.sep in name or "\0" in name:
            return None
        return next((place / name for place in self._places(near) if (place / name).is_dir()), None)

    def _places(self, near: Path) -> tuple[Path, ...]:
        return self._config_dir / "agents", near.parent, AGENTS


def _named(call: AgentCall) -> str:
    """Return a key of the agent and the directory that it is searched from."""
    return f"{call.name} of {call.near}"


def _description(home: Path) -> str:
    """Return the description in the agent's file; "" if it cannot be read."""
    try:
        found = find(home)
    except CallboardError:
        return ""
    read_file = read_agent if found.dialect == "agent" else read_graph
    thing, _ = read_file(found.text, found.file)
    return " ".join((thing.description or "").split()) if thing is not None else ""


_STATUS: dict[str, ChildStatus] = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}


class ChildRuns:
    """Implementation of `run_child` for one run: agents that Python functions run while they execute as tools.

    Such an agent (`await ctx.run(agent, prompt)`) is an actor below that of the call, and a full child of the calling
    agent: limits and usage of the run, permissions, depth, events, and `children` of the outcome.

    A cassette has the call with its result, and no request that the function made. When the run is replayed, the
    function is not called. Therefore the child's requests bypass the cassette.

    Args:
        loader: loader of the run's root.
        compat: the dialect forced by the caller, or None.
        children: runs the agents that agents spawn.
    """

    def __init__(self, loader: Loader, compat: str | None, children: ChildAgentRunner) -> None:
        self._loader = loader
        self._children = children
        self._compat = compat

    async def __call__(
        self,
        me: Actor,
        calling: CallingAgent,
        target: Any,
        prompt: str,
        *,
        result: Any = None,
        variables: Mapping[str, str],
    ) -> Outcome[Any]:
        """Run an agent to its end; see `Context.run`."""
        # Imported here: most runs have no such child, and the command line starts faster without these modules.
        from ..work.results import ResultType
        from .python_agent import Agent

        context, depth = calling.context.below(calling.permissions, calling.max_depth), calling.depth + 1
        # A function that runs its own agent would recurse without an end.
        too_deep = context.too_deep(depth)
        if too_deep is not None:
            raise UsageError(too_deep)
        kind = result if result is not None or not isinstance(target, Agent) else target.result
        loaded = await self._loaded(target, variables)
        if not isinstance(loaded, WorkflowAgent) and loaded.below:
            context = _with_children(context, self._children.with_made(loaded.below))
        if not isinstance(loaded, WorkflowAgent) and loaded.models:
            context = copy.copy(context)
            context.gateway = context.gateway.with_models(loaded.models)
        if isinstance(loaded, LoopAgent) and not prompt.strip():
            raise UsageError(f"'{loaded.name}' is an LLM agent and needs a prompt")
        prepared = await self._loader.threaded(lambda: Prepared(loaded, variables, self._compat, context))
        history = History(result=None if kind is None else ResultType.of(kind))
        record = Record()
        child = ChildRecord(id=f"agent_{loaded.name}_{secrets.token_hex(4)}", agent=loaded.name)
        # Before it runs, so that a cancelled run lists it as well.
        calling.record.children.append(child)
        # The cassette has this call's result only; see `ChildRuns`.
        token = playback.set(None)
        try:
            ended = await prepared.play(
                me, AgentInput(prompt=prompt), context, depth=depth, record=record, history=history
            )
        except trio.Cancelled:
            child.status = "cancelled"
            raise
        finally:
            playback.reset(token)
            child.output, child.turns, child.tool_calls = record.output, record.turns, record.tool_calls
            child.children = record.children
        outcome = _outcome(me.stream.run, ended, record, history, is_agent=isinstance(loaded, LoopAgent))
        child.status = _STATUS[outcome.status]
        child.output = outcome.output or child.output
        child.error = None if outcome.error is None else outcome.error.message
        return outcome

    async def _loaded(self, target: Any, variables: Mapping[str, str]) -> Loaded:
        from .python_agent import Agent, loop_agent
        from .python_graph import Graph

        if isinstance(target, Agent):
            return loop_agent(target)
        if isinstance(target, Graph):
            return target.build()
        if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
            return target
        if not isinstance(target, str | os.PathLike):
            raise UsageError(f"{target!r} is not an agent: pass a callboard.Agent, a name, or a path")
        request = RunRequest(target=os.fspath(target), compat=self._compat, variables=dict(variables))
        return await self._loader.load(request, NO_HOOKS)


def _with_children(context: RunContext, children: ChildAgentRunner) -> RunContext:
    lower = copy.copy(context)
    lower.run_agent, lower.unknown_agent, lower.agents_near = children, children.unknown, children.near
    return lower


def _outcome(run: str, ended: GraphResult, record: Record, history: History, *, is_agent: bool) -> Outcome[Any]:
    failures = record.failures
    error: CallboardError | None = ended.error
    if error is not None or failures:
        error = run_error(failures, error)
    return Outcome(
        run_id=run,
        status="done" if error is None else "cancelled" if isinstance(error, ShuttingDown) else "failed",
        output=ended.output if error is None or failures else "",
        final=(record.last if is_agent else ended.output) if error is None else "",
        result=history.value if error is None else None,
        has_result=history.has_value and error is None,
        state=ended.state,
        order=ended.order,
        nodes=ended.nodes,
        turns=record.turns,
        tool_calls=record.tool_calls,
        children=record.children,
        failures=[ErrorReport.of(each) for each in failures],
        error=None if error is None else ErrorReport.of(error),
        exit_code=0 if error is None else error.exit_code,
    )
