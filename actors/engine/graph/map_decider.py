"""Map decider: runs a branch of the graph once per item of a list, and collects the results in the list's order.

The branch begins at one node and can be a chain: it continues by `next`, `fallback` and `_next` within the branch,
and ends at a node without targets. Each item has its own copy of the state; only its result is returned.

The decider (`engine/driver`) receives `NodeDone` for each node of each item. It returns the item's next node, or
the end of the map when no item is running.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ....protocol.effects import Effect, Emit, Finish, RunNode
from ....protocol.errors import CallboardError, GraphMistake, NodeFailed
from ....protocol.events import Warned
from ....protocol.graph import MapNode
from ....protocol.kernel.messages import Message
from ....protocol.messages import Failure, MapBegun, MapEnded, NodeDone, WorkFailed
from . import node_exit
from .plan import GraphPlan, State, reachable
from .result import NEVER_TOLERATED, PARTIAL_RESULTS, combined, reworded
from .templates import MISSING

BRANCH_KINDS = ("script", "llm", "rag", "agent")
RESULT_KINDS = ("llm", "rag", "agent")
"""Kinds of nodes whose primary result is collected if the branch wrote no `output_key`."""


class _Item(msgspec.Struct):
    """Progress of one item through the branch."""

    index: int
    name: str
    view: State
    at: str = ""
    number: int = 0
    visits: dict[str, int] = {}
    output: Any = MISSING
    result: Any = MISSING
    error: CallboardError | None = None


class MapDecider:
    """Decider of one execution of a map node.

    Args:
        whole: the work that starts at the first node executes the whole branch (a remote child).
        alone: index of the only item, in a map whose decider is in another run; its failure fails this decider.
    """

    def __init__(self, plan: GraphPlan, node: MapNode, *, whole: bool = False, alone: int | None = None) -> None:
        self.heard = True
        self._plan = plan
        self._node = node
        self._whole = whole
        self._alone = alone
        self._branch: frozenset[str] = frozenset()
        self._items: list[_Item] = []
        self._under_way = 0
        self._unaccepted: list[Failure] = []

    def begin(self, request: MapBegun) -> list[Effect]:
        """Return the first node of every item."""
        node, plan = self._node, self._plan
        if node.branch not in plan.steps:
            error = GraphMistake(f"Node '{node.branch}' not found in graph '{plan.name}'")
            return [Finish(failure=Failure.of(error))]
        # Reachable nodes, limited to the kinds that a branch can contain.
        self._branch = reachable(plan, node.branch, BRANCH_KINDS) | {node.branch}
        state = dict(request.state)
        if not plan.compat.map_needs_output_key:
            state.pop(node.output_key, None)  # a value from before the branch must not count as an item's result
        self._items = [
            _Item(index, f"{node.branch}[{index}]", {**state, node.as_: value})
            for index, value in enumerate(request.items, self._alone or 0)
        ]
        self._under_way = len(self._items)
        return [self._enter(item, node.branch) for item in self._items]

    def on(self, message: Message) -> list[Effect]:
        """Return the item's next node, or, when the last item has ended, the end of the map.

        Only the ends of nodes (`NodeDone`, `WorkFailed`) have effects.
        """
        effects: list[Effect] = []
        if isinstance(message, WorkFailed):
            item = self._item(message.key)
            step = self._plan.steps[item.at]
            left, message = node_exit.cancelled(self._plan, step, item.view, message, in_map=True)
            if self.heard:
                events = node_exit.events_of(step, left, message.seconds, item.index)
                effects += [Emit(event, about=message.key) for event in events]
        elif not isinstance(message, NodeDone):
            return []
        item = self._item(message.key)
        try:
            following = self._node_ended(item, message)
            if following is not None:
                effects.append(self._enter(item, following))
                return effects
            item.result = self._result_of(item)
        except CallboardError as error:
            item.error = error
        self._under_way -= 1
        return effects if self._under_way else [*effects, *self._collected()]

    def remembers(self) -> tuple[object, ...]:
        return (self._items,)

    def _item(self, index: int) -> _Item:
        return self._items[index - (self._alone or 0)]

    def _enter(self, item: _Item, at: str) -> Effect:
        item.at = at
        item.number += 1
        visit = item.visits[at] = item.visits.get(at, 0) + 1
        return RunNode(key=item.index, name=item.name, node=at, visit=visit, state=item.view, item=item.index)

    def _node_ended(self, item: _Item, left: NodeDone) -> str | None:
        """Apply the writes of a node; return the next node, or None at the end of the branch.

        Raises:
            CallboardError: the failure of the item.
        """
        plan, at = self._plan, item.at
        self._unaccepted += left.unaccepted
        if left.targets is None:
            assert left.failure is not None
            error = left.failure.restore()
            # The remote child's error already names the node.
            if self._whole:
                raise error
            raise reworded(error, f"failed at node '{at}' (step {item.number}): {error}")
        # A copy per item: items run concurrently and must not see each other's writes.
        item.view = {**item.view, **left.writes}
        if self._whole:
            return None
        if plan.steps[at].kind in RESULT_KINDS and not plan.compat.map_needs_output_key:
            item.output = left.output
        if plan.compat.map_branch_is_one_node or not left.targets:
            return None
        following = self._inside(at, left.targets)
        cap, visits = plan.settings.max_loop_iterations, item.visits.get(following, 0) + 1
        if cap and visits > cap:
            raise GraphMistake(
                f"Node '{following}' visited {visits} times (max_loop_iterations={cap}). Possible infinite loop."
            )
        return following

    def _inside(self, at: str, targets: tuple[str, ...]) -> str:
        if len(targets) > 1:
            raise GraphMistake(f"'{at}' fanned out to {list(targets)}; a map branch must route to a single node")
        if targets[0] not in self._plan.steps:
            raise GraphMistake(f"Node '{targets[0]}' not found in graph '{self._plan.name}'")
        if targets[0] not in self._branch:
            raise GraphMistake(
                f"'{at}' routed to '{targets[0]}' which is outside the branch subgraph rooted at "
                f"'{self._node.branch}' (branch nodes: {', '.join(sorted(self._branch))})"
            )
        return targets[0]

    def _result_of(self, item: _Item) -> Any:
        result = item.view.get(self._node.output_key, MISSING)
        if result is MISSING:
            result = item.output
        if result is MISSING:
            raise NodeFailed(f"did not write `output_key` '{self._node.output_key}'")
        return result

    def _collected(self) -> list[Effect]:
        node = self._node
        collected: list[Any] = []
        failed: list[tuple[int, CallboardError]] = []
        for index, item in enumerate(self._items):
            if item.error is None:
                collected.append(item.result)
                continue
            if self._alone is not None:
                return [Finish(failure=Failure.of(item.error))]
            failed.append((index, item.error))
            if node.on_error == "collect":
                collected.append({"error": str(item.error), "code": item.error.code, "index": index})
        # Mistakes and budgets fail the map even if the author accepts failures of items.
        mistakes = [(index, error) for index, error in failed if isinstance(error, NEVER_TOLERATED)]
        if mistakes or (failed and node.on_error not in node_exit.ACCEPTING):
            whole = combined([(f"sub-branch [{index}] {error}", error) for index, error in mistakes or failed])
            told = reworded(whole, f"map node '{node.id}': {whole}")
            if not self._plan.compat.failed_maps_leave_nothing:
                # `GraphDecider` stores these partial results, although the super-step fails.
                told.__dict__[PARTIAL_RESULTS] = {
                    node.collect_into: [None if item.error else item.result for item in self._items]
                }
            return [Finish(failure=Failure.of(told))]
        effects: list[Effect] = [
            Emit(Warned(code="item_failed", message=f"{node.id}: sub-branch [{index}] {error}", node=node.id))
            for index, error in failed
        ]
        return [*effects, Finish(MapEnded(collected=collected, unaccepted=tuple(self._unaccepted)))]
