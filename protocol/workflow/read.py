"""Reader for workflow files: it turns a text into a `Workflow` and a list of all problems.

First `variables` replaces the references in the tree, then `parts` makes structs of its parts. Ids that edges, memories
and the graph's start and end refer to are checked here. At the end `lint` checks the whole graph for surprising
behaviour. One pass finds all problems. A graph with an unreadable part gets no check as a whole.

Inline subgraphs are read with the graph. A subgraph in a file of its own is fetched with `load`. Variables of the
subgraph's file override the variables of the outer file.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as Dict
from typing import Any

import msgspec

from ..problems import Problem, did_you_mean, errors_in
from ..reading import in_file_order
from ..tree import Entry, Mapping, Node, plain
from ..yaml_tree import Source, parse_mapping
from .dialect import DIALECTS, STANDARD, Dialect, Known, Load, Mode
from .lint import Lint, check_loops
from .model import (
    NODE_TYPES,
    AgentConfig,
    CustomConfig,
    Edge,
    Graph,
    Id,
    LogLevel,
    NodeConfig,
    NodeFields,
    SubgraphConfig,
    Workflow,
    WorkflowFields,
)
from .model import Node as WorkflowNode
from .parts import READERS, read_edge, read_seeds, read_stores
from .reading import FileValue, WorkflowReading
from .variables import Resolver, as_node, drop_repeated

MAX_GRAPHS = 1000
"""Files that the subgraphs of one workflow may take, the same file with other variables counted again."""

MAX_NESTED = 50
"""How deep files of subgraphs may lead into each other."""


class _Path(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `config` of a subgraph in a file."""

    path: Id


def read_workflow(
    text: str,
    file: str,
    *,
    variables: Dict[str, Any] | None = None,
    environ: Dict[str, str] | None = None,
    compat: Mode | None = None,
    strict: bool = False,
    known: Known | None = None,
    load: Load | None = None,
) -> tuple[Workflow | None, list[Problem]]:
    """Return the workflow of a YAML text, and all problems by line. The workflow is None if a problem is an error.

    Args:
        file: name of the text in problems.
        variables: values for `vars` from the caller; they override the file.
        environ: the environment and `.env` in one.
        compat: the dialect, which overrides the file.
        strict: treat warnings as errors.
        known: functions, providers and node types that may be named.
        load: returns the files of subgraphs; without it they are not read.
    """
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    reader = _Reader(DIALECTS[compat or _compat_of(root)], environ or {}, known or Known(), load)
    given = {name: as_node(value) for name, value in (variables or {}).items()}
    workflow = reader.workflow(root, text, file, given)
    # Problems of the workflow's own file come first, then the problems of other files.
    own = [problem for problem in (*problems, *reader.problems) if problem.file == file]
    others = [problem for problem in reader.problems if problem.file != file]
    found = drop_repeated([*in_file_order(own, strict=strict), *in_file_order(others, strict=strict)])
    return (None if errors_in(found) else workflow), found


def _compat_of(root: Mapping) -> str:
    entry = root.entries.get("compat")
    found = plain(entry.value) if entry is not None else None
    return found if isinstance(found, str) and found in DIALECTS else "standard"


_OF_GRAPHS = dict.fromkeys(Graph.__struct_encode_fields__, "`graph:`")


class _Reader:
    def __init__(self, dialect: Dialect, environ: Dict[str, str], known: Known, load: Load | None) -> None:
        self.problems: list[Problem] = []
        self._dialect = dialect
        self._environ = environ
        self._known = known
        self._load = load
        self._files: list[str] = []
        self._graphs: dict[tuple[str, bytes], Graph | None] = {}

    def workflow(self, root: Mapping, text: str, file: str, given: dict[str, Node]) -> Workflow:
        top = self._opened(root, Source(file, text), {}, given)
        given_here: dict[str, Any] = {"graph": self._root_graph(top), "dialect": self._dialect}
        if "vars" not in top.entries or isinstance(top["vars"].node, Mapping):
            given_here["vars"] = {name: plain(node) for name, node in top.reading.variables.items()}
        workflow = top.block(Workflow, "a workflow file", given=given_here, hidden=("dialect",), elsewhere=_OF_GRAPHS)
        self.problems.extend(top.reading.problems)
        compat = "standard" if self._dialect == STANDARD else "devall"
        return msgspec.structs.replace(workflow, compat=compat)

    def _opened(self, root: Mapping, source: Source, below: dict[str, Node], above: dict[str, Node]) -> FileValue:
        """Return a file with its variables inserted. They override `below`, and `above` overrides them."""
        entry = root.entries.get("vars")
        own = entry.value.entries if entry is not None and isinstance(entry.value, Mapping) else {}
        nodes = {**below, **{name: each.value for name, each in own.items()}, **above}
        # Variables of the caller count even if the text has no reference.
        if "${" in source.text or above:
            resolver = Resolver(source.file, self._dialect, nodes, self._environ)
            nodes = resolver.variables()
            entries = {
                key: each if key == "vars" else Entry(resolver.resolved(each.value, (key,)), each.line, each.column)
                for key, each in root.entries.items()
            }
            self.problems.extend(resolver.problems)
            root = Mapping(entries, root.line, root.column)
        return FileValue(WorkflowReading(source, self._dialect, self._known, nodes), root)

    def _root_graph(self, top: FileValue) -> Graph:
        if top.get("graph") is None:
            where = "`nodes` belongs under it" if "nodes" in top.entries else "it is not there"
            top.key("graph").error(
                "missing_key",
                f"missing field `graph`: a workflow file needs it, and {where}",
                expected="`graph:` with `nodes` and `edges`",
                hint="Hint: write `graph:` and indent the rest of the graph under it.",
            )
            return Graph()
        graph = top.mapping_at("graph", "`graph:` with `nodes:` and `edges:` under it")
        return Graph() if graph is None else self._graph(graph, "", "DEBUG", whole_file=False)

    def _file(self, config: FileValue, level: LogLevel) -> SubgraphConfig | None:
        reading = config.reading
        name = config.block(_Path, "the `config` of a subgraph in a file").path
        if not name or self._load is None:
            return SubgraphConfig(file=name) if name else None
        where = config["path"]
        try:
            text, file = self._load(name, reading.file)
        except OSError as error:
            hint = "Hint: paths are relative to the file that contains them."
            where.error("missing_file", f"no subgraph `{name}`: {error}", hint=hint)
            return None
        # DevAll follows a file that contains itself until the operating system refuses the path.
        if file in self._files or file == reading.file:
            chain = " -> ".join([*self._files, reading.file, file])
            hint = "Hint: a subgraph can't be part of itself; use a cycle of edges."
            where.error("endless_subgraph", f"the file contains itself: {chain}", hint=hint)
            return None
        if len(self._files) >= MAX_NESTED or len(self._graphs) >= MAX_GRAPHS:
            hint = f"Hint: at most {MAX_NESTED} files deep and {MAX_GRAPHS} in all."
            where.error("too_many_subgraphs", "too many files of subgraphs", hint=hint)
            return None
        # The same file with other variables is another graph.
        key = (file, msgspec.json.encode({name: plain(value) for name, value in reading.variables.items()}))
        if key not in self._graphs:
            # An unreadable file stays None, so its problems are reported once.
            self._graphs[key] = None
            self._files.append(reading.file)
            try:
                self._graphs[key] = self._graph_of_file(Source(file, text), reading.variables, level)
            finally:
                self._files.pop()
        return SubgraphConfig(file=name, graph=self._graphs[key])

    def _graph_of_file(self, source: Source, variables: dict[str, Node], level: LogLevel) -> Graph | None:
        root, problems = parse_mapping(source.text, source.file)
        self.problems.extend(problems)
        if root is None:
            return None
        top = self._opened(root, source, variables, {})
        if top.get("graph") is None:  # a file of a subgraph may leave `graph:` out
            found: FileValue | None = top.without("vars")
        else:
            self._check_top(top)
            found = top.mapping_at("graph", "`graph:` with `nodes:` under it")
        graph = None if found is None else self._graph(found, "", level, whole_file=True)
        self.problems.extend(top.reading.problems)
        return graph

    def _check_top(self, top: FileValue) -> None:
        """Check the top level of a subgraph's file, which can't choose a dialect."""
        fields = top.without("graph", "vars").block(WorkflowFields, "a workflow file", elsewhere=_OF_GRAPHS)
        if fields.compat is not None and DIALECTS[fields.compat] != self._dialect:
            message = "`compat` has no effect in a subgraph's file"
            top["compat"].warn("unused_key", message, "write it into the workflow that is run.")

    def _graph(self, part: FileValue, prefix: str, level: LogLevel, *, whole_file: bool) -> Graph:
        reading = part.reading
        before = reading.unread
        part = self._without_vars(part)
        named: Any = part["log_level"].text
        level = named or level
        nodes, ids, all_nodes = self._nodes(part, prefix, level)
        edges, all_edges = self._edges(part, ids)
        stores, names = read_stores(part)
        graph = part.block(
            Graph,
            "a graph",
            given={"nodes": nodes, "edges": edges, "memory": stores, "source": reading.source, "path": part.path},
            hidden=("source", "path"),
        )
        graph = msgspec.structs.replace(graph, log_level=graph.log_level or level)
        check_stores(graph, part, names)
        check_ids(graph, part, ids)
        if all_nodes and all_edges:
            graph = with_ends(graph, part, ids, checked=not whole_file)
        # In a graph with unreadable parts these checks would report consequences of the first mistake.
        if reading.unread == before:
            check_loops(reading, graph)
            Lint(reading, graph).check()
        return graph

    def _without_vars(self, part: FileValue) -> FileValue:
        if "vars" not in part.entries:
            return part
        if part.get("vars") is not None and plain(part["vars"].node):
            part.key("vars").error(
                "misplaced_key",
                "`vars` is inside of a graph",
                expected="`vars` at the top of the file",
                hint="Hint: move it beside `graph:`; subgraphs see the variables of the file that refers to them.",
            )
        return part.without("vars")

    def _nodes(
        self, graph: FileValue, prefix: str, level: LogLevel
    ) -> tuple[tuple[WorkflowNode, ...], dict[str, int], bool]:
        """Return the readable nodes, all ids with their lines, and whether every node has an id."""
        nodes: list[WorkflowNode] = []
        lines: dict[str, int] = {}
        items = graph.each("nodes", "nodes", "id: writer")
        for item in items:
            part = item.mapping("a node", "`{id: writer, type: agent, config: {...}}`")
            if part is None:
                continue
            id = part["id"].text
            if id is not None and id.strip():
                graph.reading.names[part.path] = prefix + id
                if id in lines:
                    message = f"two nodes are called `{id}`; the first is on line {lines[id]}"
                    hint = "Hint: rename one of the two, and the edges that mean it."
                    part["id"].error("duplicate_id", message, hint=hint)
                lines.setdefault(id, part["id"].node.line)
            node = self._node(part, level)
            if node is not None:
                nodes.append(node)
        if not items and not graph["nodes"].is_broken:
            graph.key("nodes").error(
                "no_nodes",
                "the graph has no nodes",
                expected="`nodes:` with at least one node",
                hint="Hint: write `nodes: [{id: writer, type: agent, config: {provider: openai, name: ...}}]`.",
            )
        return tuple(nodes), lines, bool(items) and len(lines) == len(items)

    def _node(self, part: FileValue, level: LogLevel) -> WorkflowNode | None:
        dialect = self._dialect
        kinds = [*NODE_TYPES, *sorted(self._known.node_types)]
        aliases = {"python_runner": "python"} if dialect.guide_keys else {}
        block = part.typed("a node", kinds, also=None, aliases=aliases)
        kind, config = "", None
        if block is not None:
            kind = block[0]
            config = self._config(*block, part.reading.names.get(part.path, ""), level)
        part = part.misplaced(
            {
                # The earlier place of this key, still in DevAll's demo_dynamic.yaml. Its program ignores it there.
                "dynamic": "put it on the edges that lead into this node.",
                "keep_context": "write `context_window: -1` to keep everything.",
            },
            "a node",
        )
        configs = [NODE_TYPES[kind]] if kind in NODE_TYPES else list(NODE_TYPES.values()) if not kind else []
        inside = {key: None for config_type in configs for key in config_type.__struct_encode_fields__}
        made = part.block(
            WorkflowNode,
            "a node",
            given={
                "type": kind,
                "config": config,
                "input": read_seeds(part, "input", "user"),
                "output": read_seeds(part, "output", "assistant"),
                "path": part.path,
            },
            hidden=("path", "by_dialect"),
            elsewhere={key: "the node's `config`" for key in inside if key not in NodeFields.__struct_encode_fields__},
        )
        if config is None or not made.id:
            return None
        answers = dialect.failed_agents_answer and isinstance(config, AgentConfig)
        on_error = made.on_error or ("continue" if answers else "fail")
        return msgspec.structs.replace(made, on_error=on_error, by_dialect=made.on_error is None and answers)

    def _config(self, kind: str, config: FileValue, name: str, level: LogLevel) -> NodeConfig | None:
        if kind == "subgraph":
            return self._subgraph(config, name, level)
        if kind in READERS:
            return READERS[kind](config)
        if kind not in NODE_TYPES:
            return CustomConfig(values=plain(config.node))
        what = f"the `config` of a {kind}"
        if kind == "loop_timer":
            config = config.misplaced({"max_iterations": "a timer has `max_duration`."}, what)
        return config.block(NODE_TYPES[kind], what)

    def _subgraph(self, config: FileValue, name: str, level: LogLevel) -> SubgraphConfig | None:
        block = self._without_vars(config).typed("a subgraph", ("config", "file"))
        if block is None:
            return None
        kind, inner = block
        if kind == "file":
            return self._file(inner, level)
        for key in ("nodes", "edges"):
            if key not in inner.entries:
                inner[key].error(
                    "missing_key",
                    f"missing field `{key}`: a subgraph needs it, and it is not there",
                    expected=f"`{key}:` with a list",
                    hint=f"Hint: write `{key}: []` if there are none.",
                )
        if "nodes" not in inner.entries:
            return None
        before = inner.reading.unread
        graph = self._graph(inner, f"{name}/", level, whole_file=False)
        inner.reading.inside += inner.reading.unread - before
        return SubgraphConfig(graph=graph)

    def _edges(self, graph: FileValue, ids: Dict[str, int]) -> tuple[tuple[Edge, ...], bool]:
        """Return the readable edges, and True if these are all edges."""
        edges: list[Edge] = []
        pairs: dict[tuple[str, str], int] = {}
        items = graph.each("edges", "edges", "{from: a, to: b}")
        whole = (*graph.path, "edges") not in graph.reading.broken
        lines: list[int] = []
        for item in items:
            edge = read_edge(item)
            if edge is None or not has_ends(edge, item, ids):
                whole = False
                continue
            pair = (edge.source, edge.target)
            if pair in pairs and self._dialect.merges_edges:
                message = f"this edge overwrites the one from `{pair[0]}` to `{pair[1]}` on line {lines[pairs[pair]]}"
                hint = "put what both are to do into one; without `compat: devall` both count."
                item.warn("merged_edges", message, hint)
                edges[pairs[pair]], lines[pairs[pair]] = edge, item.node.line
                continue
            pairs[pair] = len(edges)
            edges.append(edge)
            lines.append(item.node.line)
        return tuple(edges), whole


def has_ends(edge: Edge, part: FileValue, ids: Collection[str]) -> bool:
    """Return whether both ends of an edge are nodes, and report a missing one."""
    missing = {key: name for key, name in (("from", edge.source), ("to", edge.target)) if name not in ids}
    for key, name in missing.items():
        _unknown_node(part[key], f"`{key}` of the edge is `{name}`, but no node has this id", name, ids)
    return not missing


def check_ids(graph: Graph, part: FileValue, ids: Collection[str]) -> None:
    """Report names in `start` and `end` that are not nodes."""
    for key, names in (("start", graph.start), ("end", graph.end)):
        for i, name in enumerate(names):
            if name not in ids:
                at = part[key].items[i] if part[key].is_list else part[key]
                _unknown_node(at, f"`{key}` names `{name}`, but no node has this id", name, ids)


def _unknown_node(part: FileValue, message: str, name: str, ids: Collection[str]) -> None:
    hint = did_you_mean(name, ids) or f"Hint: the nodes are {', '.join(list(ids)[:20])}."
    part.error("unknown_node", message, expected="the id of a node of this graph", hint=hint)


def check_stores(graph: Graph, part: FileValue, names: frozenset[str]) -> None:
    """Report memories of nodes that name no store of the graph."""
    for use in (use for node in graph.nodes for use in getattr(node.config, "memories", ())):
        if use.name and use.name not in names:
            path = (*use.path, "name")
            part.reading.report(
                "error",
                "unknown_store",
                f"the graph has no memory store `{use.name}`",
                path,
                graph.source.where(path),
                expected=f"one of {', '.join(sorted(names))}" if names else "a store under `memory` of the graph",
                hint=did_you_mean(use.name, names)
                or f"Hint: add it to the graph: `memory: [{{name: {use.name}, type: simple, config: {{}}}}]`.",
            )


def with_ends(graph: Graph, part: FileValue, ids: Collection[str], *, checked: bool) -> Graph:
    """Return the graph with each start node once; report a missing `start` or `end`.

    Where the dialect permits it, a missing `start` is inferred: the only node without incoming edges.

    Args:
        checked: False skips the check of `end`.
    """
    inferred = part.reading.dialect.ends_are_inferred
    graph = msgspec.structs.replace(graph, start=tuple(dict.fromkeys(graph.start)))
    # A vote has no use for a start node, but DevAll's program refuses a graph without one.
    if graph.is_majority_voting and (graph.start or inferred):
        return graph
    entered = {edge.target for edge in graph.edges if edge.source != edge.target}
    left = {edge.source for edge in graph.edges}
    if not graph.start and (*graph.path, "start") not in part.reading.broken:
        sources = [each for each in ids if each not in entered]
        if inferred and len(sources) == 1:
            graph = msgspec.structs.replace(graph, start=(sources[0],))
        else:
            why = "every node has an incoming edge"
            if sources:
                why = f"{len(sources)} nodes have no incoming edge: {', '.join(sources[:10])}"
            part.key("start").error(
                "no_start",
                "`start` is missing" + (f", and {why}" if inferred else ""),
                expected="`start:` with the ids of the nodes that get the task",
                hint=f"Hint: write `start: [{', '.join(sources[:5]) or next(iter(ids))}]`.",
            )
    sinks = [each for each in ids if each not in left]
    # `end: []` is not None: as in DevAll, an empty list turns this check off.
    if checked and not graph.is_majority_voting and part.get("end") is None and len(sinks) != 1:
        why = (
            f"{len(sinks)} nodes have no outgoing edge: {', '.join(sinks[:10])}"
            if sinks
            else "every node has an outgoing edge"
        )
        part.key("end").error(
            "no_end",
            f"`end` is missing, and {why}",
            expected="`end:` with the ids of the nodes whose output is the result",
            hint=f"Hint: write `end: [{', '.join(sinks[:5]) or list(ids)[-1]}]`; the first with an output "
            "gives the result.",
        )
    return graph
