"""map nodes: a branch of the graph, once per item of a list (see `map_decider`).

With `place`, and where there are other places, each item with its branch is played as a run of its own (`Items`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.effects import RunNode
from .....protocol.errors import CallboardError, GraphMistake
from .....protocol.failure import Failure
from .....protocol.graph.model import MapNode
from .....protocol.messages import MapBegun, MapEnded, NodeLeft
from .....protocol.place import Branch, needs_of
from .....supervisors import Actor
from ....work.context import Part
from ....work.elsewhere import error_in, restored, take_over
from ....work.spending.accounts import as_failure
from ...driver import drive
from ..decider import GraphResult
from ..map_decider import MapDecider
from ..plan import Job, Plan, Result
from ..reducers import type_name
from ..run import Nodes, played
from ..templates import MISSING, compile_template

if TYPE_CHECKING:
    from .....protocol.outcome import Outcome
    from ....work.context import RunContext
    from ....work.record import Record


async def run_map_node(me: Actor, job: Job) -> Result:
    """Run the branch for every item, at most `max_concurrency` at once, and collect."""
    node, plan = job.node, job.plan
    assert isinstance(node, MapNode)
    items = _items(job, node)
    if not items:
        return Result(writes={node.collect_into: []})
    request = MapBegun(items=items, state=job.state)
    needs = needs_of(node.place)
    whole = needs is not None and job.context.elsewhere is not None
    plays = Nodes(plan, job.context, job.depth, job.record, job.servers, job.accounts).run
    if whole:
        plays = Items(job, node, items, needs or ()).run
    ended: MapEnded = await drive(
        me, lambda: MapDecider(plan, node, whole=whole), request, {RunNode: plays}, at_once=_limit(job, node)
    )
    job.failures += [failure.restore() for failure in ended.unaccepted]
    return Result(writes={node.collect_into: ended.collected})


class Items(msgspec.Struct, frozen=True):
    """The items of one map, played elsewhere."""

    job: Job
    node: MapNode
    items: list[Any]
    needs: tuple[str, ...]

    async def run(self, me: Actor, work: RunNode) -> NodeLeft:
        """Body of an item's actor: wait for the whole branch."""
        job, node, index = self.job, self.node, work.item
        assert index is not None
        began = trio.current_time()
        try:
            outcome = await self._outcome(me, index)
            error = None if node.output_key in outcome.state else error_in(outcome)
        except CallboardError as failed:
            error = failed
        seconds = trio.current_time() - began
        if error is not None:
            failure = Failure.of(as_failure(error, job.context.account, None))
            return NodeLeft(key=work.key, node=work.node, writes={}, targets=None, failure=failure, seconds=seconds)
        take_over(job.record, msgspec.structs.replace(outcome, output="", failures=[]))
        unaccepted = tuple(Failure.of(restored(each)) for each in outcome.failures)
        writes = {key: outcome.state[key] for key in (node.output_key,) if key in outcome.state}
        return NodeLeft(key=work.key, node=work.node, writes=writes, targets=(), unaccepted=unaccepted, seconds=seconds)

    async def _outcome(self, me: Actor, index: int) -> Outcome:
        job, node = self.job, self.node
        assert job.context.elsewhere is not None
        branch = Branch(node=node.id, item=self.items[index], index=index, state=dict(job.state))
        part = Part(
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
    me: Actor, plan: Plan, branch: Branch, context: RunContext, depth: int, result: GraphResult, record: Record
) -> GraphResult:
    """Body of the actor of a run that is one item of a map; what it comes to is in its state.

    Args:
        result, record: see `run_graph`.
    """
    node = plan.steps[branch.node].node if branch.node in plan.steps else None

    async def play(nodes: Nodes) -> None:
        if not isinstance(node, MapNode):
            raise GraphMistake(f"Node '{branch.node}' of graph '{plan.name}' is no map")
        ended: MapEnded = await drive(
            me,
            lambda: MapDecider(plan, node, alone=branch.index),
            MapBegun(items=[branch.item], state=branch.state),
            {RunNode: nodes.run},
        )
        result.state = {node.output_key: ended.collected[0]}
        record.failures += [failure.restore() for failure in ended.unaccepted]

    return await played(me, plan, context, depth, result, record, play)


def _items(job: Job, node: MapNode) -> list[Any]:
    template = compile_template(node.over)
    try:
        value = template.value(job.state) if template.single is not None else job.strict(node.over)
        if value is MISSING:
            job.strict(node.over)
    except GraphMistake as mistake:
        raise GraphMistake(f"map node '{node.id}': evaluating `over` template: {mistake}") from mistake
    if not isinstance(value, list):
        raise GraphMistake(
            f"map node '{node.id}': `over` template '{node.over}' must resolve to an array, got {type_name(value)}"
        )
    return value


def _limit(job: Job, node: MapNode) -> int:
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
