"""What runs of graphs within a run have left for its outcome: who was fired, and what each node has said.

A `Ran` for each graph that a firing has run, below that of the graph around it. In a later life of a durable run those
of earlier lives are made again (`recall`) from what the deciders of those graphs were told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from ....protocol.errors import GraphMistake, NodeFailed
from ....protocol.messages import WorkDone
from ....protocol.workflow.model import SubgraphConfig
from ....protocol.workflow_messages import Fired, FireNode, RunUnit, Unit, UnitsBegun, WorkflowBegun
from ...work.journal.scope import Player
from ..past import Gone, fold
from .decider import UnitsDecider, WorkflowDecider
from .machine.dynamic import multiplied
from .machine.perform import Firing, restored, tolerated_of
from .machine.structure import Structure
from .messages import Message, signed


class Ran(msgspec.Struct, eq=False):
    """One run of one graph.

    Attributes:
        order: the nodes that were fired; the first is that of the firing with key 1.
        outputs: what each has said.
        parts: what units have said of firings that failed or were cancelled before all of it was there, by node.
        below: the graphs that its firings have run, by the firing's key; by layer and number of the unit.
    """

    order: list[str] = []
    outputs: dict[str, tuple[Message, ...]] = {}
    parts: dict[str, list[Message]] = {}
    below: dict[int, dict[tuple[int, int], Ran]] = {}

    def of(self, key: int, layer: int = 0, unit: int | None = None) -> Ran:
        """That of a graph that a firing runs, for one of its units if it has some."""
        return self.below.setdefault(key, {}).setdefault((layer, unit or 0), Ran())

    def fired(self) -> Iterator[str]:
        """All that were fired, those of a subgraph behind its node."""
        for key, id in enumerate(self.order, 1):
            yield id
            for ran in self._of_firing(key):
                yield from ran.fired()

    def said(self, prefix: str = "") -> Iterator[tuple[str, tuple[Message, ...]]]:
        """What nodes have said; those of a subgraph are called `Team/Writer`, and may come more than once."""
        for each in self.outputs.items():
            yield prefix + each[0], each[1]
        for id, parts in self.parts.items():
            yield prefix + id, tuple(parts)
        for key in sorted(self.below):
            for ran in self._of_firing(key):
                yield from ran.said(f"{prefix}{self.order[key - 1]}/")

    def keep_part(self, node: str, said: Sequence[Message]) -> None:
        """Keep what units of a firing have said that will not say it all."""
        self.parts.setdefault(node, []).extend(signed(message, node) for message in said)

    def _of_firing(self, key: int) -> list[Ran]:
        return [ran for _, ran in sorted(self.below.get(key, {}).items(), key=lambda each: each[0])]


async def recall(structure: Structure, ran: Ran, player: Player, gone: Iterable[Gone]) -> None:
    """Fill in what firings of a graph have left that had begun in earlier lives.

    Raises:
        CannotGoOn: it is the past of another graph.
    """
    for each in gone:
        work, end = each.work, each.end
        assert isinstance(work, FireNode)
        place = structure.by_id[work.node]
        runs_graph = isinstance(place.node.config, SubgraphConfig)
        if work.failure is not None:  # only its edges were done
            continue
        if place.dynamic is None:
            if runs_graph:
                await _recall_graph(structure.within(place), ran.of(work.key), player.of(each.path), work.inputs)
        elif runs_graph or _stays_behind(end):
            with suppress(GraphMistake, NodeFailed):  # it has come to this in the middle of it
                await _recall_layers(Firing(work, structure), ran, player, each)


async def recall_units(
    firing: Firing, ran: Ran, player: Player, gone: Iterable[Gone], layer: int, units: Sequence[Unit]
) -> None:
    """As `recall`, for units of a firing."""
    if isinstance(firing.node.config, SubgraphConfig):
        within = firing.structure.within(firing.place)
        for each in gone:
            below = ran.of(firing.work.key, layer, each.work.key)
            await _recall_graph(within, below, player.of(each.path), units[each.work.key].inputs)


async def _recall_graph(structure: Structure, ran: Ran, player: Player, task: Sequence[Message]) -> None:
    if not player.past:
        return
    decider, gone = WorkflowDecider(structure, warns=False, order=ran.order), list[Gone]()
    left = fold(decider, player, WorkflowBegun(task=tuple(task)), gone=gone)
    ran.outputs = decider.machine.result().outputs
    await recall(structure, ran, player, [*gone, *left.under_way(player)])


async def _recall_layers(firing: Firing, ran: Ran, player: Player, gone: Gone) -> None:
    """A map has one layer of units, a tree perhaps several."""
    dynamic = firing.place.dynamic
    assert dynamic is not None
    layer, said = 0, list[Message]()

    async def run(units: Sequence[Unit], _limit: int) -> list[tuple[Message, ...]]:
        nonlocal layer
        if units[0].index is None:  # there was nothing to take apart
            if isinstance(firing.node.config, SubgraphConfig):
                within, below = firing.structure.within(firing.place), ran.of(firing.work.key)
                await _recall_graph(within, below, player.of(gone.path), units[0].inputs)
            return [()]
        inner = player.of(gone.path if layer == 0 else f"{gone.path}:{layer + 1}")
        if not inner.past:
            raise NodeFailed("it did not come this far")
        decider, ended = UnitsDecider(), list[Gone]()
        batch = tuple(RunUnit(key=i, unit=unit, name="") for i, unit in enumerate(units))
        left = fold(decider, inner, UnitsBegun(units=batch), gone=ended)
        await recall_units(firing, ran, inner, [*ended, *left.under_way(inner)], layer, units)
        results = decider.in_order()
        said.extend(message for each in results for message in each.outputs)
        if len(results) < len(units):
            raise NodeFailed("it did not come to the end of this")
        layer += 1
        return tolerated_of(firing, units, [restored(each) for each in results])

    try:
        await multiplied(dynamic, firing.work.inputs, run, firing.structure.rules)
    finally:
        if said and _stays_behind(gone.end):
            ran.keep_part(firing.node.id, said)


def _stays_behind(end: WorkDone | None) -> bool:
    """Whether a firing has not said what its units have."""
    return not isinstance(end, Fired) or (end.failure is not None and not end.outputs)
