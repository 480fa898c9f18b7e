"""map nodes: a branch of the graph, once per item of a list, the results in the list's order.

The branch begins at one node and may be a chain: it goes on by `next`, `fallback` and `_next` as long as that stays
inside, and ends at a node that leads nowhere. Each item works on its own view of the state, of which only its
result comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .....protocol.errors import CallboardError, GraphMistake, NodeFailed
from .....protocol.events import Warned
from .....protocol.graph.model import MapNode
from ..execute import ACCEPTING, Left, execute
from ..failures import NEVER_TOLERATED, retold, together
from ..plan import Job, Result, reachable
from ..reducers import type_name
from ..templates import MISSING, compile_template
from ..together import run_together

if TYPE_CHECKING:
    from .....supervisors import Actor

BRANCH_KINDS = ("script", "llm", "rag", "agent")
RESULT_KINDS = ("llm", "rag", "agent")
"""Kinds whose primary result is collected when the branch left nothing in `output_key`."""


class Item:
    """One item's way through the branch."""

    __slots__ = ("_branch", "_index", "_job", "_output", "_view", "_visits")

    def __init__(self, job: Job, branch: frozenset[str], index: int, value: Any) -> None:
        node = job.node
        assert isinstance(node, MapNode)
        self._job = job
        self._branch = branch
        self._index = index
        # What the state holds under `output_key` before the branch ran is nobody's result.
        self._view: dict[str, Any] = {**job.state, node.as_: value}
        if not job.plan.compat.map_needs_output_key:
            self._view.pop(node.output_key, None)
        self._visits: dict[str, int] = {}
        self._output: Any = MISSING

    async def run(self, me: Actor) -> Any:
        """Body of the item's actor: its result.

        Raises:
            CallboardError: the item failed.
        """
        node = self._job.node
        assert isinstance(node, MapNode)
        at: str | None = node.branch
        number = 0
        while at is not None:
            number += 1
            at = await self._step(me, at, number)
        result = self._view.get(node.output_key, MISSING)
        if result is MISSING:
            result = self._output
        if result is MISSING:
            raise NodeFailed(f"did not write `output_key` '{node.output_key}'")
        return result

    async def _step(self, me: Actor, at: str, number: int) -> str | None:
        """Run one node of the branch; the next one, or None at its end."""
        job, plan = self._job, self._job.plan
        step = plan.steps[at]
        visits = self._visits[at] = self._visits.get(at, 0) + 1
        cap = plan.settings.max_loop_iterations
        if cap and visits > cap:
            raise GraphMistake(
                f"Node '{at}' visited {visits} times (max_loop_iterations={cap}). Possible infinite loop."
            )
        inner = Job(
            plan, step.node, self._view, job.context, job.depth, job.record, self._index, job.servers, job.failures
        )
        left: Left = await execute(me, step, inner, visits)
        if left.targets is None:
            assert left.error is not None
            raise retold(left.error, f"failed at node '{at}' (step {number}): {left.error}")
        self._view = {**self._view, **left.writes}
        if step.kind in RESULT_KINDS and not plan.compat.map_needs_output_key:
            self._output = left.output
        if plan.compat.map_branch_is_one_node or not left.targets:
            return None
        return self._inside(at, left.targets)

    def _inside(self, at: str, targets: tuple[str, ...]) -> str:
        node = self._job.node
        assert isinstance(node, MapNode)
        if len(targets) > 1:
            raise GraphMistake(f"'{at}' fanned out to {list(targets)}; a map branch must route to a single node")
        if targets[0] not in self._job.plan.steps:
            raise GraphMistake(f"Node '{targets[0]}' not found in graph '{self._job.plan.name}'")
        if targets[0] not in self._branch:
            raise GraphMistake(
                f"'{at}' routed to '{targets[0]}' which is outside the branch subgraph rooted at '{node.branch}' "
                f"(branch nodes: {', '.join(sorted(self._branch))})"
            )
        return targets[0]


async def run_map_node(me: Actor, job: Job) -> Result:
    """Run the branch for every item, at most `max_concurrency` at once, and collect."""
    node = job.node
    assert isinstance(node, MapNode)
    items = _items(job, node)
    if not items:
        return Result(writes={node.collect_into: []})
    if node.branch not in job.plan.steps:
        raise GraphMistake(f"Node '{node.branch}' not found in graph '{job.plan.name}'")
    # What the root leads to, as far as it can run in a branch.
    branch = reachable(job.plan, node.branch, BRANCH_KINDS) | {node.branch}
    launches = [
        (f"{node.branch}[{index}]", Item(job, branch, index, value).run, ()) for index, value in enumerate(items)
    ]
    ends = await run_together(me, launches, _limit(job, node))
    collected: list[Any] = []
    failed: list[tuple[int, CallboardError]] = []
    for index, end in enumerate(ends):
        if end.reason == "normal":
            collected.append(end.value)
            continue
        error = end.error if isinstance(end.error, CallboardError) else NodeFailed(str(end.error or end.reason))
        failed.append((index, error))
        if node.on_error == "collect":
            collected.append({"error": str(error), "code": error.code, "index": index})
    mistakes = [(index, error) for index, error in failed if isinstance(error, NEVER_TOLERATED)]
    if mistakes or (failed and node.on_error not in ACCEPTING):
        whole = together([(f"sub-branch [{index}] {error}", error) for index, error in mistakes or failed])
        raise retold(whole, f"map node '{node.id}': {whole}")
    for index, error in failed:
        me.emit(Warned(code="item_failed", message=f"{node.id}: sub-branch [{index}] {error}", node=node.id))
    return Result(writes={node.collect_into: collected})


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
    if isinstance(limit, str):
        return _whole_number(job.strict(limit), f"map node '{node.id}': max_concurrency")
    return max(1, limit if limit is not None else job.plan.settings.max_concurrency)


def _whole_number(text: str, what: str) -> int:
    """A rendered template as a number >= 1; `what` names it in the error."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise GraphMistake(f"{what}: expected a positive integer, got '{text}'")
    return number
