"""What a picture shows, whatever is drawn: boxes, and lines between them.

`draw` and its neighbours know this and nothing of graphs; `picture_of` makes it of a graph agent, and
`workflow.picture` of a DevAll workflow.
"""

from __future__ import annotations

import msgspec

from ....protocol.graph.model import Graph
from .edges import Edge, edges


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what stands below its id, which kind of node of graph agents it looks like, what is said about it."""

    kind: str
    shape: str
    note: str = ""


class Shape(msgspec.Struct, frozen=True):
    """How a kind of node looks: Mermaid's brackets, Graphviz's attributes, the colours of the SVG."""

    mermaid: tuple[str, str]
    dot: str
    fill: str
    stroke: str


SHAPES = {
    "script": Shape(("[", "]"), "shape=box", "#eef2f7", "#52627a"),
    "llm": Shape(("(", ")"), "shape=box, style=rounded", "#e8f0fe", "#2b5fb8"),
    "agent": Shape(("[[", "]]"), "shape=box, peripheries=2", "#efe9fb", "#6a3fb0"),
    "approval": Shape(("{", "}"), "shape=diamond", "#fdf1d7", "#9a6a00"),
    "input": Shape(("[/", "/]"), "shape=parallelogram", "#fdf1d7", "#9a6a00"),
    "rag": Shape(("[(", ")]"), "shape=cylinder", "#e3f4ea", "#22784a"),
    "map": Shape(("{{", "}}"), "shape=hexagon", "#e2f4f5", "#146b74"),
    "end": Shape(("([", "])"), "shape=oval", "#f3f3f3", "#333333"),
}


class Line(msgspec.Struct, kw_only=True):
    """What leads from one node to another, parallel edges taken together.

    Attributes:
        dashed: no edge of it is taken as a matter of course.
        label: options, conditions and keys, where they say something.
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
    """See the module.

    Attributes:
        starts: where it begins.
        legend: what solid and dotted lines mean.
    """

    name: str
    nodes: dict[str, Box]
    lines: list[Line]
    starts: frozenset[str]
    legend: str


def picture_of(graph: Graph) -> Picture:
    """The picture of a graph agent."""
    return Picture(
        name=graph.name,
        nodes={
            id: Box(kind=node.kind, shape=node.kind, note=node.description.strip()) for id, node in graph.nodes.items()
        },
        lines=_lines(graph),
        starts=frozenset({graph.start} & graph.nodes.keys()),
        legend="solid: taken by itself   dotted: by a script's _next, a fallback, a timeout",
    )


def _lines(graph: Graph) -> list[Line]:
    together: dict[tuple[str, str], list[Edge]] = {}
    for edge in edges(graph):
        if edge.target in graph.nodes:
            together.setdefault((edge.source, edge.target), []).append(edge)
    lines: list[Line] = []
    for (source, target), group in together.items():
        solid = [edge for edge in group if not (edge.dynamic or edge.via in ("fallback", "on_timeout"))]
        words = dict.fromkeys(word for edge in solid or group if (word := _word(edge)))
        lines.append(Line(source=source, target=target, dashed=not solid, label=", ".join(words)))
    return lines


def _word(edge: Edge) -> str:
    if edge.via == "routes":
        return "" if edge.dynamic else edge.label
    return {"on_other": "other", "on_timeout": "timeout", "fallback": "fallback", "branch": "each"}.get(edge.via, "")
