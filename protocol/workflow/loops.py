"""Warnings about cycles that would surprise their author, found from the edges alone before anything runs.

A cycle has one entry: the start node inside of it, or the node that an edge from outside triggers. The cycle repeats
while an edge to the entry fires. It ends as soon as any edge out of the cycle fires, even an edge meant only to
report. Inside of a round, the edges to the entry do not count; a cycle that remains without them is a cycle of its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .cycles import cyclic, reached, successors
from .edges import Always, Edge, Never
from .lint import GraphChecks
from .model import GATES, Graph, LoopCounterConfig, LoopTimerConfig, Node
from .parts.reading import WorkflowReading


def check_loops(reading: WorkflowReading, graph: Graph) -> None:
    """Report errors and pitfalls in the cycles of a graph and in its gates."""
    if not graph.is_majority_voting:
        _Loops(reading, graph).check()


class _Loops(GraphChecks):
    def __init__(self, reading: WorkflowReading, graph: Graph) -> None:
        super().__init__(reading, graph)
        pairs = [(edge.source, edge.target) for edge in graph.edges]
        self.cycles = cyclic(successors(self.nodes, pairs))
        self.cycle_of = {key: i for i, members in enumerate(self.cycles) for key in members}
        self.firing = [edge for edge in graph.edges if edge.trigger and not isinstance(edge.condition, Never)]

    def check(self) -> None:
        entries = self._entries()
        inside: list[list[Edge]] = [[] for _ in self.cycles]
        leaving: list[list[Edge]] = [[] for _ in self.cycles]
        for edge in self.firing:
            cycle = self.cycle_of.get(edge.source)
            if cycle is not None:
                (inside if self.cycle_of.get(edge.target) == cycle else leaving)[cycle].append(edge)
        for i, members in enumerate(self.cycles):
            self._exits(members, inside[i], leaving[i], entries[i])
            self._gates(members, inside[i], entries[i])
            if entries[i] is not None:
                self._inner(members, entries[i], inside[i])
        self._gates_outside()
        if self.cycles and self.reading.dialect.node_names_break_cycles:
            self._names()

    # where a cycle begins

    def _entries(self) -> list[str | None]:
        """Return the entry of every cycle, None if it has none; more than one is reported as a problem."""
        entries: list[str | None] = [None] * len(self.cycles)
        for i, name in enumerate(self.graph.start):
            cycle = self.cycle_of.get(name)
            if cycle is None:
                continue
            first = entries[cycle]
            if first is not None:
                self._error(
                    "two_starts",
                    f"`{first}` and `{name}` are on one cycle ({self._cycle_text(self.cycles[cycle])}), and both start",
                    (*self.graph.path, "start", i),
                    f"Hint: remove `{name}`; the cycle comes to it by itself.",
                    expected="one start node per cycle",
                )
            entries[cycle] = first or name
        for edge in self.firing:
            cycle = self.cycle_of.get(edge.target)
            if cycle is None or self.cycle_of.get(edge.source) == cycle:
                continue
            first = entries[cycle]
            if first is not None and first != edge.target:
                self._two_entries(self.cycles[cycle], first, edge, starts=first in self.graph.start)
            entries[cycle] = first or edge.target
        return entries

    def _two_entries(self, members: Collection[str], first: str, edge: Edge, *, starts: bool) -> None:
        self._warn(
            "two_entries",
            f"this is a second way into the cycle {self._cycle_text(members)}, which begins at `{first}`; if "
            f"{'it is' if starts else 'both are'} taken the run fails",
            edge.path,
            f"lead it to `{first}`, or write `trigger: false` if it only brings a message.",
        )

    def _inner(self, members: list[str], entry: str | None, inside: list[Edge]) -> None:
        todo = [(members, entry, inside)]
        while todo:
            members, entry, inside = todo.pop()
            rest = [edge for edge in inside if edge.target != entry]
            for inner in cyclic(successors(members, ((edge.source, edge.target) for edge in rest))):
                # As in DevAll, where only several nodes make an inner cycle: a node with an edge to itself is in the
                # outer one.
                if len(inner) == 1:
                    continue
                part = set(inner)
                heads = [edge for edge in rest if edge.target in part and edge.source not in part]
                for edge in heads[1:]:
                    if edge.target != heads[0].target:
                        self._two_entries(inner, heads[0].target, edge, starts=False)
                if heads:
                    within = [edge for edge in rest if edge.source in part and edge.target in part]
                    todo.append((inner, heads[0].target, within))

    # how it ends

    def _exits(self, members: list[str], inside: list[Edge], leaving: list[Edge], entry: str | None) -> None:
        # A node that no edge can bring back, since the edges back do not trigger, has no round to end.
        rounds = cyclic(successors(members, ((edge.source, edge.target) for edge in inside)))
        going = {key for round_ in rounds for key in round_}
        for edge in leaving:
            always_taken = isinstance(edge.condition, Always) and not isinstance(self.nodes[edge.source].config, GATES)
            if always_taken and edge.source in going:
                self._warn(
                    "exit_at_once",
                    f"this edge ends the cycle {self._cycle_text(members)} the first time `{edge.source}` runs, "
                    "since it is always taken",
                    edge.path,
                    "give it a `condition`, or write `trigger: false` if it only brings a message.",
                )
        if leaving:
            return
        always = [
            edge
            for edge in inside
            if isinstance(edge.condition, Always) and not isinstance(self.nodes[edge.source].config, GATES)
        ]
        after = successors(members, ((edge.source, edge.target) for edge in always))
        for round_ in cyclic(after):
            if entry is None or entry in round_:
                self._warn(
                    "endless_cycle",
                    f"nothing ends the cycle {self._cycle_text(round_)}; "
                    f"it goes round {self.graph.max_iterations} times",
                    self.nodes[round_[0]].path,
                    "add an edge that leaves it, with a condition or after a loop_counter.",
                )

    # gates

    def _gates(self, members: list[str], inside: list[Edge], entry: str | None) -> None:
        for gate in self._holding(members):
            limit = gate.config.max_iterations if isinstance(gate.config, LoopCounterConfig) else 0
            if limit > self.graph.max_iterations:
                self._warn(
                    "counter_above_cap",
                    f"the counter speaks on visit {limit}, and a cycle goes round {self.graph.max_iterations} times",
                    (*gate.path, "config", "max_iterations"),
                    f"write at most {self.graph.max_iterations}, or raise `max_iterations` of the graph.",
                )
            if entry is None or entry == gate.id:
                continue
            others = [edge for edge in inside if gate.id not in (edge.source, edge.target)]
            after = successors(members, ((edge.source, edge.target) for edge in others))
            if entry not in reached(after, after[entry]):
                self._warn(
                    "gate_on_only_way",
                    f"the only way back to `{entry}` leads through this gate, so the cycle ends on its first silence",
                    gate.path,
                    f"lead an edge back to `{entry}` past the gate, from the node before it.",
                )

    def _gates_outside(self) -> None:
        before: dict[str, list[Edge]] = {}
        for edge in self.graph.edges:
            before.setdefault(edge.target, []).append(edge)
        for gate in self._holding(key for key in self.nodes if key not in self.cycle_of):
            edges = before.get(gate.id, [])
            if any(edge.dynamic is not None for edge in edges):
                continue
            feeding = [edge for edge in edges if edge.trigger and edge.source in self.cycle_of]
            if feeding:
                shown = self._cycle_text(self.cycles[self.cycle_of[feeding[0].source]])
                self._warn(
                    "gate_outside_cycle",
                    f"the gate is not on the cycle {shown}: the edge to it ends the cycle on the first visit",
                    gate.path,
                    f"add an edge from `{gate.id}` back into the cycle.",
                )
            else:
                self._warn(
                    "idle_gate",
                    "the gate is on no cycle: it is visited once and says nothing",
                    gate.path,
                    "add an edge from it back into a loop, or remove it.",
                )

    def _holding(self, ids: Iterator[str] | list[str]) -> Iterator[Node]:
        """Return the gates among some nodes that are silent on their first visit."""
        for key in ids:
            config = self.nodes[key].config
            counts = isinstance(config, LoopCounterConfig) and config.max_iterations > 1
            if counts or (isinstance(config, LoopTimerConfig) and not config.passthrough):
                yield self.nodes[key]

    # names

    def _names(self) -> None:
        for key, node in self.nodes.items():
            # DevAll's scheduler removes every `node_` from the ids in a graph with a cycle, and then fails with a
            # KeyError.
            if "node_" in key and key not in self.cycle_of:
                message = f"the id `{key}` holds `node_`, which `compat: devall` can't have beside a cycle"
                self._error("bad_id", message, (*node.path, "id"), "Hint: rename the node, or remove `compat: devall`.")

    def _cycle_text(self, members: Collection[str]) -> str:
        names = list(members)
        return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
