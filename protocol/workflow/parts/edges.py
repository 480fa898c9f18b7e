"""Reads the edges of a graph."""

from __future__ import annotations

from ...source import Mapping, Node, Path
from ..edges import Edge
from .carried import read_dynamic, read_processor
from .conditions import read_condition
from .reading import WorkflowReading

_MISNAMED = {"source": "from", "target": "to"}
_MISPLACED = {
    "split": "put it under `dynamic:`.",
    "max_parallel": "put it under `config:` of `dynamic:`.",
    "group_size": "put it under `config:` of `dynamic:`.",
    "keep": "did you mean 'keep_message'?",
    "context_window": "it is a key of nodes; put it on the node this edge leads to.",
}


def read_edge(reading: WorkflowReading, node: Node, path: Path) -> Edge | None:
    """The edge at `path`; None if its ends could not be read."""
    mapping = reading.mapping(node, path, "an edge", "`{from: a, to: b}`")
    if mapping is None:
        return None
    mapping = _with_ends(reading, mapping, path)
    if reading.dialect.guide_keys:
        mapping = reading.renamed(mapping, path, {"processor": "process"}, "an edge")
    else:
        mapping = reading.ignored(mapping, path, {"processor": "write `process`."}, "an edge")
    mapping = reading.misplaced(mapping, path, _MISPLACED, "an edge")
    edge = reading.block(
        Edge,
        mapping,
        path,
        what="an edge",
        given={
            "condition": read_condition(reading, mapping, path),
            "process": read_processor(reading, mapping, path),
            "dynamic": read_dynamic(reading, mapping, path),
            "path": path,
        },
        hidden=("path",),
    )
    return edge if edge.source and edge.target else None


def _with_ends(reading: WorkflowReading, edge: Mapping, path: Path) -> Mapping:
    """The edge with `source` and `target` read as what they stand for; the engine wants `from` and `to`."""
    if _MISNAMED.keys().isdisjoint(edge.entries):
        return edge
    entries = dict(edge.entries)
    for wrong, right in _MISNAMED.items():
        if wrong in entries and right not in entries:
            entry = entries.pop(wrong)
            entries[right] = entry
            reading.report(
                "error",
                "missing_key",
                f"missing field `{right}`: an edge needs it, and `{wrong}` is not known",
                (*path, right),
                (entry.line, entry.column),
                expected=f"`{right}:` with the id of a node",
                hint=f"Hint: write `{right}` for `{wrong}`.",
            )
    return Mapping(entries, edge.line, edge.column)
