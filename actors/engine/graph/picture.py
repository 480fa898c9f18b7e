"""Content of a picture, independent of its format: boxes, and lines between them.

`draw` uses only this module. `picture_of` builds a picture of a graph agent, and `workflow.picture` one of a DevAll
workflow.
"""

from __future__ import annotations

import msgspec

from ....protocol.graph import Graph
from .edges import DeclaredEdge, edges


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """Node of a picture: text below its id, the kind of graph node whose shape it has, and a note."""

    kind: str
    shape: str
    note: str = ""


class NodeShape(msgspec.Struct, frozen=True):
    """Drawing style of a kind of node: Mermaid's brackets, Graphviz's attributes, the colours of the SVG."""

    mermaid: tuple[str, str]
    dot: str
    fill: str
    stroke: str


SHAPES = {
    "script": NodeShape(("[", "]"), "shape=box", "#eef2f7", "#52627a"),
    "llm": NodeShape(("(", ")"), "shape=box, style=rounded", "#e8f0fe", "#2b5fb8"),
    "agent": NodeShape(("[[", "]]"), "shape=box, peripheries=2", "#efe9fb", "#6a3fb0"),
    "approval": NodeShape(("{", "}"), "shape=diamond", "#fdf1d7", "#9a6a00"),
    "input": NodeShape(("[/", "/]"), "shape=parallelogram", "#fdf1d7", "#9a6a00"),
    "rag": NodeShape(("[(", ")]"), "shape=cylinder", "#e3f4ea", "#22784a"),
    "map": NodeShape(("{{", "}}"), "shape=hexagon", "#e2f4f5", "#146b74"),
    "end": NodeShape(("([", "])"), "shape=oval", "#f3f3f3", "#333333"),
}


class PictureLine(msgspec.Struct, kw_only=True):
    """Line between two nodes, which combines parallel edges.

    Attributes:
        dashed: all its edges are optional.
        label: options, conditions and keys.
        back: leads up or to itself.
        bends: horizontal centres in the layers between, from source to target.
    """

    source: str
    target: str
    dashed: bool
    label: str
    back: bool = False
    bends: list[float] = []


class Picture(msgspec.Struct, kw_only=True):
    """Boxes and lines of one picture.

    Attributes:
        starts: ids of the start nodes.
        legend: explanation of solid and dotted lines.
    """

    name: str
    nodes: dict[str, Box]
    lines: list[PictureLine]
    starts: frozenset[str]
    legend: str


def picture_of(graph: Graph) -> Picture:
    """Return the picture of a graph agent."""
    return Picture(
        name=graph.name,
        nodes={
            id: Box(kind=node.kind, shape=node.kind, note=node.description.strip()) for id, node in graph.nodes.items()
        },
        lines=_lines(graph),
        starts=frozenset({graph.start} & graph.nodes.keys()),
        legend="solid: taken by itself   dotted: by a script's _next, a fallback, a timeout",
    )


def _lines(graph: Graph) -> list[PictureLine]:
    together: dict[tuple[str, str], list[DeclaredEdge]] = {}
    for edge in edges(graph):
        if edge.target in graph.nodes:
            together.setdefault((edge.source, edge.target), []).append(edge)
    lines: list[PictureLine] = []
    for (source, target), group in together.items():
        solid = [edge for edge in group if not (edge.dynamic or edge.via in ("fallback", "on_timeout"))]
        words = dict.fromkeys(word for edge in solid or group if (word := _word(edge)))
        lines.append(PictureLine(source=source, target=target, dashed=not solid, label=", ".join(words)))
    return lines


def _word(edge: DeclaredEdge) -> str:
    if edge.via == "routes":
        return "" if edge.dynamic else edge.label
    return {"on_other": "other", "on_timeout": "timeout", "fallback": "fallback", "branch": "each"}.get(edge.via, "")
