"""A graph as an actor: its MCP servers, its story, and its decider played to the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.effects import RunNode, Work
from ....protocol.errors import CallboardError
from ....protocol.events import GraphFinished, GraphStarted
from ....protocol.kernel.errors import EndOfMail
from ....protocol.messages import GraphBegun
from ...io.imports import imported
from ...work.record import Record
from ..driver import Driver, Performer
from .decider import GraphDecider, GraphResult
from .failures import ended_with
from .logs import log_summary
from .plan import Plan
from .work import Nodes

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.mcp.tools.offer import AgentServers


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
        plan: what to run.
        prompt: becomes `initial_prompt`.
        context: the run.
        depth: how many agents stand above it.
        state: keys that replace those of `initial_state`.
        result: filled while the graph runs, so that it can be read even if this actor is cancelled.
        record: where its models' texts are written down, for the same reason.
    """
    record = record or Record()
    decider = GraphDecider(plan, result)
    result = decider.result
    result.failures = record.failures
    began = trio.current_time()
    if plan.servers:
        await imported(".actors.work.mcp.tools.offer")
    with _servers(me, plan, context) as servers:
        if me.stream.heard:
            me.emit(GraphStarted(graph=plan.name, start=plan.start, depth=depth))
        performers: dict[type[Work], Performer] = {RunNode: Nodes(plan, context, depth, record, servers).run}
        limit = plan.settings.max_concurrency
        driver = Driver(me, decider, performers, at_once=limit, afresh=lambda: GraphDecider(plan))
        try:
            await driver.play(GraphBegun(prompt=prompt, state=state or {}))
        except EndOfMail:
            raise
        except CallboardError as error:
            result.error = error
    log_summary(plan.name, result.timing)
    if me.stream.heard:
        seconds, ended = trio.current_time() - began, ended_with(result.failures, result.error)
        me.emit(
            GraphFinished(
                graph=plan.name,
                seconds=seconds,
                depth=depth,
                timing=dict(result.timing),
                error=None if ended is None else str(ended),
                code="" if ended is None else ended.code,
            )
        )
    return result


@contextlib.contextmanager
def _servers(me: Actor, plan: Plan, context: RunContext) -> Iterator[AgentServers | None]:
    """What the graph has of MCP servers while it runs."""
    if not plan.servers:
        yield None
        return
    from ...work.mcp.tools.offer import servers_at_work

    with servers_at_work(me, context, own=plan.permissions, model=plan.model) as servers:
        yield servers
