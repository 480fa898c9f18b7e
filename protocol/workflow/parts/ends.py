"""Checks of the names in a graph, and the start and end nodes of a graph."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ...problems import did_you_mean
from ..edges import Edge
from ..model import Graph
from .reading import FileValue


def has_ends(edge: Edge, part: FileValue, ids: Collection[str]) -> bool:
    """Return whether both ends of an edge are nodes, and report a missing one."""
    missing = {key: name for key, name in (("from", edge.source), ("to", edge.target)) if name not in ids}
    for key, name in missing.items():
        _unknown_node(part[key], f"the edge leads {key} `{name}`, and no node has this id", name, ids)
    return not missing


def check_ids(graph: Graph, part: FileValue, ids: Collection[str]) -> None:
    """Report names in `start` and `end` that are not nodes."""
    for key, names in (("start", graph.start), ("end", graph.end)):
        for i, name in enumerate(names):
            if name not in ids:
                at = part[key].items[i] if part[key].is_list else part[key]
                _unknown_node(at, f"`{key}` names `{name}`, and no node has this id", name, ids)


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
                f"no memory store `{use.name}`",
                path,
                graph.source.where(path),
                expected=f"one of {', '.join(sorted(names))}" if names else "a store under `memory` of the graph",
                hint=did_you_mean(use.name, names)
                or f"Hint: add it to the graph: `memory: [{{name: {use.name}, type: simple, config: {{}}}}]`.",
            )


def with_ends(graph: Graph, part: FileValue, ids: Collection[str], *, checked: bool) -> Graph:
    """Return the graph with its `start` and `end` filled in, or report a problem."""
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
            why = "something leads to every node"
            if sources:
                why = f"nothing leads to any of {len(sources)} nodes: {', '.join(sources[:10])}"
            part.key("start").error(
                "no_start",
                "where to begin is not said" + (f", and {why}" if inferred else ""),
                expected="`start:` with the ids of the nodes that get the task",
                hint=f"Hint: write `start: [{', '.join(sources[:5]) or next(iter(ids))}]`.",
            )
    sinks = [each for each in ids if each not in left]
    # `end: []` is not None: as in DevAll, an empty list turns this check off.
    if checked and not graph.is_majority_voting and part.get("end") is None and len(sinks) != 1:
        why = f"{len(sinks)} nodes lead nowhere: {', '.join(sinks[:10])}" if sinks else "every node leads on"
        part.key("end").error(
            "no_end",
            f"where the result comes from is not said, and {why}",
            expected="`end:` with the ids of the nodes whose output is the result",
            hint=f"Hint: write `end: [{', '.join(sinks[:5]) or list(ids)[-1]}]`; the first that has said anything "
            "gives the result.",
        )
    return graph
