"""Reader of `graph.yaml`: returns a `Graph` and every problem of a text.

`read_graph` is for execution: it returns no graph if there is an error. `draft_graph` is for checks: it returns the
readable part of the graph. The checks of its meaning (`actors.graph.validate`) can then report their problems
together with missing fields and misspelt keys.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ..problems import Problem, did_you_mean, errors_in
from ..reading import YAML_ERROR, Cursor, Reading, in_file_order
from ..tree import Mapping, Path, Scalar, describe
from ..yaml_tree import Source, parse_mapping
from .model import NODE_TYPES, AnyNode, Graph

SUPPORTED_VERSIONS = ("1.0",)


class Draft(msgspec.Struct, frozen=True):
    """Readable part of a file that may have errors.

    Attributes:
        graph: every node with a known type; unreadable values are empty.
        unread: ids of the nodes that are missing from it.
        broken: paths of the unreadable values.
    """

    graph: Graph
    unread: frozenset[str] = frozenset()
    broken: frozenset[Path] = frozenset()


def read_graph(text: str, file: str, *, strict: bool = False) -> tuple[Graph | None, list[Problem]]:
    """Return the graph of a YAML text, and all problems by line; None if one of them is an error.

    `file` is the name of the text in problems. With `strict`, warnings (unknown keys) are errors.
    """
    draft, problems = draft_graph(text, file, strict=strict)
    return (None if draft is None or errors_in(problems) else draft.graph), problems


def draft_graph(text: str, file: str, *, strict: bool = False) -> tuple[Draft | None, list[Problem]]:
    """Return the readable part of a graph in spite of errors, and all problems; None if nothing is readable."""
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    top = Cursor(Reading(file), root)
    nodes, unread = _nodes(top)
    graph = top.reading.fill(
        Graph, root, what="a graph", given={"nodes": nodes, "source": Source(file, text)}, hidden=("source",)
    )
    _check_top(top, graph, unread)
    draft = Draft(graph, frozenset(unread), frozenset(top.reading.broken))
    return draft, in_file_order([*problems, *top.reading.problems], strict=strict)


def _nodes(top: Cursor) -> tuple[dict[str, AnyNode], list[str]]:
    """Return the readable nodes, and the ids of the unreadable ones."""
    read = {key: _node(top["nodes"], key) for key in top["nodes"].entries} if "nodes" in top.entries else {}
    if "nodes" not in top.entries:
        top["nodes"].error(
            "missing_key",
            f"{YAML_ERROR}missing field `nodes`: a graph needs it, and it is not there",
            expected="`nodes:` with a mapping of node ids to nodes",
            hint="Hint: the required fields of a graph are `name`, `start`, `nodes`.",
        )
    elif not isinstance(top["nodes"].node, Mapping) and top.get("nodes") is not None:
        top["nodes"].error(
            "wrong_type",
            f"{YAML_ERROR}invalid type: `nodes` is {describe(top['nodes'].node)}",
            expected="a mapping of node ids to nodes",
            hint="Hint: write each node under its id: `plan: {type: llm, ...}`.",
        )
    return {key: node for key, node in read.items() if node is not None}, [key for key in read if read[key] is None]


def _node(nodes: Cursor, key: str) -> AnyNode | None:
    part = nodes.key(key)
    if not isinstance(part.node, Mapping):
        part.error(
            "wrong_type",
            f"{YAML_ERROR}invalid type: node '{key}' is {describe(part.node)}",
            expected="a mapping with `type`",
            hint=f"Hint: write `{key}: {{type: end}}`, or indent its keys under it.",
        )
        return None
    kind = _type_of(part)
    if kind is None:
        return None
    node = part.reading.fill(
        NODE_TYPES[kind],
        Mapping({name: entry for name, entry in part.entries.items() if name != "type"}, *part.place),
        part.path,
        # l: `llm` is pronounced letter by letter, so it is "an llm node".
        what=f"{'an' if kind[0] in 'aeil' else 'a'} {kind} node",
        elsewhere=_owners(),
    )
    if not node.id:
        return msgspec.structs.replace(node, id=key)
    if node.id != key:
        part["id"].error(
            "id_mismatch",
            f"Node ID mismatch: key '{key}' does not match node.id '{node.id}'",
            expected=f"id: {key}",
            hint="Hint: make them equal, or leave `id` out.",
        )
    return node


def _type_of(part: Cursor) -> str | None:
    known = ", ".join(NODE_TYPES)
    kind = part["type"]
    if "type" not in part.entries:
        kind.place = part.place
        kind.error(
            "missing_key",
            f"{YAML_ERROR}missing field `type`: every node needs one",
            expected=f"type: one of {known}",
            hint=f"Hint: the node types are {known}.",
        )
        return None
    if kind.text in NODE_TYPES:
        return kind.text
    found = kind.node.text if isinstance(kind.node, Scalar) else describe(kind.node)
    near = did_you_mean(found, NODE_TYPES)
    kind.error(
        "unknown_type",
        f"{YAML_ERROR}unknown variant `{found}` as node type",
        expected=f"one of {known}",
        hint=f"Hint: {near + ' ' if near else ''}The node types are {known}.",
    )
    return None


@lru_cache(maxsize=1)
def _owners() -> dict[str, str]:
    """Return the node types that have a key, by key, as a text: `llm, agent nodes`."""
    owners: dict[str, list[str]] = {}
    for kind, cls in NODE_TYPES.items():
        for name in cls.__struct_encode_fields__:
            owners.setdefault(name, []).append(kind)
    return {name: f"{', '.join(kinds)} nodes" for name, kinds in owners.items()}


def _check_top(top: Cursor, graph: Graph, unread: list[str]) -> None:
    """Report problems of the top level that the types cannot express, in Loki's words."""
    if not graph.name and not top["name"].is_broken:
        top["name"].error(
            "empty_name",
            "Graph must have a non-empty 'name' field",
            expected="the agent's name",
            hint="Hint: write `name: my-agent`.",
        )
    if graph.version not in SUPPORTED_VERSIONS:
        supported = ", ".join(SUPPORTED_VERSIONS)
        top["version"].error(
            "unsupported_version",
            f"Unsupported graph schema version '{graph.version}'. Supported versions: {supported}",
            expected=f'version: "{SUPPORTED_VERSIONS[-1]}"',
            hint="Hint: this is the version of the schema, not of your agent.",
        )
    # An unreadable node exists and has its own problem, so `start` may name it.
    known = [*graph.nodes, *unread]
    if not known and ("nodes",) not in top.reading.broken:
        top.key("nodes").error(
            "no_nodes",
            f"Graph '{graph.name}' has no nodes defined",
            expected="at least one node",
            hint="Hint: a graph needs at least an end node: `done: {type: end, output: hi}`.",
        )
    elif known and graph.start not in known and not top["start"].is_broken:
        ids = list(top["nodes"].entries)
        top["start"].error(
            "missing_start",
            f"Start node '{graph.start}' not found in graph '{graph.name}'. Available nodes: {', '.join(ids)}",
            expected="the id of a node",
            hint=did_you_mean(graph.start, ids) or "Hint: name one of them in `start`.",
        )
