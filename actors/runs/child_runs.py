"""Agents that Python functions run while they execute as tools: `await ctx.run(agent, prompt)`.

Such an agent is an actor below that of the call, and a full child of the calling agent: limits and usage of the run,
permissions, depth, events, and `children` of the outcome.

A cassette has the call with its result, and no request that the function made. When the run is replayed back, the
function is not called. Therefore the child's requests bypass the cassette.
"""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from ...protocol.errors import CallboardError, ShuttingDown, UsageError
from ...protocol.outcome import ChildRecord, ChildStatus, ErrorReport, Outcome
from ...protocol.requests import RunRequest
from ..engine.graph.result import run_error
from ..work.agent.history import History
from ..work.context import CallingAgent, RunContext
from ..work.playback import playback
from ..work.results import ResultType
from ..work.transcript import Record
from .called_agents import ChildAgentRunner
from .loading import NO_HOOKS, Loader
from .prepared import AgentInput, Prepared
from .python_agent import Agent, loop_agent
from .python_graph import Graph
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ..engine.graph.result import GraphResult

_STATUS: dict[str, ChildStatus] = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}


class ChildRuns:
    """Implementation of `run_child` for one run.

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
            raise UsageError(f"'{loaded.name}' is an LLM agent: it needs a prompt to answer")
        prepared = await self._loader.threaded(lambda: Prepared(loaded, variables, self._compat, context))
        history = History(result=None if kind is None else ResultType.of(kind))
        record = Record()
        child = ChildRecord(id=f"agent_{loaded.name}_{secrets.token_hex(4)}", agent=loaded.name)
        # Before it runs, so that a cancelled run lists it as well.
        calling.record.children.append(child)
        # The recording has this call's result only; see the module.
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
        if isinstance(target, Agent):
            return loop_agent(target)
        if isinstance(target, Graph):
            return target.build()
        if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
            return target
        if not isinstance(target, str | os.PathLike):
            raise UsageError(f"{target!r} is no agent: pass a callboard.Agent, a name, or a path")
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
