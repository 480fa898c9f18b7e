"""What names in a graph refer to, and where a graph begins and ends."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ...problems import did_you_mean
from ...source import Mapping, Node
from ..edges import Edge
from ..model import Graph
from .reading import WorkflowReading, is_null


def line_of(edge: Edge, graph: Mapping) -> int:
    """The line an edge of this graph stands on."""
    items = graph.entries["edges"].value
    index = edge.path[-1]
    return items.items[index].line  # type: ignore[union-attr,index] # an edge was read from a list


def has_ends(reading: WorkflowReading, edge: Edge, item: Node, ids: Collection[str]) -> bool:
    good = True
    for key, name in (("from", edge.source), ("to", edge.target)):
        if name in ids:
            continue
        good = False
        entry = item.entries.get(key) if isinstance(item, Mapping) else None
        reading.report(
            "error",
            "unknown_node",
            f"the edge leads {key} `{name}`, and no node has this id",
            (*edge.path, key),
            entry.value if entry is not None else item,
            expected="the id of a node of this graph",
            hint=did_you_mean(name, ids) or f"Hint: the nodes are {', '.join(list(ids)[:20])}.",
        )
    return good


def check_ids(reading: WorkflowReading, graph: Graph, node: Mapping, ids: Collection[str]) -> None:
    """`start` and `end` name nodes."""
    for key, names in (("start", graph.start), ("end", graph.end)):
        for i, name in enumerate(names):
            if name in ids:
                continue
            value = node.entries[key].value
            items = getattr(value, "items", None)
            reading.report(
                "error",
                "unknown_node",
                f"`{key}` names `{name}`, and no node has this id",
                (*graph.path, key, i) if items else (*graph.path, key),
                items[i] if items else value,
                expected="the id of a node of this graph",
                hint=did_you_mean(name, ids) or f"Hint: the nodes are {', '.join(list(ids)[:20])}.",
            )


def check_stores(reading: WorkflowReading, graph: Graph, names: frozenset[str]) -> None:
    """What nodes remember, they remember in stores of the graph."""
    for node in graph.nodes:
        for use in getattr(node.config, "memories", ()):
            if use.name and use.name not in names:
                reading.report(
                    "error",
                    "unknown_store",
                    f"no memory store `{use.name}`",
                    (*use.path, "name"),
                    graph.source.where((*use.path, "name")),
                    expected=f"one of {', '.join(sorted(names))}" if names else "a store under `memory` of the graph",
                    hint=did_you_mean(use.name, names)
                    or f"Hint: add it to the graph: `memory: [{{name: {use.name}, type: simple, config: {{}}}}]`.",
                )


def with_ends(reading: WorkflowReading, graph: Graph, node: Mapping, ids: Collection[str], *, checked: bool) -> Graph:
    """The graph with its `start` and `end` known, or a problem reported."""
    graph = msgspec.structs.replace(graph, start=tuple(dict.fromkeys(graph.start)))
    if graph.is_majority_voting and (graph.start or reading.dialect.ends_are_inferred):
        return graph
    entered = {edge.target for edge in graph.edges if edge.source != edge.target}
    left = {edge.source for edge in graph.edges}
    if not graph.start and (*graph.path, "start") not in reading.broken:
        sources = [each for each in ids if each not in entered]
        if reading.dialect.ends_are_inferred and len(sources) == 1:
            graph = msgspec.structs.replace(graph, start=(sources[0],))
        else:
            _no_start(reading, graph, node, sources, next(iter(ids)))
    entry = node.entries.get("end")
    sinks = [each for each in ids if each not in left]
    if checked and not graph.is_majority_voting and (entry is None or is_null(entry.value)) and len(sinks) != 1:
        reading.report(
            "error",
            "no_end",
            "where the result comes from is not said, and "
            + (f"{len(sinks)} nodes lead nowhere: {', '.join(sinks[:10])}" if sinks else "every node leads on"),
            (*graph.path, "end"),
            (entry.line, entry.column) if entry else node,
            expected="`end:` with the ids of the nodes whose output is the result",
            hint=f"Hint: write `end: [{', '.join(sinks[:5]) or list(ids)[-1]}]`; the first that has said anything "
            "gives the result.",
        )
    return graph


def _no_start(reading: WorkflowReading, graph: Graph, node: Mapping, sources: list[str], first: str) -> None:
    entry = node.entries.get("start")
    if not reading.dialect.ends_are_inferred:
        why = "where to begin is not said"
    elif sources:
        why = f"where to begin is not said, and nothing leads to any of {len(sources)} nodes: {', '.join(sources[:10])}"
    else:
        why = "where to begin is not said, and something leads to every node"
    reading.report(
        "error",
        "no_start",
        why,
        (*graph.path, "start"),
        (entry.line, entry.column) if entry else node,
        expected="`start:` with the ids of the nodes that get the task",
        hint=f"Hint: write `start: [{', '.join(sources[:5]) or first}]`.",
    )
