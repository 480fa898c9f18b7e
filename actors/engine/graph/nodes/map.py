"""map nodes: run a branch of the graph once per item of a list (see `map_decider`).

With `place`, on a cluster, each item with its branch is a remote child: a run of its own (`Items`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.effects import RunNode
from .....protocol.errors import CallboardError, GraphMistake
from .....protocol.graph import MapNode
from .....protocol.messages import Failure, MapBegun, MapEnded, NodeDone
from .....protocol.placement import Branch, needs_of
from .....supervisors import Actor
from ....work.context import SeparatePart
from ....work.spending.accounts import as_failure
from ....work.transcript import error_in, restored, take_over
from ...driver import drive
from ..map_decider import MapDecider
from ..plan import GraphPlan, NodeJob, NodeResult
from ..reducers import type_name
from ..result import GraphResult
from ..run import Nodes, execute_graph
from ..templates import MISSING, compile_template

if TYPE_CHECKING:
    from .....protocol.outcome import Outcome
    from ....work.context import RunContext
    from ....work.transcript import Record


async def run_map_node(me: Actor, job: NodeJob) -> NodeResult:
    """Run the branch for every item, at most `max_concurrency` concurrently, and collect the results."""
    node, plan = job.node, job.plan
    assert isinstance(node, MapNode)
    items = _items(job, node)
    if not items:
        return NodeResult(writes={node.collect_into: []})
    request = MapBegun(items=items, state=job.state)
    needs = needs_of(node.place)
    whole = needs is not None and job.context.elsewhere is not None
    now = trio.lowlevel.current_clock().current_time
    plays = Nodes(plan, job.context, job.depth, job.record, job.servers, job.accounts, now).run
    if whole:
        plays = Items(job, node, items, needs or ()).run
    ended: MapEnded = await drive(
        me, lambda: MapDecider(plan, node, whole=whole), request, {RunNode: plays}, limit=_limit(job, node)
    )
    job.failures += [failure.restore() for failure in ended.unaccepted]
    return NodeResult(writes={node.collect_into: ended.collected})


class Items(msgspec.Struct, frozen=True):
    """Items of one map that run as remote children."""

    job: NodeJob
    node: MapNode
    items: list[Any]
    needs: tuple[str, ...]

    async def run(self, me: Actor, work: RunNode) -> NodeDone:
        """Run an item's whole branch as a remote child; return its end, whether it failed or not."""
        job, node, index = self.job, self.node, work.item
        assert index is not None
        began = trio.current_time()
        try:
            outcome = await self._outcome(me, index)
            # A remote child that has written its result counts as successful, even if its run is marked as failed.
            error = None if node.output_key in outcome.state else error_in(outcome)
        except CallboardError as failed:
            error = failed
        seconds = trio.current_time() - began
        if error is not None:
            failure = Failure.of(as_failure(error, job.context.account, None))
            return NodeDone(key=work.key, node=work.node, writes={}, targets=None, failure=failure, seconds=seconds)
        # Without output and failures: the map's own result and `unaccepted` carry these.
        take_over(job.record, msgspec.structs.replace(outcome, output="", failures=[]))
        unaccepted = tuple(Failure.of(restored(each)) for each in outcome.failures)
        writes = {key: outcome.state[key] for key in (node.output_key,) if key in outcome.state}
        return NodeDone(key=work.key, node=work.node, writes=writes, targets=(), unaccepted=unaccepted, seconds=seconds)

    async def _outcome(self, me: Actor, index: int) -> Outcome:
        job, node = self.job, self.node
        assert job.context.elsewhere is not None
        branch = Branch(node=node.id, item=self.items[index], index=index, state=dict(job.state))
        part = SeparatePart(
            name=f"{node.id}[{index}]",
            target=job.plan.directory / job.plan.file,
            needs=self.needs,
            context=job.context,
            depth=job.depth,
            variables=job.plan.values,
            branch=branch,
        )
        return await job.context.elsewhere(me, part)


async def run_branch(
    me: Actor, plan: GraphPlan, branch: Branch, context: RunContext, depth: int, result: GraphResult, record: Record
) -> GraphResult:
    """Run one item of a map whose decider is in another run.

    The state of the returned result has one key, the map's `output_key`, with the item's result.

    Args:
        result, record: see `run_graph`.
    """
    node = plan.steps[branch.node].node if branch.node in plan.steps else None

    async def body(nodes: Nodes) -> None:
        if not isinstance(node, MapNode):
            raise GraphMistake(f"Node '{branch.node}' of graph '{plan.name}' is not a map node")
        ended: MapEnded = await drive(
            me,
            lambda: MapDecider(plan, node, alone=branch.index),
            MapBegun(items=[branch.item], state=branch.state),
            {RunNode: nodes.run},
        )
        result.state = {node.output_key: ended.collected[0]}
        record.failures += [failure.restore() for failure in ended.unaccepted]

    return await execute_graph(me, plan, context, depth, result, record, body)


def _items(job: NodeJob, node: MapNode) -> list[Any]:
    template = compile_template(node.over)
    try:
        value = template.value(job.state) if template.single is not None else job.strict(node.over)
        # Raises the usual error for a missing key.
        if value is MISSING:
            job.strict(node.over)
    except GraphMistake as mistake:
        raise GraphMistake(f"map node '{node.id}': evaluating `over` template: {mistake}") from mistake
    if not isinstance(value, list):
        raise GraphMistake(
            f"map node '{node.id}': `over` template '{node.over}' must resolve to an array, got {type_name(value)}"
        )
    return value


def _limit(job: NodeJob, node: MapNode) -> int:
    limit = node.max_concurrency
    if not isinstance(limit, str):
        return max(1, limit if limit is not None else job.plan.settings.max_concurrency)
    text = job.strict(limit)
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise GraphMistake(f"map node '{node.id}': max_concurrency: expected a positive integer, got '{text}'")
    return number
