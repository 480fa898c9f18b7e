"""Picture of a workflow: its nodes, and the conditions of its edges.

A solid line is an edge without a condition, a dotted line has one. The label marks edges that never trigger their
target. Cycles are drawn as they are.
"""

from __future__ import annotations

from ....protocol.workflow.model import Always, Edge, FunctionCondition, Graph, KeywordCondition, Never, RegexCondition
from ..graph.draw import Box, Picture, PictureLine

_SHAPES = {
    "agent": "llm",
    "human": "input",
    "subgraph": "agent",
    "loop_counter": "approval",
    "loop_timer": "approval",
}
LONGEST = 40
"""Most characters of a label."""


def picture_of(name: str, graph: Graph) -> Picture:
    """Return the picture of a workflow's graph; a subgraph is a single box."""
    return Picture(
        name=name,
        nodes={
            node.id: Box(kind=node.type, shape=_SHAPES.get(node.type, "script"), note=(node.description or "").strip())
            for node in graph.nodes
        },
        lines=_lines(graph),
        starts=frozenset(graph.start),
        legend="solid: always taken   dotted: on a condition",
    )


def _lines(graph: Graph) -> list[PictureLine]:
    together: dict[tuple[str, str], list[Edge]] = {}
    for edge in graph.edges:
        together.setdefault((edge.source, edge.target), []).append(edge)
    lines = []
    for (source, target), group in together.items():
        always = any(isinstance(edge.condition, Always) for edge in group)
        words = dict.fromkeys(word for edge in group for word in _words(edge))
        label = ", ".join(words)
        label = label if len(label) <= LONGEST else label[: LONGEST - 3] + "..."
        lines.append(PictureLine(source=source, target=target, dashed=not always, label=label))
    return lines


def _words(edge: Edge) -> list[str]:
    words = []
    match edge.condition:
        case Never():
            words.append("never")
        case FunctionCondition(name=name):
            words.append(f"{name}()")
        case RegexCondition(pattern=pattern):
            words.append(f"/{pattern}/")
        case KeywordCondition() as keywords:
            words += [*keywords.any, *keywords.all, *(f"/{each}/" for each in keywords.regex)]
            words += [f"no {word}" for word in keywords.none]
    if edge.dynamic is not None:
        words.append("each" if edge.dynamic.type == "map" else "tree")
    if not edge.trigger:
        words.append("no trigger")
    return words
