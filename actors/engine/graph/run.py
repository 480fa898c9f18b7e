"""Execution of a graph in an actor, and of its nodes in child actors: MCP servers, events, log.

`decider` selects the next nodes. A node's executor returns, fails with a `CallboardError`, or raises another
exception (a bug). All three become an exit of the node (`node_exit`), which the graph receives as one message. Only
cancellation is propagated.

The levels of the log `callboard.graph` protect private data. DEBUG shows the names of state keys and the total
size. Only TRACE shows values, which can be secrets. `CALLBOARD_LOG` selects the level; disabled levels cost
nothing.
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
from ....protocol.graph import ScriptNode
from ....protocol.kernel.errors import EndOfMail
from ....protocol.messages import Failure, GraphBegun, NodeDone
from ...io.imports import imported
from ...work.spending.accounts import as_failure
from ...work.transcript import Record
from ..driver import Driver, Performer
from . import node_exit
from .decider import GraphDecider, state_size
from .plan import GraphPlan, NodeJob, NodeResult, PlanStep
from .result import GraphResult, run_error

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.mcp.tools.view import ServersView

TRACE = 5
"""Log level below DEBUG, for records that hold state values."""

log = logging.getLogger("callboard.graph")


async def run_graph(
    me: Actor,
    plan: GraphPlan,
    prompt: str,
    context: RunContext,
    depth: int = 0,
    state: dict[str, Any] | None = None,
    result: GraphResult | None = None,
    record: Record | None = None,
) -> GraphResult:
    """Run a graph in the actor `me`, and return its result.

    Args:
        prompt: value of `initial_prompt`.
        depth: number of agents above it.
        state: keys that override `initial_state`.
        result: updated while the graph runs, so that it is readable even if this actor is cancelled.
        record: transcript of its models' texts, for the same reason.
    """
    decider = GraphDecider(plan, result)

    async def body(nodes: Nodes) -> None:
        performers: dict[type[Work], Performer] = {RunNode: nodes.run}
        limit = plan.settings.max_concurrency
        logs = plan.settings.log_state_snapshots and log.isEnabledFor(logging.DEBUG)
        tapes = (_StepLog(decider),) if logs else ()
        driver = Driver(me, decider, performers, limit=limit, fresh=lambda: GraphDecider(plan), tapes=tapes)
        await driver.run(GraphBegun(prompt=prompt, state=state or {}))

    return await execute_graph(me, plan, context, depth, decider.result, record or Record(), body)


async def execute_graph(
    me: Actor,
    plan: GraphPlan,
    context: RunContext,
    depth: int,
    result: GraphResult,
    record: Record,
    body: Callable[[Nodes], Awaitable[None]],
) -> GraphResult:
    """Run `body` with the MCP servers and events of a graph.

    A failure is stored in the result and not raised, except `EndOfMail`.
    """
    if plan.sandbox is not None:
        context.hold(me, plan.sandbox)
    # A shared list: child agents add their tolerated failures through the transcript.
    result.failures = record.failures
    began = trio.current_time()
    if plan.servers:
        await imported(".actors.work.mcp.tools.tool_list")
    with _servers(me, plan, context) as servers:
        if me.stream.heard:
            me.emit(GraphStarted(graph=plan.name, start=plan.start, depth=depth))
        try:
            now = trio.lowlevel.current_clock().current_time
            await body(Nodes(plan, context, depth, record, servers, {}, now))
        # The actor was asked to stop, which is not a failure of the graph.
        except EndOfMail:
            raise
        except CallboardError as error:
            result.error = error
    log_summary(plan.name, result.timing)
    why = run_error(result.failures, result.error) if result.failures else result.error
    emit_end(me, plan.name, depth, began, result.timing, why)
    return result


def emit_end(
    me: Actor,
    graph: str,
    depth: int,
    began: float,
    timing: Mapping[str, tuple[int, float, float]],
    error: CallboardError | None,
) -> None:
    """Emit the end of a graph or a workflow that `began` on trio's clock; `error` is its failure, if any."""
    if me.stream.heard:
        seconds, text = trio.current_time() - began, None if error is None else str(error)
        code = "" if error is None else error.code
        me.emit(GraphFinished(graph=graph, seconds=seconds, depth=depth, timing=dict(timing), error=text, code=code))


@contextlib.contextmanager
def _servers(me: Actor, plan: GraphPlan, context: RunContext) -> Iterator[ServersView | None]:
    if not plan.servers:
        yield None
        return
    from ...work.mcp.tools.tool_list import servers_at_work

    with servers_at_work(me, context, own=plan.permissions, model=plan.model) as servers:
        yield servers


class Nodes(msgspec.Struct, frozen=True):
    """Executor of the nodes of one graph, with their common values; see `NodeJob`."""

    plan: GraphPlan
    context: RunContext
    depth: int
    record: Record
    servers: ServersView | None
    accounts: dict[str, RunContext]
    now: Callable[[], float]
    """`trio.current_time` without its two extra calls."""

    async def run(self, me: Actor, work: RunNode) -> NodeDone:
        """Execute a node in its own actor, and return its exit."""
        plan = self.plan
        step = plan.steps[work.node]
        unaccepted: list[CallboardError] = []
        context = self.context if step.limits is None else self._limited(step)
        job = NodeJob(
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
        stream = me.stream
        heard = stream.heard
        now = self.now
        began = now()
        if heard:
            stream.publish(me, NodeEntered(node=step.id, type=step.kind, visit=work.visit, item=work.item))
        try:
            assert step.work is not None
            # Before the work, which starts the processes that this restricts.
            if (own := getattr(step.node, "sandbox", None)) is not None:
                context.hold(me, own)
            # a script node measures its own time
            timed = step.timeout is not None and not isinstance(step.node, ScriptNode)
            result = await (_in_time(me, step, job) if timed else step.work(me, job))
            left = node_exit.succeeded(plan, step, work.state, result, in_map=in_map)
        except CallboardError as failed:
            error = as_failure(failed, context.account, self.context.account)
            left = node_exit.failed(plan, step, work.state, error, in_map=in_map)
        except Exception as error:  # a bug in an executor must end only that node; the log has the traceback
            log.exception("node '%s' crashed", step.id)
            left = node_exit.failed(
                plan, step, work.state, NodeFailed(f"{type(error).__name__}: {error}"), in_map=in_map
            )
        seconds = now() - began
        if heard:
            for event in node_exit.events_of(step, left, seconds, work.item):
                stream.publish(me, event)
        tolerated = () if left.error is None and not unaccepted else _unaccepted(step, left, unaccepted)
        return node_exit.as_message(work.key, step, left, seconds, tolerated)

    def _limited(self, step: PlanStep) -> RunContext:
        """Return the run context of a node with limits, which its executions in this graph share."""
        if step.id not in self.accounts:
            self.accounts[step.id] = self.context.limited(f"node '{step.id}'", step.limits)
        return self.accounts[step.id]


def _unaccepted(step: PlanStep, left: node_exit.NodeExit, below: list[CallboardError]) -> tuple[Failure, ...]:
    """Return tolerated failures of the node, and of runs below it, that the author has not accepted."""
    if (not below and left.unaccepted is None) or node_exit.accepts(step, left):
        return ()
    return tuple(map(Failure.of, below if left.unaccepted is None else [*below, left.unaccepted]))


async def _in_time(me: Actor, step: PlanStep, job: NodeJob) -> NodeResult:
    assert step.work is not None
    assert step.timeout is not None
    # Not a plain cancel scope: a run must not be unloaded while a time limit counts.
    with me.time_limit(trio.move_on_after(step.timeout)):
        return await step.work(me, job)
    raise TimedOut(_timeout_text(step))


def _timeout_text(step: PlanStep) -> str:
    seconds = f"{step.timeout:g}"
    agent = getattr(step.node, "agent", None)
    if agent is not None:
        return f"Agent '{agent}' timed out after {seconds}s"
    which = f" '{step.id}'" if step.kind == "rag" else ""
    return f"{step.kind} node{which} timed out after {seconds}s"


class _StepLog:
    """Tape that logs the state before each super-step."""

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
    """Log visits and times of every node, slowest first."""
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
