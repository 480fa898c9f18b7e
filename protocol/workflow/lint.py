"""Warnings about a whole graph: parts without effect or with a surprising one (`Lint`), and cycles (`check_loops`).

The cycles are found from the edges alone before anything runs. A cycle has one entry: the start node inside of it, or
the node that an edge from outside triggers. The cycle repeats while an edge to the entry fires. It ends as soon as any
edge out of the cycle fires, even an edge meant only to report. Inside of a round, the edges to the entry do not count;
a cycle that remains without them is a cycle of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from ..problems import did_you_mean
from ..tree import Path
from .cycles import components, cyclic, reached, successors
from .model import (
    GATES,
    AgentConfig,
    Always,
    Blackboard,
    ByMessage,
    Edge,
    FileStore,
    FunctionTools,
    Graph,
    HumanConfig,
    LiteralConfig,
    LoopCounterConfig,
    LoopTimerConfig,
    McpLocalTools,
    McpRemoteTools,
    Never,
    Node,
    PythonConfig,
    SimpleStore,
    Template,
)
from .reading import WorkflowReading

_HOLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_NAME = re.compile(r"\w+(?=\Z|[.\[])")

_SINGLE = (AgentConfig, HumanConfig, LiteralConfig, PythonConfig)
"""Nodes with exactly one output per run."""


class GraphChecks:
    """Checks of a graph after reading, based on its edges."""

    def __init__(self, reading: WorkflowReading, graph: Graph) -> None:
        self.reading = reading
        self.graph = graph
        self.nodes = {node.id: node for node in graph.nodes}

    def _error(self, code: str, message: str, path: Path, hint: str, expected: str | None = None) -> None:
        self.reading.report("error", code, message, path, self.graph.source.where(path), expected=expected, hint=hint)

    def _warn(self, code: str, message: str, path: Path, hint: str) -> None:
        self.reading.report("warning", code, message, path, self.graph.source.where(path, key=True), hint=hint)


class Lint(GraphChecks):
    """Warnings about parts without effect, and with `compat: devall` about the behaviour of DevAll's own engine."""

    def __init__(self, reading: WorkflowReading, graph: Graph) -> None:
        super().__init__(reading, graph)
        self.as_devall = not reading.dialect.guide_keys

    def check(self) -> None:
        """Run all checks."""
        items: dict[str, set[str]] = {}
        for edge in self.graph.edges:
            if edge.dynamic is not None and edge.dynamic.type == "map":
                items.setdefault(edge.target, {"item"}).add(edge.dynamic.item_name)
        for node in self.graph.nodes:
            self._node(node)
            if isinstance(node.config, AgentConfig) and node.config.role:
                self._role(node.config.role, items.get(node.id, set()), (*node.path, "config", "role"))
        self._stores()
        if self.graph.is_majority_voting:
            if self.graph.edges:
                hint = "remove them, or `is_majority_voting`."
                self._warn("unused_key", "a vote ignores edges", (*self.graph.path, "edges"), hint)
            return
        for edge in self.graph.edges:
            self._edge(edge)
        self._dynamic()
        self._unreached()

    # edges

    def _edge(self, edge: Edge) -> None:
        if edge.clear_kept_context and not edge.clear_context:
            does = "drops only the kept messages" if self.as_devall else "has no effect"
            self._warn(
                "half_clear",
                f"`clear_kept_context` without `clear_context` {does}",
                (*edge.path, "clear_kept_context"),
                "write `clear_context: true` beside it to drop everything.",
            )
        if edge.dynamic is not None and edge.dynamic.type == "tree" and edge.dynamic.item_name != "item":
            hint = "remove it; a group of a tree has no name, its units are the input of the node."
            self._idle("item_name", (*edge.path, "dynamic", "config", "item_name"), hint)
        if isinstance(edge.process, Template):
            self._template(edge.process.template, (*edge.path, "process", "config", "template"))
        if edge.carry_data:
            return
        for key, given in (
            ("process", edge.process is not None),
            ("dynamic", edge.dynamic is not None),
            ("keep_message", edge.keep_message),
        ):
            if given:
                hint = "remove it, or `carry_data: false`."
                self._warn(
                    "unused_key", f"`{key}` has no effect on an edge that carries nothing", (*edge.path, key), hint
                )
        if not (edge.trigger or edge.clear_context or edge.clear_kept_context):
            self._warn("idle_edge", "the edge neither triggers nor carries anything", edge.path, "remove it.")

    def _template(self, template: str, path: Path) -> None:
        for hole in dict.fromkeys(_HOLE.findall(template)):
            if not any(hole == name or hole.startswith((f"{name}.", f"{name}[")) for name in ("content", *self.nodes)):
                self._warn(
                    "fixed_template",
                    f"`{{{{{hole}}}}}` is not replaced: no node has this id",
                    path,
                    did_you_mean(hole, ["content", *self.nodes]) or "write {{content}}, or the id of a node.",
                )

    def _dynamic(self) -> None:
        first: dict[str, Edge] = {}
        many: set[str] = set()
        for edge in self.graph.edges:
            if edge.dynamic is None:
                continue
            other = first.setdefault(edge.target, edge)
            if other is edge:
                continue
            assert other.dynamic is not None
            many.add(edge.target)
            names = edge.dynamic.__struct_fields__
            unlike = [name for name in names if getattr(edge.dynamic, name) != getattr(other.dynamic, name)]
            if unlike:
                line = self.graph.source.where(other.path)[0]
                self._error(
                    "unlike_maps",
                    f"`{edge.target}` has a different `dynamic` on the edge on line {line}; they differ in "
                    f"{', '.join(unlike)}",
                    (*edge.path, "dynamic"),
                    "Hint: make them equal, or put a passthrough before the node and map once.",
                    expected="the same `dynamic` on all edges into a node",
                )
        if self.as_devall:
            self._trees([edge for key, edge in first.items() if key not in many])

    def _trees(self, edges: list[Edge]) -> None:
        """Warn of trees: in DevAll a tree of one unit does not run its node."""
        mapped = {edge.target for edge in self.graph.edges if edge.dynamic is not None}
        for edge in edges:
            assert edge.dynamic is not None
            single = isinstance(self.nodes[edge.source].config, _SINGLE) and edge.source not in mapped
            if edge.dynamic.type == "tree" and isinstance(edge.dynamic.split, ByMessage) and single:
                self._warn(
                    "tree_of_one",
                    f"`{edge.source}` has a single output, and DevAll does not run `{edge.target}` for a tree of one "
                    "unit",
                    (*edge.path, "dynamic"),
                    "split by `regex` or `json_path`, or leave `compat: devall` out.",
                )

    # nodes

    def _node(self, node: Node) -> None:
        config, path = node.config, (*node.path, "config")
        if node.context_window < -1:
            hint = "write -1 for unlimited, or 0 for none."
            self._warn(
                "loose_value", "every negative `context_window` means unlimited", (*node.path, "context_window"), hint
            )
        if isinstance(config, AgentConfig):
            self._agent(config, path)
        if self.as_devall and isinstance(config, PythonConfig) and config.env:
            hint = "set it in the code: `os.environ[...] = ...`; without `compat: devall` it works."
            self._warn("unused_key", "DevAll reads `env` of a python node and does not use it", (*path, "env"), hint)

    def _agent(self, config: AgentConfig, path: Path) -> None:
        if config.provider == "callboard":
            for key in ("base_url", "api_key", "fallback_models", "params", "tooling", "skills", "thinking"):
                if getattr(config, key):
                    message = f"`{key}` has no effect with `provider: callboard`"
                    self._warn("unused_key", message, (*path, key), "set it in the agent's own file.")
        for tooling in config.tooling:
            source = tooling.config
            unused: dict[str, object] = {}
            if isinstance(source, McpRemoteTools):
                unused = {"cache_ttl": source.cache_ttl, "tool_sources": source.tool_sources}
            elif isinstance(source, McpLocalTools):
                unused = {"cache_ttl": source.cache_ttl, "wait_for_log": source.wait_for_log}
                if self.as_devall:
                    unused["startup_timeout"] = source.startup_timeout != 10
            elif self.as_devall:
                unused = {"timeout": source.timeout}
            for key, given in unused.items():
                if given:
                    message = f"DevAll reads `{key}` and does not use it"
                    self._warn("unused_key", message, (*tooling.path, "config", key), "remove it.")
            if isinstance(source, FunctionTools) and not source.auto_load:
                hint = "remove it; functions are found by their names whenever they are listed."
                self._idle("auto_load", (*tooling.path, "config", "auto_load"), hint)
        if not self.as_devall and config.params.get("protocol", "chat") != "chat":
            self._idle(
                "protocol", (*path, "params", "protocol"), "remove it; all models are called by their chat interface."
            )
        if self.as_devall and config.provider == "openai":
            for key in ("protocol", "tool_loop_limit"):
                if key in config.params:
                    message = f"with `{key}` among its `params` every call of an openai model fails in DevAll"
                    self._warn("breaking_param", message, (*path, "params", key), "remove it.")

        if self.as_devall and config.thinking is not None:
            for use in config.memories:
                if use.read and use.retrieve_stage == ("pre_gen_thinking",):
                    self._warn(
                        "unused_key",
                        "DevAll looks up a memory before thinking, and its reflection does not see it",
                        (*use.path, "retrieve_stage"),
                        "write `retrieve_stage: [gen]`.",
                    )

    def _role(self, role: str, items: set[str], path: Path) -> None:
        names = (_NAME.match(hole) for hole in _HOLE.findall(role))
        for name in dict.fromkeys(found[0] for found in names if found):
            if self.as_devall:
                hint = "describe it in words; without `compat: devall` the `item_name` of a map is replaced."
                self._warn(
                    "fixed_template", f"`{{{{{name}}}}}` is not replaced: roles are not templates in DevAll", path, hint
                )
            elif name not in items:
                hint = did_you_mean(name, items) or f"write `item_name: {name}` into the `dynamic` of the edge to it."
                message = f"`{{{{{name}}}}}` is not replaced: no edge to this node has this `item_name`"
                self._warn("fixed_template", message, path, hint)

    # memories

    def _stores(self) -> None:
        used = {use.name for node in self.graph.nodes for use in getattr(node.config, "memories", ())}
        for store in self.graph.memory:
            path = (*store.path, "config")
            if store.name not in used:
                hint = f"attach it to a node: `memories: [{{name: {store.name}, read: true}}]`, or remove it."
                self._warn("unused_store", f"no node uses the memory store `{store.name}`", store.path, hint)
            config = store.config
            if isinstance(config, SimpleStore | FileStore) and config.embedding is not None and config.embedding.params:
                hint = "remove it; texts are cut in the same way for all models."
                self._idle("params", (*path, "embedding", "params"), hint)
            if isinstance(config, FileStore):
                for i, source in enumerate(config.file_sources):
                    if source.encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
                        hint = "remove it; the encoding of a file is detected."
                        self._idle("encoding", (*path, "file_sources", i, "encoding"), hint)
            if not self.as_devall:
                continue
            if isinstance(config, Blackboard) and config.memory_path and "/" not in config.memory_path:
                self._warn(
                    "bare_path",
                    f"DevAll can't save a blackboard as `{config.memory_path}`, and the run fails at its end",
                    (*path, "memory_path"),
                    "leave it out, or write a path with a directory.",
                )
            if isinstance(config, SimpleStore | FileStore) and config.embedding is None:
                self._warn(
                    "no_embedding",
                    f"the memory store `{store.name}` has no `embedding`: in DevAll searches in it find nothing",
                    store.path,
                    "write `embedding: {provider: openai, model: ...}` under its `config`.",
                )

    # nodes that never run

    def _unreached(self) -> None:
        firing = [
            (edge.source, edge.target)
            for edge in self.graph.edges
            if edge.trigger and not isinstance(edge.condition, Never)
        ]
        running = reached(successors(self.nodes, firing), self.graph.start)
        rest = {key: node for key, node in self.nodes.items() if key not in running}
        behind = successors(rest, firing)
        parts = components(behind)
        part_of = {key: i for i, members in enumerate(parts) for key in members}
        led = {
            part_of[target]
            for source, targets in behind.items()
            for target in targets
            if part_of[source] != part_of[target]
        }
        for i, members in enumerate(parts):
            node = self.nodes[members[0]]
            # Nodes behind one that never runs need no words of their own, and a seeded output is a result anyway.
            if i in led or node.output:
                continue
            self._warn(
                "never_runs",
                f"`{node.id}` never runs: no start node leads to it",
                (*node.path, "id"),
                f"add it to `start: [{', '.join([*self.graph.start, node.id][:6])}]`, or lead an edge to it.",
            )

    def _idle(self, key: str, path: Path, hint: str) -> None:
        self._warn("unused_key", f"`{key}` has no effect in Callboard", path, hint)


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
                    f"`{first}` and `{name}` are on one cycle ({self._cycle_text(self.cycles[cycle])}), and both are "
                    "start nodes",
                    (*self.graph.path, "start", i),
                    f"Hint: remove `{name}` from `start`; the cycle reaches it anyway.",
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
            f"this edge is a second entry to the cycle {self._cycle_text(members)}, which begins at `{first}`; if "
            f"{'this edge is' if starts else 'both edges are'} taken, the run fails",
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
                    f"nothing ends the cycle {self._cycle_text(round_)}; it runs {self.graph.max_iterations} times",
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
                    f"the counter emits on visit {limit}, but a cycle runs at most {self.graph.max_iterations} times",
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
                    f"the only way back to `{entry}` leads through this gate, so the cycle ends the first time that "
                    "the gate emits nothing",
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
                    "the gate is not on a cycle, so it is visited once and emits nothing",
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
                message = f"the id `{key}` contains `node_`, which DevAll can't handle in a graph with a cycle"
                self._error("bad_id", message, (*node.path, "id"), "Hint: rename the node, or remove `compat: devall`.")

    def _cycle_text(self, members: Collection[str]) -> str:
        names = list(members)
        return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
