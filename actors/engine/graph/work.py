"""One node of a graph, once: the body of the actor that does it.

A node's own code may return, fail with one of our errors, or have a bug. All three become a way of leaving the node
(`leave`), which reaches the graph as one message. Only an interruption goes through.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.effects import RunNode
from ....protocol.errors import CallboardError, NodeFailed, TimedOut
from ....protocol.events import NodeEntered
from ....protocol.failure import Failure
from ....protocol.messages import NodeLeft
from ...work.record import Record
from . import leave
from .plan import Job, Plan, Result, Step

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.mcp.tools.offer import AgentServers

log = logging.getLogger("callboard.graph")


class Nodes(msgspec.Struct, frozen=True):
    """What the nodes of one graph have in common while it runs.

    Attributes:
        depth: how many agents stand above the graph.
        record: where its models' texts are written down.
        servers: what it has of MCP servers; None if it uses none.
    """

    plan: Plan
    context: RunContext
    depth: int
    record: Record
    servers: AgentServers | None

    async def run(self, me: Actor, work: RunNode) -> NodeLeft:
        """Body of a node's actor."""
        plan = self.plan
        step = plan.steps[work.node]
        unaccepted: list[CallboardError] = []
        job = Job(
            plan, step.node, work.state, self.context, self.depth, self.record, work.item, self.servers, unaccepted
        )
        in_map = work.item is not None
        heard = me.stream.heard
        began = trio.current_time()
        if heard:
            me.emit(NodeEntered(node=step.id, type=step.kind, visit=work.visit, item=work.item))
        try:
            assert step.work is not None
            result = await (step.work(me, job) if step.timeout is None else _in_time(me, step, job))
            left = leave.succeeded(plan, step, work.state, result, in_map=in_map)
        except CallboardError as error:
            left = leave.failed(plan, step, work.state, error, in_map=in_map)
        except Exception as error:  # a bug in a node's code must cost that node, with its traceback in the log
            log.exception("node '%s' crashed", step.id)
            left = leave.failed(plan, step, work.state, NodeFailed(f"{type(error).__name__}: {error}"), in_map=in_map)
        seconds = trio.current_time() - began
        if heard:
            for event in leave.told(step, left, seconds, work.item):
                me.emit(event)
        return NodeLeft(
            work.key,
            node=step.id,
            writes=left.writes,
            targets=left.targets,
            output=left.output,
            failure=None if left.error is None else Failure.of(left.error),
            unaccepted=_unaccepted(step, left, unaccepted),
            seconds=seconds,
        )


def _unaccepted(step: Step, left: leave.Left, below: list[CallboardError]) -> tuple[Failure, ...]:
    """The failures that the node, or what it has played, went on over without the author's word."""
    if (not below and left.unaccepted is None) or leave.accepts(step, left):
        return ()
    return tuple(map(Failure.of, below if left.unaccepted is None else [*below, left.unaccepted]))


async def _in_time(me: Actor, step: Step, job: Job) -> Result:
    assert step.work is not None
    assert step.timeout is not None
    with trio.move_on_after(step.timeout):
        return await step.work(me, job)
    raise TimedOut(_timeout_text(step))


def _timeout_text(step: Step) -> str:
    seconds = f"{step.timeout:g}"
    name = getattr(step.node, "script", None)
    if name is not None:
        return f"Script '{name}' timed out after {seconds}s"
    agent = getattr(step.node, "agent", None)
    if agent is not None:
        return f"Agent '{agent}' timed out after {seconds}s"
    which = f" '{step.id}'" if step.kind == "rag" else ""
    return f"{step.kind} node{which} timed out after {seconds}s"
