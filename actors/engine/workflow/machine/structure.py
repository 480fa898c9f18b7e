"""Static analysis of a graph: callable edges, cycles, layers.

A graph runs layer by layer. A layer contains the items whose predecessors are all in earlier layers; an edge makes
its target wait even if the edge never triggers. A cycle (strongly connected nodes) is one item of its layer, a
`Cycle`, and runs like a graph of its own. Inside it only triggering edges count, edges to its first nodes are
ignored, and the remaining cycles are inner cycles. The layers of a cycle depend on its entry and on the first nodes
of the next round. They are computed on demand and cached.

The order within a layer is part of the contract, because messages arrive in it. Nodes without predecessors are in
the order of the file, other nodes in the order in which the edges of the previous layer reach them. In a layer with
cycles, the cycles come before the nodes, and the nodes are in the order of the file.

No function here is recursive, so a chain of 10,000 nodes is possible. All runs share a `Structure`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from .....protocol.errors import GraphMistake
from .....protocol.workflow.cycles import cyclic
from .....protocol.workflow.model import (
    Always,
    ByDelimiter,
    ByMatch,
    Dynamic,
    Edge,
    FunctionCondition,
    FunctionProcessor,
    Graph,
    HumanConfig,
    KeywordCondition,
    LiteralConfig,
    LoopCounterConfig,
    LoopTimerConfig,
    Never,
    Node,
    PassthroughConfig,
    PythonConfig,
    SubgraphConfig,
    Template,
)
from ..edges import Functions, MissingFunction, Process, Test, names_in, predicate_of, process_of
from ..rules import WorkflowRules

INSTANT = (LiteralConfig, PassthroughConfig, LoopCounterConfig, LoopTimerConfig)
"""Types of nodes whose code never waits."""

LANES = {HumanConfig: "human", PythonConfig: "python"}
"""Types of nodes of which only one runs at a time per graph: users answer one question at a time, and python nodes
share a directory.
"""

MOST_LAYERINGS = 64
"""Most cached layerings of one cycle; each set of triggered nodes has its own."""


class ReadyEdge:
    """Edge with its condition and processor as functions.

    Attributes:
        test: its condition; None if the function is unknown and therefore counts as met.
        process: its processor; None if there is none or its function is unknown.
        missing: the unknown functions.
        judged, changed: the condition or the processor is the user's code, which can have side effects.
        index: its index in the graph.
        pure: it never waits, unlike functions and regular expressions.
        names: names that its template can look up.
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

    def __init__(self, index: int, edge: Edge, source: NodeEdges, target: NodeEdges, functions: Functions) -> None:
        self.index = index
        self.edge = edge
        self.source = source
        self.target = target
        test = predicate_of(edge.condition, functions)
        process = process_of(edge.process, functions) if edge.process is not None else None
        self.test: Test | None = None if isinstance(test, MissingFunction) else test
        self.process: Process | None = None if isinstance(process, MissingFunction) else process
        self.pure = _is_pure(edge)
        condition, processor = edge.condition, edge.process
        self.judged = isinstance(condition, FunctionCondition) and condition.name in functions.conditions
        self.changed = isinstance(processor, FunctionProcessor) and processor.name in functions.processors
        self.names = names_in(edge.process.template) if isinstance(edge.process, Template) else {}
        self.missing = [found for found in (test, process) if isinstance(found, MissingFunction)]

    def __str__(self) -> str:
        return f"the edge from '{self.source.id}' to '{self.target.id}'"


class NodeEdges:
    """Node of a graph with its edges.

    Attributes:
        index: its index in the graph.
        out: outgoing edges, in the order of the file.
        into: incoming edges.
        dynamic: the settings for units; all its dynamic incoming edges have the same.
        instant: its own code never waits.
        quick: a whole firing never waits, and needs no clock.
        hears: nodes whose text its edges can insert into a message.
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
        self.out: list[ReadyEdge] = []
        self.into: list[ReadyEdge] = []
        self.dynamic: Dynamic | None = None


class Cycle:
    """Cycle of a graph: strongly connected nodes, which run round after round.

    Attributes:
        places: its members, in the order of the file.
        start: the member that the graph starts with; None if it must be triggered from outside.
    """

    def __init__(self, places: Sequence[NodeEdges], rules: WorkflowRules, start: NodeEdges | None = None) -> None:
        self.places = places
        self.start = start
        self._rules = rules
        self._inside = frozenset(place.index for place in places)
        self._inner: dict[int, list[Cycle]] = {}
        self._layers: dict[tuple[int, frozenset[int]], list[Layer]] = {}

    def __str__(self) -> str:
        return "the cycle of " + listed(self.places)

    def __contains__(self, place: NodeEdges) -> bool:
        return place.index in self._inside

    def layers(self, entry: NodeEdges, roots: Collection[NodeEdges]) -> list[Layer]:
        """Return the layers of a round that begins at `roots`, in a cycle that was entered at `entry`."""
        begins = frozenset(place.index for place in roots)
        key = (entry.index, begins)
        found = self._layers.get(key)
        if found is None:
            # Conditions can trigger any subset of the nodes, so the cache needs a bound.
            if len(self._layers) >= MOST_LAYERINGS:
                self._layers.clear()
            inner = self._cycles_inside(entry)
            # Edges to the first nodes of a round close the cycle; without them the round has an order.
            ways = [way for way in self._ways() if way.target.index not in begins]
            found = self._layers[key] = _layers(self.places, inner, ways)
        return found

    def _ways(self) -> list[ReadyEdge]:
        return [way for place in self.places for way in place.out if way.edge.trigger and way.target in self]

    def _cycles_inside(self, entry: NodeEdges) -> list[Cycle]:
        found = self._inner.get(entry.index)
        if found is None:
            # By this rule a single node with an edge to itself is a cycle.
            least = 1 if self._rules.self_loops_go_round else 2
            ways = [way for way in self._ways() if way.target is not entry]
            groups = [group for group in _groups(self.places, ways) if len(group) >= least]
            found = self._inner[entry.index] = [Cycle(group, self._rules) for group in groups]
        return found


Layer: TypeAlias = list[NodeEdges | Cycle]


class Structure:
    """Executable form of a valid graph, for any number of runs.

    Args:
        known: structures of the same workflow, by the identity of their graphs.

    Raises:
        GraphMistake: an edge names an unknown function.

    Attributes:
        places: its nodes, in the order of the file.
        layers: its layers, in the order of execution.
        start: the nodes that receive the task.
        voting: every node answers the task, and the majority wins; edges are ignored.
    """

    def __init__(
        self,
        graph: Graph,
        rules: WorkflowRules,
        functions: Functions | None = None,
        known: dict[int, Structure] | None = None,
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.functions = functions or Functions()
        self.voting = graph.is_majority_voting
        self.places = [NodeEdges(i, node) for i, node in enumerate(graph.nodes)]
        self.by_id = {place.id: place for place in self.places}
        self.ways = self._joined() if not self.voting else []
        for place in self.places:
            place.quick = _is_quick(place)
            place.hears = tuple(dict.fromkeys(name for way in place.out for name in way.names if name in self.by_id))
        self.start = [self.by_id[id] for id in dict.fromkeys(graph.start)]
        self.layers = _layers(self.places, self._cycles(), self.ways)
        self._known = known if known is not None else {}
        # Subgraph nodes with the same graph object share this structure.
        self._known[id(graph)] = self

    def within(self, place: NodeEdges) -> Structure:
        """Return the structure of a subgraph node's graph; nodes with the same graph share it.

        Raises:
            GraphMistake: the file of the subgraph was not loaded.
        """
        config = place.node.config
        assert isinstance(config, SubgraphConfig)
        graph = config.graph
        if graph is None:
            raise GraphMistake(f"the file '{config.file}' of subgraph '{place.id}' was not loaded").at(place.id)
        found = self._known.get(id(graph))
        return found if found is not None else Structure(graph, self.rules, self.functions, self._known)

    def _joined(self) -> list[ReadyEdge]:
        ways = []
        for i, edge in enumerate(self.graph.edges):
            way = ReadyEdge(i, edge, self.by_id[edge.source], self.by_id[edge.target], self.functions)
            if way.missing and not self.rules.unknown_functions_pass:
                raise GraphMistake(f"{way}: {way.missing[0]}")
            way.source.out.append(way)
            way.target.into.append(way)
            # All dynamic edges to a node have the same settings: validation ensures that.
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


def _is_quick(place: NodeEdges) -> bool:
    # A timer needs the clock of its actor, and a split by a pattern can take time.
    if not place.instant or isinstance(place.node.config, LoopTimerConfig):
        return False
    if place.dynamic is not None and isinstance(place.dynamic.split, ByDelimiter | ByMatch):
        return False
    return all(way.pure for way in place.out)


def _groups(places: Sequence[NodeEdges], ways: Iterable[ReadyEdge]) -> list[list[NodeEdges]]:
    """Return the cycles over these edges."""
    by_id = {place.id: place for place in places}
    after: dict[str, list[str]] = {place.id: [] for place in places}
    for way in ways:
        after[way.source.id].append(way.target.id)
    return [[by_id[id] for id in group] for group in cyclic(after)]


def _layers(places: Sequence[NodeEdges], cycles: Sequence[Cycle], ways: Iterable[ReadyEdge]) -> list[Layer]:
    """Return cycles and the nodes outside of them, layer by layer."""
    items: Layer = [*cycles]
    number = {place.index: i for i, cycle in enumerate(cycles) for place in cycle.places}
    for place in places:
        if place.index not in number:
            number[place.index] = len(items)
            items.append(place)
    after: list[dict[int, None]] = [{} for _ in items]
    for way in ways:
        source, target = number[way.source.index], number[way.target.index]
        # without cycles, a node with an edge to itself waits for itself forever: see `rules`
        if source != target or not cycles:
            after[source][target] = None
    following = [list(targets) if not cycles else sorted(targets) for targets in after]
    return [[items[i] for i in layer] for layer in _waves(following)]


def _waves(after: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield Kahn's layers; a node that waits for itself is in none."""
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(after)), ()))
    for source, targets in enumerate(after):
        for target in targets:
            sorter.add(target, source)
    with suppress(CycleError):
        sorter.prepare()
    while wave := sorter.get_ready():
        yield wave
        sorter.done(*wave)


def listed(places: Iterable[NodeEdges]) -> str:
    """Return the quoted ids of nodes, with commas, for messages."""
    return ", ".join(f"'{place.id}'" for place in places)
