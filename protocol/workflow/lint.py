"""Warnings about parts of a graph with no effect or a surprising one; `loops` looks at cycles."""

from __future__ import annotations

import re

from ..problems import did_you_mean
from ..tree import Path
from .agents import Blackboard, FileStore, FunctionTools, McpLocalTools, McpRemoteTools, SimpleStore
from .cycles import components, reached, successors
from .edges import ByMessage, Edge, Never, Template
from .model import AgentConfig, Graph, HumanConfig, LiteralConfig, Node, PythonConfig
from .parts.reading import WorkflowReading

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
                self._warn("unused_key", "a vote takes no notice of edges", (*self.graph.path, "edges"), hint)
            return
        for edge in self.graph.edges:
            self._edge(edge)
        self._dynamic()
        self._unreached()

    # edges

    def _edge(self, edge: Edge) -> None:
        if edge.clear_kept_context and not edge.clear_context:
            does = "drops the kept messages and leaves the others" if self.as_devall else "does nothing"
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
                    f"`{{{{{hole}}}}}` stays as it is: no node is called so",
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
                    f"`{edge.target}` is mapped in another way by the edge on line {line}: they differ in "
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
                    f"`{edge.source}` says one thing, and a tree of one unit does not run `{edge.target}` in DevAll",
                    (*edge.path, "dynamic"),
                    "split by `regex` or `json_path`, or leave `compat: devall` out.",
                )

    # nodes

    def _node(self, node: Node) -> None:
        config, path = node.config, (*node.path, "config")
        if node.context_window < -1:
            hint = "write -1, or 0 for nothing."
            self._warn("loose_value", "every negative window is unlimited", (*node.path, "context_window"), hint)
        if isinstance(config, AgentConfig):
            self._agent(config, path)
        if self.as_devall and isinstance(config, PythonConfig) and config.env:
            hint = "set it in the code: `os.environ[...] = ...`; without `compat: devall` it works."
            self._warn("unused_key", "DevAll reads `env` of a python node and does not use it", (*path, "env"), hint)

    def _agent(self, config: AgentConfig, path: Path) -> None:
        if config.provider == "callboard":
            for key in ("base_url", "api_key", "fallback_models", "params", "tooling", "skills", "thinking"):
                if getattr(config, key):
                    message = f"`{key}` has no effect on an agent of yours"
                    self._warn("unused_key", message, (*path, key), "say it in the agent's own file.")
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
            self._idle("protocol", (*path, "params", "protocol"), "remove it; every model is spoken to as in a chat.")
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
                hint = "say in words where it comes from; without `compat: devall` a map's `item_name` is put in."
                self._warn("fixed_template", f"`{{{{{name}}}}}` stays as it is: roles are no templates", path, hint)
            elif name not in items:
                hint = did_you_mean(name, items) or f"write `item_name: {name}` into the `dynamic` of the edge to it."
                message = f"`{{{{{name}}}}}` stays as it is: no edge maps this node by that name"
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
                        hint = "remove it; how a file is written is seen from the file, and UTF-8 is always right."
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
                    f"the memory store `{store.name}` has no `embedding`: in DevAll nothing is ever found in it",
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
