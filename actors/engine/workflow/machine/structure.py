"""All that can be known of a graph before it runs: its edges made callable, its cycles, its layers.

A graph runs layer by layer. A layer holds what waits only for the layers before it; an edge makes its target
wait also if it never triggers. Whatever can be gone round is one item of its layer, a `Cycle`, and runs as a graph of
its own. Inside of it only edges that trigger make a node wait, those to the nodes that it begins with are left out,
and what can be gone round then is a cycle in its turn. What a cycle looks like depends on where it is entered and on
who is triggered when it goes round again, so it is worked out when it is first asked for, and kept.

The order within a layer is part of the contract, since messages arrive in it: nodes that wait for none stand in the
order of the file, the others as the edges of the layer before find them. In a layer with cycles the cycles are looked
at first, and then the nodes in the order of the file.

Nothing here recurses: a chain of 10,000 nodes is a graph like any other. A `Structure` is shared by all runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from .....protocol.errors import GraphMistake
from .....protocol.workflow.cycles import cyclic
from .....protocol.workflow.edges import (
    Always,
    ByDelimiter,
    ByMatch,
    Dynamic,
    Edge,
    FunctionCondition,
    FunctionProcessor,
    KeywordCondition,
    Never,
    Template,
)
from .....protocol.workflow.model import (
    Graph,
    HumanConfig,
    LiteralConfig,
    LoopCounterConfig,
    LoopTimerConfig,
    Node,
    PassthroughConfig,
    PythonConfig,
    SubgraphConfig,
)
from ..edges.conditions import Functions, Missing, Test, predicate_of
from ..edges.processors import Process, names_in, process_of
from ..rules import Rules

INSTANT = (LiteralConfig, PassthroughConfig, LoopCounterConfig, LoopTimerConfig)
"""Nodes that are done as soon as they have begun."""

LANES = {HumanConfig: "human", PythonConfig: "python"}
"""Nodes of which one runs at a time in a graph: people are asked one by one, programs work in one directory."""

MOST_LAYERINGS = 64
"""Ways round one cycle that are kept; each set of triggered nodes is one."""


class Way:
    """An edge, ready to be taken.

    Attributes:
        test: its condition; None if the function is unknown and that counts as met.
        process: its processor, likewise.
        missing: the unknown functions.
        judged, changed: the condition, or the processor, is code of the user's, which may change the world.
        index: its number in the graph.
        pure: nothing that it does can take its time, as functions and patterns may.
        names: what its template may look up.
    """

    __slots__ = (
        "changed",
        "edge",
        "index",
        "judged",
        "missing",
        "names",
        "process",
        "pure",
        "source",
        "target",
        "test",
    )

    def __init__(self, index: int, edge: Edge, source: Place, target: Place, functions: Functions) -> None:
        self.index = index
        self.edge = edge
        self.source = source
        self.target = target
        test = predicate_of(edge.condition, functions)
        process = process_of(edge.process, functions) if edge.process is not None else None
        self.test: Test | None = None if isinstance(test, Missing) else test
        self.process: Process | None = None if isinstance(process, Missing) else process
        self.pure = _is_pure(edge)
        condition, processor = edge.condition, edge.process
        self.judged = isinstance(condition, FunctionCondition) and condition.name in functions.conditions
        self.changed = isinstance(processor, FunctionProcessor) and processor.name in functions.processors
        self.names = names_in(edge.process.template) if isinstance(edge.process, Template) else {}
        self.missing = [found for found in (test, process) if isinstance(found, Missing)]

    def __str__(self) -> str:
        return f"the edge from '{self.source.id}' to '{self.target.id}'"


class Place:
    """A node, and the edges it hangs on.

    Attributes:
        index: its number in the graph.
        out: the edges that leave it, in the order of the file.
        into: the edges that lead to it.
        dynamic: how it runs per unit; all dynamic edges that lead to it say the same.
        instant: its own code is done as soon as it has begun.
        quick: so is all of a firing, and it needs no clock.
        hears: the nodes whose words its edges may put into a message.
        lane: see `Work`.
    """

    __slots__ = ("dynamic", "hears", "id", "index", "instant", "into", "lane", "node", "out", "quick")

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.id = node.id
        self.node = node
        self.instant = isinstance(node.config, INSTANT)
        self.quick = False
        self.hears: tuple[str, ...] = ()
        self.lane = LANES.get(type(node.config))
        self.out: list[Way] = []
        self.into: list[Way] = []
        self.dynamic: Dynamic | None = None


class Cycle:
    """Places that can be gone round.

    Attributes:
        places: its members, in the order of the file.
        start: the member that the graph starts with; None if it has to be triggered from outside.
    """

    def __init__(self, places: Sequence[Place], rules: Rules, start: Place | None = None) -> None:
        self.places = places
        self.start = start
        self._rules = rules
        self._inside = frozenset(place.index for place in places)
        self._inner: dict[int, list[Cycle]] = {}
        self._layers: dict[tuple[int, frozenset[int]], list[Layer]] = {}

    def __str__(self) -> str:
        return "the cycle of " + listed(self.places)

    def __contains__(self, place: Place) -> bool:
        return place.index in self._inside

    def layers(self, entry: Place, roots: Collection[Place]) -> list[Layer]:
        """The layers of one round that begins at `roots`, in a cycle that was entered at `entry`."""
        begins = frozenset(place.index for place in roots)
        key = (entry.index, begins)
        found = self._layers.get(key)
        if found is None:
            if len(self._layers) >= MOST_LAYERINGS:
                self._layers.clear()
            inner = self._cycles_inside(entry)
            ways = [way for way in self._ways() if way.target.index not in begins]
            found = self._layers[key] = _layers(self.places, inner, ways)
        return found

    def _ways(self) -> list[Way]:
        return [way for place in self.places for way in place.out if way.edge.trigger and way.target in self]

    def _cycles_inside(self, entry: Place) -> list[Cycle]:
        found = self._inner.get(entry.index)
        if found is None:
            least = 1 if self._rules.self_loops_go_round else 2
            ways = [way for way in self._ways() if way.target is not entry]
            groups = [group for group in _groups(self.places, ways) if len(group) >= least]
            found = self._inner[entry.index] = [Cycle(group, self._rules) for group in groups]
        return found


Layer: TypeAlias = list[Place | Cycle]


class Structure:
    """A graph that was read without errors, ready to be run any number of times.

    Args:
        known: the structures of the same workflow, by the identity of their graphs.

    Raises:
        GraphMistake: an edge names a function that is not there.

    Attributes:
        places: its nodes, in the order of the file.
        layers: what runs after what.
        start: the places that get the task.
        voting: every node answers the task, and the majority wins; edges are passed over.
    """

    def __init__(
        self, graph: Graph, rules: Rules, functions: Functions | None = None, known: dict[int, Structure] | None = None
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.functions = functions or Functions()
        self.voting = graph.is_majority_voting
        self.places = [Place(i, node) for i, node in enumerate(graph.nodes)]
        self.by_id = {place.id: place for place in self.places}
        self.ways = self._joined() if not self.voting else []
        for place in self.places:
            place.quick = _is_quick(place)
            place.hears = tuple(dict.fromkeys(name for way in place.out for name in way.names if name in self.by_id))
        self.start = [self.by_id[id] for id in dict.fromkeys(graph.start)]
        self.layers = _layers(self.places, self._cycles(), self.ways)
        self._known = known if known is not None else {}
        self._known[id(graph)] = self

    def within(self, place: Place) -> Structure:
        """The structure of the graph that a subgraph's node runs; one for all nodes that run the same."""
        config = place.node.config
        assert isinstance(config, SubgraphConfig)
        graph = config.graph
        if graph is None:
            raise GraphMistake(f"the file '{config.file}' of subgraph '{place.id}' was not loaded").at(place.id)
        found = self._known.get(id(graph))
        return found if found is not None else Structure(graph, self.rules, self.functions, self._known)

    def _joined(self) -> list[Way]:
        ways = []
        for i, edge in enumerate(self.graph.edges):
            way = Way(i, edge, self.by_id[edge.source], self.by_id[edge.target], self.functions)
            if way.missing and not self.rules.unknown_functions_pass:
                raise GraphMistake(f"{way}: {way.missing[0]}")
            way.source.out.append(way)
            way.target.into.append(way)
            way.target.dynamic = way.target.dynamic or edge.dynamic
            ways.append(way)
        return ways

    def _cycles(self) -> list[Cycle]:
        starts = {place.index for place in self.start}
        return [
            Cycle(group, self.rules, next((place for place in group if place.index in starts), None))
            for group in _groups(self.places, self.ways)
        ]


def _is_pure(edge: Edge) -> bool:
    condition = edge.condition
    at_once = not condition.regex if isinstance(condition, KeywordCondition) else isinstance(condition, Always | Never)
    return at_once and (edge.process is None or isinstance(edge.process, Template))


def _is_quick(place: Place) -> bool:
    if not place.instant or isinstance(place.node.config, LoopTimerConfig):
        return False
    if place.dynamic is not None and isinstance(place.dynamic.split, ByDelimiter | ByMatch):
        return False
    return all(way.pure for way in place.out)


def _groups(places: Sequence[Place], ways: Iterable[Way]) -> list[list[Place]]:
    """The places that can be gone round over these edges, cycle by cycle."""
    by_id = {place.id: place for place in places}
    after: dict[str, list[str]] = {place.id: [] for place in places}
    for way in ways:
        after[way.source.id].append(way.target.id)
    return [[by_id[id] for id in group] for group in cyclic(after)]


def _layers(places: Sequence[Place], cycles: Sequence[Cycle], ways: Iterable[Way]) -> list[Layer]:
    """Cycles and the places outside of them, layer by layer."""
    items: Layer = [*cycles]
    number = {place.index: i for i, cycle in enumerate(cycles) for place in cycle.places}
    for place in places:
        if place.index not in number:
            number[place.index] = len(items)
            items.append(place)
    after: list[dict[int, None]] = [{} for _ in items]
    for way in ways:
        source, target = number[way.source.index], number[way.target.index]
        if source != target or not cycles:  # without cycles, a node that leads to itself waits for itself: `rules`
            after[source][target] = None
    following = [list(targets) if not cycles else sorted(targets) for targets in after]
    return [[items[i] for i in layer] for layer in _waves(following)]


def _waves(after: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Kahn's layers; a node that waits for itself is in none."""
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(after)), ()))
    for source, targets in enumerate(after):
        for target in targets:
            sorter.add(target, source)
    with suppress(CycleError):
        sorter.prepare()
    while wave := sorter.get_ready():
        yield wave
        sorter.done(*wave)


def listed(places: Iterable[Place]) -> str:
    """Places by their names, for people."""
    return ", ".join(f"'{place.id}'" for place in places)
