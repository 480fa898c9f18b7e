"""map nodes: a branch of the graph, once per item of a list (see `map_decider`)."""

from __future__ import annotations

from typing import Any

from .....protocol.effects import RunNode
from .....protocol.errors import GraphMistake
from .....protocol.graph.model import MapNode
from .....protocol.messages import MapBegun, MapEnded
from .....supervisors import Actor
from ...driver import drive
from ..map_decider import MapDecider
from ..plan import Job, Result
from ..reducers import type_name
from ..run import Nodes
from ..templates import MISSING, compile_template


async def run_map_node(me: Actor, job: Job) -> Result:
    """Run the branch for every item, at most `max_concurrency` at once, and collect."""
    node, plan = job.node, job.plan
    assert isinstance(node, MapNode)
    items = _items(job, node)
    if not items:
        return Result(writes={node.collect_into: []})
    nodes = Nodes(plan, job.context, job.depth, job.record, job.servers, job.accounts)
    request = MapBegun(items=items, state=job.state)
    ended: MapEnded = await drive(
        me, lambda: MapDecider(plan, node), request, {RunNode: nodes.run}, at_once=_limit(job, node)
    )
    job.failures += [failure.restore() for failure in ended.unaccepted]
    return Result(writes={node.collect_into: ended.collected})


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
