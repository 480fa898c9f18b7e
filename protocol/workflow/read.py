"""Reads a workflow file: text in, a `Workflow` and every problem out.

The tree of the file gets its variables (`variables`), its parts become structs (`parts`), and what only the whole can
show is looked at last (`lint`, `loops`): ids that are not there, where to begin and end, and what will surprise its
author. One pass finds it all; a graph of which a part could not be read is not judged as a whole.

Inline subgraphs are read in their place. One in a file of its own is asked for by `load`, and read with the variables
of the file that refers to it underneath its own.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import Any

import msgspec

from ..problems import Problem, errors_in
from ..reading import in_file_order
from ..source import Entry, Mapping, Node, Path, Scalar, Source, parse_mapping, plain
from .dialect import DIALECTS, STANDARD, Dialect, Mode
from .edges import Edge, Id
from .known import Known, Load
from .lint import lint
from .loops import check_loops
from .model import (
    NODE_TYPES,
    AgentConfig,
    CustomConfig,
    Graph,
    LogLevel,
    NodeConfig,
    NodeFields,
    SubgraphConfig,
    Workflow,
    WorkflowFields,
)
from .model import Node as WorkflowNode
from .parts.edges import read_edge
from .parts.ends import check_ids, check_stores, has_ends, line_of, with_ends
from .parts.memories import read_stores
from .parts.nodes import read_config, read_seeds
from .parts.open_file import OpenFile
from .parts.reading import WorkflowReading, is_null
from .variables import Resolver, as_node, told_once

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
    """The workflow of a YAML text, and all problems by line; None when one of them is an error.

    Args:
        file: how problems call the text.
        variables: what the caller says of `vars`; wins over the file.
        environ: the environment and `.env` in one.
        compat: which dialect, whatever the file says.
        strict: warnings are errors.
        known: functions, providers and node types that may be named.
        load: gives the files of subgraphs. Without it they are not looked at.
    """
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    reader = _Reader(DIALECTS[compat or _compat_of(root)], environ or {}, known or Known(), load)
    given = {name: as_node(value) for name, value in (variables or {}).items()}
    workflow = reader.workflow(root, text, file, given)
    # Problems of other files stay together behind those of the first.
    own = [problem for problem in (*problems, *reader.problems) if problem.file == file]
    others = [problem for problem in reader.problems if problem.file != file]
    found = told_once([*in_file_order(own, strict=strict), *in_file_order(others, strict=strict)])
    return (None if errors_in(found) else workflow), found


def _compat_of(root: Mapping) -> str:
    entry = root.entries.get("compat")
    found = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
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

    # files

    def workflow(self, root: Mapping, text: str, file: str, given: dict[str, Node]) -> Workflow:
        opened, root = self._opened(root, text, file, {}, given)
        reading = opened.reading
        graph = self._root_graph(opened, root)
        given_here: dict[str, Any] = {"graph": graph, "dialect": self._dialect}
        entry = root.entries.get("vars")
        if entry is None or isinstance(entry.value, Mapping):
            given_here["vars"] = {name: plain(node) for name, node in opened.variables.items()}
        workflow = reading.block(
            Workflow,
            root,
            path=(),
            what="a workflow file",
            given=given_here,
            hidden=("dialect",),
            elsewhere=_OF_GRAPHS,
        )
        self.problems.extend(reading.problems)
        compat = "standard" if self._dialect == STANDARD else "devall"
        return msgspec.structs.replace(workflow, compat=compat)

    def _opened(
        self, root: Mapping, text: str, file: str, below: dict[str, Node], above: dict[str, Node]
    ) -> tuple[OpenFile, Mapping]:
        """A file with its variables put in; `below` is what its own win over, `above` what wins over its own."""
        entry = root.entries.get("vars")
        own = entry.value.entries if entry is not None and isinstance(entry.value, Mapping) else {}
        nodes = {**below, **{name: each.value for name, each in own.items()}, **above}
        reading, source = WorkflowReading(file, self._dialect, self._known), Source(file, text)
        if "${" not in text and not above:
            return OpenFile(reading, source, nodes), root
        resolver = Resolver(file, self._dialect, nodes, self._environ)
        variables = resolver.variables()
        entries = {
            key: each if key == "vars" else Entry(resolver.resolved(each.value, (key,)), each.line, each.column)
            for key, each in root.entries.items()
        }
        self.problems.extend(resolver.problems)
        return OpenFile(reading, source, variables), Mapping(entries, root.line, root.column)

    def _root_graph(self, opened: OpenFile, root: Mapping) -> Graph:
        entry = root.entries.get("graph")
        reading = opened.reading
        if entry is None or is_null(entry.value):
            flat = "nodes" in root.entries
            reading.report(
                "error",
                "missing_key",
                "missing field `graph`: a workflow file needs it"
                + (", and `nodes` belongs under it" if flat else ", and it is not there"),
                ("graph",),
                (entry.line, entry.column) if entry else root,
                expected="`graph:` with `nodes` and `edges`",
                hint="Hint: write `graph:` and indent the rest of the graph under it.",
            )
            return Graph()
        mapping = reading.mapping(entry.value, ("graph",), "`graph`", "`graph:` with `nodes:` and `edges:` under it")
        return Graph() if mapping is None else self._graph(opened, mapping, ("graph",), "", "DEBUG", whole_file=False)

    def _file(self, opened: OpenFile, path: Path, node: Mapping, level: LogLevel) -> SubgraphConfig | None:
        """The subgraph in the file that `node` names."""
        reading = opened.reading
        name = reading.block(_Path, node, path, what="the `config` of a subgraph in a file").path
        if not name or self._load is None:
            return SubgraphConfig(file=name) if name else None
        where = node.entries["path"].value
        path = (*path, "path")
        try:
            text, file = self._load(name, reading.file)
        except OSError as error:
            hint = "Hint: paths are relative to the file they stand in."
            reading.report("error", "missing_file", f"no subgraph `{name}`: {error}", path, where, hint=hint)
            return None
        if file in self._files or file == reading.file:
            chain = " -> ".join([*self._files, reading.file, file])
            hint = "Hint: a subgraph can't be part of itself; use a cycle of edges."
            reading.report("error", "endless_subgraph", f"the file contains itself: {chain}", path, where, hint=hint)
            return None
        if len(self._files) >= MAX_NESTED or len(self._graphs) >= MAX_GRAPHS:
            hint = f"Hint: at most {MAX_NESTED} files deep and {MAX_GRAPHS} in all."
            reading.report("error", "too_many_subgraphs", "too many files of subgraphs", path, where, hint=hint)
            return None
        key = (file, msgspec.json.encode({name: plain(value) for name, value in opened.variables.items()}))
        if key not in self._graphs:
            self._graphs[key] = None
            self._files.append(reading.file)
            try:
                self._graphs[key] = self._graph_of_file(opened, text, file, level)
            finally:
                self._files.pop()
        return SubgraphConfig(file=name, graph=self._graphs[key])

    def _graph_of_file(self, opened: OpenFile, text: str, file: str, level: LogLevel) -> Graph | None:
        root, problems = parse_mapping(text, file)
        self.problems.extend(problems)
        if root is None:
            return None
        inner, root = self._opened(root, text, file, opened.variables, {})
        entry = root.entries.get("graph")
        if entry is None or is_null(entry.value):
            # A file of a subgraph may leave `graph:` out.
            without = Mapping({k: e for k, e in root.entries.items() if k != "vars"}, root.line, root.column)
            graph: Graph | None = self._graph(inner, without, (), "", level, whole_file=True)
        else:
            self._check_top(inner.reading, root)
            mapping = inner.reading.mapping(entry.value, ("graph",), "`graph`", "`graph:` with `nodes:` under it")
            graph = None if mapping is None else self._graph(inner, mapping, ("graph",), "", level, whole_file=True)
        self.problems.extend(inner.reading.problems)
        return graph

    def _check_top(self, reading: WorkflowReading, root: Mapping) -> None:
        """The top level of a subgraph's file, where the dialect is not its to choose."""
        top = Mapping({k: e for k, e in root.entries.items() if k not in ("graph", "vars")}, root.line, root.column)
        compat = reading.block(WorkflowFields, top, (), what="a workflow file", elsewhere=_OF_GRAPHS).compat
        if compat is not None and DIALECTS[compat] != self._dialect:
            reading.report(
                "warning",
                "unused_key",
                "`compat` has no effect in a subgraph's file",
                ("compat",),
                root.entries["compat"].value,
                hint="write it into the workflow that is run.",
            )

    # one graph

    def _graph(
        self, opened: OpenFile, node: Mapping, path: Path, prefix: str, level: LogLevel, *, whole_file: bool
    ) -> Graph:
        """The graph at `path`; `prefix` is how its nodes are called before their id."""
        reading = opened.reading
        before = opened.broken()
        node = self._without_vars(reading, node, path)
        found = node.entries.get("log_level")
        named = found.value.value if found is not None and isinstance(found.value, Scalar) else None
        level = named if isinstance(named, str) else level  # type: ignore[assignment]  # which names there are is read below
        nodes, ids, all_nodes = self._nodes(opened, node, path, prefix, level)
        edges, all_edges = self._edges(reading, node, path, ids)
        stores, names = read_stores(reading, node, path)
        graph = reading.block(
            Graph,
            node,
            path,
            what="a graph",
            given={"nodes": nodes, "edges": edges, "memory": stores, "source": opened.source, "path": path},
            hidden=("source", "path"),
        )
        graph = msgspec.structs.replace(graph, log_level=graph.log_level or level)
        check_stores(reading, graph, names)
        check_ids(reading, graph, node, ids)
        if all_nodes and all_edges:
            graph = with_ends(reading, graph, node, ids, checked=not whole_file)
        if opened.broken() == before:
            check_loops(reading, graph)
            lint(reading, graph)
        return graph

    def _without_vars(self, reading: WorkflowReading, node: Mapping, path: Path) -> Mapping:
        entry = node.entries.get("vars")
        if entry is None:
            return node
        if not is_null(entry.value) and plain(entry.value):
            reading.report(
                "error",
                "misplaced_key",
                "`vars` stands in a graph",
                (*path, "vars"),
                (entry.line, entry.column),
                expected="`vars` at the top of the file",
                hint="Hint: move it beside `graph:`; subgraphs see the variables of the file that refers to them.",
            )
        return Mapping({key: each for key, each in node.entries.items() if key != "vars"}, node.line, node.column)

    def _nodes(
        self, opened: OpenFile, graph: Mapping, path: Path, prefix: str, level: LogLevel
    ) -> tuple[tuple[WorkflowNode, ...], dict[str, int], bool]:
        """The nodes that could be read, the ids of all that have one with their lines, and whether all have."""
        reading = opened.reading
        nodes: list[WorkflowNode] = []
        lines: dict[str, int] = {}
        items = reading.items(graph, "nodes", path, "nodes", "id: writer")
        for item, at in items:
            mapping = reading.mapping(item, at, "a node", "`{id: writer, type: agent, config: {...}}`")
            if mapping is None:
                continue
            entry = mapping.entries.get("id")
            value = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
            if entry is not None and isinstance(value, str) and value.strip():
                reading.names[at] = prefix + value
                if value in lines:
                    reading.report(
                        "error",
                        "duplicate_id",
                        f"two nodes are called `{value}`; the first is on line {lines[value]}",
                        (*at, "id"),
                        entry.value,
                        hint="Hint: rename one of the two, and the edges that mean it.",
                    )
                lines.setdefault(value, entry.value.line)
            node = self._node(opened, mapping, at, level)
            if node is not None:
                nodes.append(node)
        if not items and (*path, "nodes") not in reading.broken:
            entry = graph.entries.get("nodes")
            reading.report(
                "error",
                "no_nodes",
                "the graph has no nodes",
                (*path, "nodes"),
                (entry.line, entry.column) if entry else graph,
                expected="`nodes:` with at least one node",
                hint="Hint: write `nodes: [{id: writer, type: agent, config: {provider: openai, name: ...}}]`.",
            )
        return tuple(nodes), lines, bool(items) and len(lines) == len(items)

    def _node(self, opened: OpenFile, node: Mapping, path: Path, level: LogLevel) -> WorkflowNode | None:
        reading = opened.reading
        dialect = reading.dialect
        block = reading.typed(
            node,
            path,
            what="a node",
            kinds=[*NODE_TYPES, *sorted(reading.known.node_types)],
            also=None,
            aliases={"python_runner": "python"} if dialect.guide_keys else {},
        )
        kind, config = "", None
        if block is not None:
            kind = block[0]
            config = self._config(opened, *block, level)
        node = reading.misplaced(
            node,
            path,
            {
                "dynamic": "put it on the edges that lead into this node.",
                "keep_context": "write `context_window: -1` to keep everything.",
            },
            "a node",
        )
        configs = [NODE_TYPES[kind]] if kind in NODE_TYPES else list(NODE_TYPES.values()) if not kind else []
        inside = {key: None for config_type in configs for key in config_type.__struct_encode_fields__}
        made = reading.block(
            WorkflowNode,
            node,
            path,
            what="a node",
            given={
                "type": kind,
                "config": config,
                "input": read_seeds(reading, node, "input", path, "user"),
                "output": read_seeds(reading, node, "output", path, "assistant"),
                "path": path,
            },
            hidden=("path", "by_dialect"),
            elsewhere={key: "the node's `config`" for key in inside if key not in NodeFields.__struct_encode_fields__},
        )
        if config is None or not made.id:
            return None
        answers = dialect.failed_agents_answer and isinstance(config, AgentConfig)
        on_error = made.on_error or ("continue" if answers else "fail")
        return msgspec.structs.replace(made, on_error=on_error, by_dialect=made.on_error is None and answers)

    def _config(self, opened: OpenFile, kind: str, config: Mapping, path: Path, level: LogLevel) -> NodeConfig | None:
        reading = opened.reading
        if kind == "subgraph":
            return self._subgraph(opened, config, path, level)
        if kind in ("agent", "human", "python", "literal"):
            return read_config(reading, kind, config, path)
        if kind not in NODE_TYPES:
            return CustomConfig(values=plain(config))
        what = f"the `config` of a {kind}"
        if kind == "loop_timer" and "max_iterations" in config.entries:
            config = reading.misplaced(config, path, {"max_iterations": "a timer has `max_duration`."}, what)
        return reading.block(NODE_TYPES[kind], config, path, what=what)

    def _subgraph(self, opened: OpenFile, config: Mapping, path: Path, level: LogLevel) -> SubgraphConfig | None:
        reading = opened.reading
        config = self._without_vars(reading, config, path)
        block = reading.typed(config, path, what="a subgraph", kinds=("config", "file"))
        if block is None:
            return None
        kind, inner, at = block
        if kind == "file":
            return self._file(opened, at, inner, level)
        for key in ("nodes", "edges"):
            if key not in inner.entries:
                reading.report(
                    "error",
                    "missing_key",
                    f"missing field `{key}`: a subgraph needs it, and it is not there",
                    (*at, key),
                    inner,
                    expected=f"`{key}:` with a list",
                    hint=f"Hint: write `{key}: []` if there are none.",
                )
        if "nodes" not in inner.entries:
            return None
        before = opened.broken()
        graph = self._graph(opened, inner, at, f"{reading.names.get(path[:-1], '')}/", level, whole_file=False)
        opened.inside += opened.broken() - before
        return SubgraphConfig(graph=graph)

    def _edges(
        self, reading: WorkflowReading, graph: Mapping, path: Path, ids: Dict[str, int]
    ) -> tuple[tuple[Edge, ...], bool]:
        """The edges that could be read, and whether these are all."""
        edges: list[Edge] = []
        pairs: dict[tuple[str, str], int] = {}
        items = reading.items(graph, "edges", path, "edges", "{from: a, to: b}")
        whole = (*path, "edges") not in reading.broken
        for item, at in items:
            edge = read_edge(reading, item, at)
            if edge is None or not has_ends(reading, edge, item, ids):
                whole = False
                continue
            pair = (edge.source, edge.target)
            if pair in pairs and reading.dialect.merges_edges:
                line = line_of(edges[pairs[pair]], graph)
                reading.report(
                    "warning",
                    "merged_edges",
                    f"this edge overwrites the one from `{edge.source}` to `{edge.target}` on line {line}",
                    at,
                    item,
                    hint="put what both are to do into one; without `compat: devall` both count.",
                )
                edges[pairs[pair]] = edge
                continue
            pairs[pair] = len(edges)
            edges.append(edge)
        return tuple(edges), whole
