"""Reads a `graph.yaml`: text in, a `Graph` and every problem out.

`read_graph` is for running: no graph unless it is free of errors. `draft_graph` is for checking: it gives as
much of the graph as could be read, so that the checks on its meaning (`actors.graph.validate`) can report
their problems in the same pass as a missing field or a misspelled key.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ..problems import Problem, did_you_mean, errors_in
from ..reading import YAML_ERROR, Reading, in_file_order
from ..source import Entry, Mapping, Path, Scalar, Source, describe, parse_mapping
from .model import NODE_TYPES, AnyNode, Graph

SUPPORTED_VERSIONS = ("1.0",)


class Draft(msgspec.Struct, frozen=True):
    """What could be read of a file that may have errors.

    Attributes:
        graph: every node whose type is known; a value that could not be read is empty.
        unread: ids of the nodes that are missing from it.
        broken: paths of the values that could not be read.
    """

    graph: Graph
    unread: frozenset[str] = frozenset()
    broken: frozenset[Path] = frozenset()


def read_graph(text: str, file: str, *, strict: bool = False) -> tuple[Graph | None, list[Problem]]:
    """The graph of a YAML text, and all problems by line; None when one of them is an error.

    `file` is how problems call the text. With `strict`, warnings (unknown keys) are errors.
    """
    draft, problems = draft_graph(text, file, strict=strict)
    return (None if draft is None or errors_in(problems) else draft.graph), problems


def draft_graph(text: str, file: str, *, strict: bool = False) -> tuple[Draft | None, list[Problem]]:
    """Like `read_graph`, but gives what could be read in spite of errors; None if that is nothing."""
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    reading = Reading(file)
    nodes, unread = _nodes(reading, root)
    graph = reading.fill(
        Graph,
        root,
        what="a graph",
        given={"nodes": nodes, "source": Source(file, text)},
        hidden=("source",),
    )
    _check_top(reading, root, graph, unread)
    draft = Draft(graph, frozenset(unread), frozenset(reading.broken))
    return draft, in_file_order([*problems, *reading.problems], strict=strict)


def _nodes(reading: Reading, root: Mapping) -> tuple[dict[str, AnyNode], list[str]]:
    """The nodes that could be read, and the ids of those that could not."""
    entry = root.entries.get("nodes")
    if entry is None:
        reading.report(
            "error",
            "missing_key",
            f"{YAML_ERROR}missing field `nodes`: a graph needs it, and it is not there",
            ("nodes",),
            root,
            expected="`nodes:` with a mapping of node ids to nodes",
            hint="Hint: the required fields of a graph are `name`, `start`, `nodes`.",
        )
        return {}, []
    if not isinstance(entry.value, Mapping):
        if not (isinstance(entry.value, Scalar) and entry.value.value is None):
            reading.report(
                "error",
                "wrong_type",
                f"{YAML_ERROR}invalid type: `nodes` is {describe(entry.value)}",
                ("nodes",),
                entry.value,
                expected="a mapping of node ids to nodes",
                hint="Hint: write each node under its id: `plan: {type: llm, ...}`.",
            )
        return {}, []
    nodes: dict[str, AnyNode] = {}
    unread: list[str] = []
    for key, node_entry in entry.value.entries.items():
        node = _node(reading, key, node_entry)
        if node is None:
            unread.append(key)
        else:
            nodes[key] = node
    return nodes, unread


def _node(reading: Reading, key: str, entry: Entry) -> AnyNode | None:
    path: Path = ("nodes", key)
    place = (entry.line, entry.column)
    if not isinstance(entry.value, Mapping):
        reading.report(
            "error",
            "wrong_type",
            f"{YAML_ERROR}invalid type: node '{key}' is {describe(entry.value)}",
            path,
            place,
            expected="a mapping with `type`",
            hint=f"Hint: write `{key}: {{type: end}}`, or indent its keys under it.",
        )
        return None
    kind = _type_of(reading, entry.value, path, place)
    if kind is None:
        return None
    cls = NODE_TYPES[kind]
    node = reading.fill(
        cls,
        Mapping({name: e for name, e in entry.value.entries.items() if name != "type"}, *place),
        path,
        what=f"{'an' if kind[0] in 'aeil' else 'a'} {kind} node",
        at=place,
        elsewhere=_owners(),
    )
    if not node.id:
        node = msgspec.structs.replace(node, id=key)
    elif node.id != key:
        id_entry = entry.value.entries["id"]
        reading.report(
            "error",
            "id_mismatch",
            f"Node ID mismatch: key '{key}' does not match node.id '{node.id}'",
            (*path, "id"),
            id_entry.value,
            expected=f"id: {key}",
            hint="Hint: make them equal, or leave `id` out.",
        )
    return node


def _type_of(reading: Reading, node: Mapping, path: Path, place: tuple[int, int]) -> str | None:
    """The node's type, or None with a problem reported."""
    known = ", ".join(NODE_TYPES)
    entry = node.entries.get("type")
    if entry is None:
        reading.report(
            "error",
            "missing_key",
            f"{YAML_ERROR}missing field `type`: every node needs one",
            (*path, "type"),
            place,
            expected=f"type: one of {known}",
            hint=f"Hint: the node types are {known}.",
        )
        return None
    if isinstance(entry.value, Scalar) and entry.value.value in NODE_TYPES:
        return str(entry.value.value)
    found = entry.value.text if isinstance(entry.value, Scalar) else describe(entry.value)
    near = did_you_mean(found, NODE_TYPES)
    reading.report(
        "error",
        "unknown_type",
        f"{YAML_ERROR}unknown variant `{found}` as node type",
        (*path, "type"),
        entry.value,
        expected=f"one of {known}",
        hint=f"Hint: {near + ' ' if near else ''}The node types are {known}.",
    )
    return None


@lru_cache(maxsize=1)
def _owners() -> dict[str, str]:
    """For every key of a node, the types that have it: `llm, agent nodes`."""
    owners: dict[str, list[str]] = {}
    for kind, cls in NODE_TYPES.items():
        for name in cls.__struct_encode_fields__:
            owners.setdefault(name, []).append(kind)
    return {name: f"{', '.join(kinds)} nodes" for name, kinds in owners.items()}


def _check_top(reading: Reading, root: Mapping, graph: Graph, unread: list[str]) -> None:
    """What the types can't say about the top level, in Loki's words."""
    if not graph.name and ("name",) not in reading.broken:
        reading.report(
            "error",
            "empty_name",
            "Graph must have a non-empty 'name' field",
            ("name",),
            root.entries["name"].value,
            expected="the agent's name",
            hint="Hint: write `name: my-agent`.",
        )
    if graph.version not in SUPPORTED_VERSIONS:
        supported = ", ".join(SUPPORTED_VERSIONS)
        reading.report(
            "error",
            "unsupported_version",
            f"Unsupported graph schema version '{graph.version}'. Supported versions: {supported}",
            ("version",),
            root.entries["version"].value,
            expected=f'version: "{SUPPORTED_VERSIONS[-1]}"',
            hint="Hint: this is the version of the schema, not of your agent.",
        )
    known = [*graph.nodes, *unread]
    if not known and ("nodes",) not in reading.broken:
        entry = root.entries["nodes"]
        reading.report(
            "error",
            "no_nodes",
            f"Graph '{graph.name}' has no nodes defined",
            ("nodes",),
            (entry.line, entry.column),
            expected="at least one node",
            hint="Hint: a graph needs at least an end node: `done: {type: end, output: hi}`.",
        )
    elif known and graph.start not in known and ("start",) not in reading.broken:
        ids = [key for key in _ids(root) if key in known]
        reading.report(
            "error",
            "missing_start",
            f"Start node '{graph.start}' not found in graph '{graph.name}'. Available nodes: {', '.join(ids)}",
            ("start",),
            root.entries["start"].value,
            expected="the id of a node",
            hint=did_you_mean(graph.start, ids) or "Hint: name one of them in `start`.",
        )


def _ids(root: Mapping) -> list[str]:
    nodes = root.entries["nodes"].value
    return list(nodes.entries) if isinstance(nodes, Mapping) else []
