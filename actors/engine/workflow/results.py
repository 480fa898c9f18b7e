"""Results of all graphs within a run, for its outcome: fired nodes and their outputs.

Each graph that a firing runs has a `RanGraph` below that of the outer graph. A later incarnation of a durable run
rebuilds these (`recall`) from the messages of the graphs' deciders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from ....protocol.errors import GraphMistake, NodeFailed
from ....protocol.messages import WorkDone
from ....protocol.outcome import Message as Told
from ....protocol.outcome import NodeTime
from ....protocol.workflow.model import SubgraphConfig
from ....protocol.workflow_messages import Fired, FireNode, RunUnit, Unit, UnitsBegun, WorkflowBegun
from ...work.journal.actor_journal import JournalPlayer
from ..graph.result import GraphResult
from ..recovery import EarlierWork, fold
from .decider import UnitsDecider, WorkflowDecider
from .machine.machine import MachineResult
from .machine.perform import Firing, multiplied, restored, tolerated_of
from .machine.structure import Structure
from .messages import Message, signed


class WorkflowResult(GraphResult, kw_only=True):
    """Result of a workflow; the intermediate result if it was ended early.

    `output` is the text of the result; `order` includes the nodes of subgraphs.

    Attributes:
        final_messages, leftover: see `MachineResult`.
        outputs: output of each node; a subgraph's node has a name such as `Team/Writer`.
    """

    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)

    def recorded_messages(self) -> tuple[list[Told], dict[str, list[Told]], dict[str, list[Told]]]:
        """Return the messages for an outcome: final messages, leftover messages by node, outputs by node."""
        left, said = (
            {node: [_recorded_message(message) for message in messages] for node, messages in each.items()}
            for each in (self.leftover, self.outputs)
        )
        return [_recorded_message(message) for message in self.final_messages], left, said

    def take(self, result: MachineResult, timing: Mapping[str, tuple[int, float, float]], ran: RanGraph) -> None:
        """Copy the state of a machine into this result; the time of a subgraph is its node's time."""
        self.output = result.final
        self.nodes = {id: NodeTime(visits=visits, seconds=seconds) for id, (visits, seconds, _) in timing.items()}
        self.final_messages = result.final_messages
        self.leftover = result.leftover
        ran.outputs = result.outputs
        self.order = list(ran.fired())
        for id, said in ran.node_outputs():
            self.outputs[id] = (*self.outputs.get(id, ()), *said)


def _recorded_message(message: Message) -> Told:
    return Told(role=message.role, content=message.text, source=message.source)


class RanGraph(msgspec.Struct, eq=False):
    """Results of one run of a graph.

    Attributes:
        order: the fired nodes; index 0 has the firing with key 1.
        outputs: output of each node.
        parts: outputs of some units of firings that failed or were cancelled, by node.
        below: graphs of subgraph firings, by the firing's key; then by layer and index of the unit.
    """

    order: list[str] = []
    outputs: dict[str, tuple[Message, ...]] = {}
    parts: dict[str, list[Message]] = {}
    below: dict[int, dict[tuple[int, int], RanGraph]] = {}

    def of(self, key: int, layer: int = 0, unit: int | None = None) -> RanGraph:
        """Return the results of the graph of a firing, or of one of its units."""
        return self.below.setdefault(key, {}).setdefault((layer, unit or 0), RanGraph())

    def fired(self) -> Iterator[str]:
        """Yield all fired nodes; the nodes of a subgraph follow its node."""
        for key, id in enumerate(self.order, 1):
            yield id
            for ran in self._of_firing(key):
                yield from ran.fired()

    def node_outputs(self, prefix: str = "") -> Iterator[tuple[str, tuple[Message, ...]]]:
        """Yield the outputs of nodes; a subgraph's nodes have names such as `Team/Writer`, and can occur more than
        once.
        """
        for each in self.outputs.items():
            yield prefix + each[0], each[1]
        for id, parts in self.parts.items():
            yield prefix + id, tuple(parts)
        for key in sorted(self.below):
            for ran in self._of_firing(key):
                yield from ran.node_outputs(f"{prefix}{self.order[key - 1]}/")

    def keep_part(self, node: str, said: Sequence[Message]) -> None:
        """Store the outputs of some units of a firing that will not end normally."""
        self.parts.setdefault(node, []).extend(signed(message, node) for message in said)

    def _of_firing(self, key: int) -> list[RanGraph]:
        return [ran for _, ran in sorted(self.below.get(key, {}).items(), key=lambda each: each[0])]


async def recall(structure: Structure, ran: RanGraph, player: JournalPlayer, gone: Iterable[EarlierWork]) -> None:
    """Rebuild the results of firings that began in earlier incarnations.

    Raises:
        CannotGoOn: the journal is from another graph.
    """
    for each in gone:
        work, end = each.work, each.end
        assert isinstance(work, FireNode)
        place = structure.by_id[work.node]
        runs_graph = isinstance(place.node.config, SubgraphConfig)
        if work.failure is not None:  # only its edges were executed
            continue
        if place.dynamic is None:
            if runs_graph:
                await _recall_graph(structure.within(place), ran.of(work.key), player.of(each.path), work.inputs)
        # A plain firing that ended has its outputs in the machine; only partial ones must be rebuilt.
        elif runs_graph or _stays_behind(end):
            with suppress(GraphMistake, NodeFailed):  # the firing stopped in the middle of its layers
                await _recall_layers(Firing(work, structure), ran, player, each)


async def recall_units(
    firing: Firing, ran: RanGraph, player: JournalPlayer, gone: Iterable[EarlierWork], layer: int, units: Sequence[Unit]
) -> None:
    """Rebuild the results of a firing's units; see `recall`."""
    if isinstance(firing.node.config, SubgraphConfig):
        within = firing.structure.within(firing.place)
        for each in gone:
            below = ran.of(firing.work.key, layer, each.work.key)
            await _recall_graph(within, below, player.of(each.path), units[each.work.key].inputs)


async def _recall_graph(structure: Structure, ran: RanGraph, player: JournalPlayer, task: Sequence[Message]) -> None:
    # The process died before the first row of the subgraph: it starts from its beginning.
    if not player.past:
        return
    decider, gone = WorkflowDecider(structure, warns=False, order=ran.order), list[EarlierWork]()
    left = fold(decider, player, WorkflowBegun(task=tuple(task)), gone=gone)
    ran.outputs = decider.machine.result().outputs
    await recall(structure, ran, player, [*gone, *left.under_way(player)])


async def _recall_layers(firing: Firing, ran: RanGraph, player: JournalPlayer, gone: EarlierWork) -> None:
    """Rebuild the layers of units: one for a map, one or more for a tree."""
    dynamic = firing.place.dynamic
    assert dynamic is not None
    layer, said = 0, list[Message]()

    async def run(units: Sequence[Unit], _limit: int) -> list[tuple[Message, ...]]:
        nonlocal layer
        if units[0].index is None:  # no units
            if isinstance(firing.node.config, SubgraphConfig):
                within, below = firing.structure.within(firing.place), ran.of(firing.work.key)
                await _recall_graph(within, below, player.of(gone.path), units[0].inputs)
            return [()]
        # Each layer has its own decider, and so its own path in the journal (`JournalScope.player`).
        inner = player.of(gone.path if layer == 0 else f"{gone.path}:{layer + 1}")
        if not inner.past:
            raise NodeFailed("it did not come this far")
        decider, ended = UnitsDecider(), list[EarlierWork]()
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
    """Return True if a firing's result lacks the outputs of its units."""
    return not isinstance(end, Fired) or (end.failure is not None and not end.outputs)
