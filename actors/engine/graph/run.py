"""A graph as an actor, and its nodes as actors below it: its MCP servers, its events, its log.

What runs next, the decider says (`decider`). A node's own code may return, fail with one of our errors, or have a bug.
All three become a way of leaving the node (`leave`), which reaches the graph as one message. Only an interruption goes
through.

Levels of the log `callboard.graph` are the privacy rule: at DEBUG go the names of state keys and the size of it all,
its values only at TRACE, since they can be secrets. `CALLBOARD_LOG` chooses the level; nothing is computed for a level
that is off.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.effects import Effect, RunNode, Work
from ....protocol.errors import CallboardError, NodeFailed, TimedOut
from ....protocol.events import GraphFinished, GraphStarted, NodeEntered
from ....protocol.failure import Failure
from ....protocol.graph.model import ScriptNode
from ....protocol.kernel.errors import EndOfMail
from ....protocol.messages import GraphBegun, NodeLeft
from ...io.imports import imported
from ...work.record import Record
from ...work.spending.accounts import as_failure
from ..driver import Driver, Performer
from . import leave
from .decider import GraphDecider, GraphResult, state_size
from .failures import ended_with
from .plan import Job, Plan, Result, Step

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.mcp.tools.view import Talk

TRACE = 5
"""Below DEBUG: records that hold state values."""

log = logging.getLogger("callboard.graph")


async def run_graph(
    me: Actor,
    plan: Plan,
    prompt: str,
    context: RunContext,
    depth: int = 0,
    state: dict[str, Any] | None = None,
    result: GraphResult | None = None,
    record: Record | None = None,
) -> GraphResult:
    """Body of a graph's actor.

    Args:
        prompt: becomes `initial_prompt`.
        depth: how many agents stand above it.
        state: keys that replace those of `initial_state`.
        result: filled while the graph runs, so that it can be read even if this actor is cancelled.
        record: where its models' texts are written down, for the same reason.
    """
    decider = GraphDecider(plan, result)

    async def play(nodes: Nodes) -> None:
        performers: dict[type[Work], Performer] = {RunNode: nodes.run}
        limit = plan.settings.max_concurrency
        logs = plan.settings.log_state_snapshots and log.isEnabledFor(logging.DEBUG)
        tapes = (_StepLog(decider),) if logs else ()
        driver = Driver(me, decider, performers, at_once=limit, afresh=lambda: GraphDecider(plan), tapes=tapes)
        await driver.play(GraphBegun(prompt=prompt, state=state or {}))

    return await played(me, plan, context, depth, decider.result, record or Record(), play)


async def played(
    me: Actor,
    plan: Plan,
    context: RunContext,
    depth: int,
    result: GraphResult,
    record: Record,
    play: Callable[[Nodes], Awaitable[None]],
) -> GraphResult:
    """Play a graph, or a part of it, with its MCP servers; how it fails is the result's, and its end is told."""
    if plan.sandbox is not None:
        context.hold(me, plan.sandbox)
    result.failures = record.failures
    began = trio.current_time()
    if plan.servers:
        await imported(".actors.work.mcp.tools.offer")
    with _servers(me, plan, context) as servers:
        if me.stream.heard:
            me.emit(GraphStarted(graph=plan.name, start=plan.start, depth=depth))
        try:
            await play(Nodes(plan, context, depth, record, servers, {}))
        except EndOfMail:
            raise
        except CallboardError as error:
            result.error = error
    log_summary(plan.name, result.timing)
    why = ended_with(result.failures, result.error) if result.failures else result.error
    tell_end(me, plan.name, depth, began, result.timing, why)
    return result


def tell_end(
    me: Actor,
    graph: str,
    depth: int,
    began: float,
    timing: Mapping[str, tuple[int, float, float]],
    error: CallboardError | None,
) -> None:
    """Emit the end of a graph or a workflow, which `began` on trio's clock; `error` is what it failed with."""
    if me.stream.heard:
        seconds, text = trio.current_time() - began, None if error is None else str(error)
        code = "" if error is None else error.code
        me.emit(GraphFinished(graph=graph, seconds=seconds, depth=depth, timing=dict(timing), error=text, code=code))


@contextlib.contextmanager
def _servers(me: Actor, plan: Plan, context: RunContext) -> Iterator[Talk | None]:
    if not plan.servers:
        yield None
        return
    from ...work.mcp.tools.offer import servers_at_work

    with servers_at_work(me, context, own=plan.permissions, model=plan.model) as servers:
        yield servers


class Nodes(msgspec.Struct, frozen=True):
    """What the nodes of one graph have in common while it runs; see `Job`."""

    plan: Plan
    context: RunContext
    depth: int
    record: Record
    servers: Talk | None
    accounts: dict[str, RunContext]

    async def run(self, me: Actor, work: RunNode) -> NodeLeft:
        """Body of a node's actor."""
        plan = self.plan
        step = plan.steps[work.node]
        unaccepted: list[CallboardError] = []
        context = self.context if step.limits is None else self._limited(step)
        job = Job(
            plan,
            step.node,
            work.state,
            context,
            self.depth,
            self.record,
            work.item,
            self.servers,
            unaccepted,
            self.accounts,
        )
        in_map = work.item is not None
        heard = me.stream.heard
        now = trio.lowlevel.current_clock().current_time
        began = now()
        if heard:
            me.emit(NodeEntered(node=step.id, type=step.kind, visit=work.visit, item=work.item))
        try:
            assert step.work is not None
            if (own := getattr(step.node, "sandbox", None)) is not None:
                context.hold(me, own)
            timed = step.timeout is not None and not isinstance(step.node, ScriptNode)  # which sees to its own time
            result = await (_in_time(me, step, job) if timed else step.work(me, job))
            left = leave.succeeded(plan, step, work.state, result, in_map=in_map)
        except CallboardError as failed:
            error = as_failure(failed, context.account, self.context.account)
            left = leave.failed(plan, step, work.state, error, in_map=in_map)
        except Exception as error:  # a bug in a node's code must cost that node, with its traceback in the log
            log.exception("node '%s' crashed", step.id)
            left = leave.failed(plan, step, work.state, NodeFailed(f"{type(error).__name__}: {error}"), in_map=in_map)
        seconds = now() - began
        if heard:
            for event in leave.told(step, left, seconds, work.item):
                me.emit(event)
        return leave.as_message(work.key, step, left, seconds, _unaccepted(step, left, unaccepted))

    def _limited(self, step: Step) -> RunContext:
        """The run as a node with limits sees it: they hold for all its executions in this graph."""
        if step.id not in self.accounts:
            self.accounts[step.id] = self.context.limited(f"node '{step.id}'", step.limits)
        return self.accounts[step.id]


def _unaccepted(step: Step, left: leave.Left, below: list[CallboardError]) -> tuple[Failure, ...]:
    """The failures that the node, or what it has played, went on over without the author's word."""
    if (not below and left.unaccepted is None) or leave.accepts(step, left):
        return ()
    return tuple(map(Failure.of, below if left.unaccepted is None else [*below, left.unaccepted]))


async def _in_time(me: Actor, step: Step, job: Job) -> Result:
    assert step.work is not None
    assert step.timeout is not None
    with me.time_limit(trio.move_on_after(step.timeout)):
        return await step.work(me, job)
    raise TimedOut(_timeout_text(step))


def _timeout_text(step: Step) -> str:
    seconds = f"{step.timeout:g}"
    agent = getattr(step.node, "agent", None)
    if agent is not None:
        return f"Agent '{agent}' timed out after {seconds}s"
    which = f" '{step.id}'" if step.kind == "rag" else ""
    return f"{step.kind} node{which} timed out after {seconds}s"


class _StepLog:
    """A tape that writes the state before each super-step to the log."""

    def __init__(self, decider: GraphDecider) -> None:
        self._decider = decider
        self._last = 0

    def wrote(self, _: Any, __: list[Effect]) -> None:
        step = self._decider
        if step.number == self._last:
            return
        self._last = step.number
        graph, nodes, state = step.plan.name, ", ".join(step.frontier), step.snapshot
        size, keys = state_size(state), ", ".join(sorted(state))
        log.debug("%s: step %d runs %s on %d bytes of state: %s", graph, step.number, nodes, size, keys)
        if log.isEnabledFor(TRACE):
            log.log(TRACE, "%s: state before step %d: %s", graph, step.number, dict(state))


def log_summary(graph: str, timing: Mapping[str, tuple[int, float, float]]) -> None:
    """Visits and times of every node, the slowest first."""
    if not timing or not log.isEnabledFor(logging.INFO):
        return
    lines = [f"{graph}: performance summary (slowest first)"]
    for node, (visits, total, longest) in sorted(timing.items(), key=lambda entry: -entry[1][1]):
        average = total / visits
        lines.append(
            f"  {node}: {visits} visit(s), total {total * 1000:.0f}ms, avg {average * 1000:.0f}ms, "
            f"max {longest * 1000:.0f}ms"
        )
    log.info("\n".join(lines))
