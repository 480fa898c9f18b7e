"""The edges of a graph, as the file declares them: for the checks, the pictures, and whoever asks who leads where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from ....protocol.graph.model import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    Graph,
    InputNode,
    LlmNode,
    MapNode,
    ScriptNode,
)
from ....protocol.tree import Path

Via: TypeAlias = Literal["next", "routes", "on_other", "on_timeout", "fallback", "branch"]


class Edge(msgspec.Struct, frozen=True):
    """One declared way from a node to another.

    Attributes:
        via: the key that declares it.
        label: for an approval's `routes`, the option.
        path: where the target's id stands in the file.
        dynamic: declared by a script's `routes`: taken only if the script says so, and free to lead back.
    """

    source: str
    target: str
    via: Via
    path: Path
    label: str = ""
    dynamic: bool = False


def edges_of(node: AnyNode) -> Iterator[Edge]:
    """The edges that leave a node, in a fixed order. The `next` of an approval or end node is none."""
    base: Path = ("nodes", node.id)
    if not isinstance(node, ApprovalNode | EndNode):
        for i, target in enumerate(node.targets):
            path = (*base, "next", i) if len(node.targets) > 1 else (*base, "next")
            yield Edge(node.id, target, "next", path)
    if isinstance(node, MapNode):
        yield Edge(node.id, node.branch, "branch", (*base, "branch"))
    if isinstance(node, ScriptNode):
        for i, target in enumerate(node.routes):
            yield Edge(node.id, target, "routes", (*base, "routes", i), dynamic=True)
    if isinstance(node, ApprovalNode):
        for option, target in node.routes.items():
            yield Edge(node.id, target, "routes", (*base, "routes", option), label=option)
        yield Edge(node.id, node.on_other, "on_other", (*base, "on_other"))
    if isinstance(node, ApprovalNode | InputNode) and node.on_timeout is not None:
        yield Edge(node.id, node.on_timeout, "on_timeout", (*base, "on_timeout"))
    if isinstance(node, ScriptNode | LlmNode | AgentNode) and node.fallback is not None:
        yield Edge(node.id, node.fallback, "fallback", (*base, "fallback"))


def edges(graph: Graph) -> list[Edge]:
    """All edges, node by node in the file's order."""
    return [edge for node in graph.nodes.values() for edge in edges_of(node)]


def reachable(graph: Graph, start: str) -> set[str]:
    """The nodes that declared edges lead to from `start`, itself included; ids that do not exist are left out."""
    return set(_followed(graph, [start], stops=()))


def branch_nodes(graph: Graph, node: MapNode) -> list[str]:
    """The ids of a map's branch in the order they are reached: its first node, and where that one leads."""
    return _followed(graph, [node.branch], _NOT_IN_BRANCHES)


def all_branch_nodes(graph: Graph) -> set[str]:
    """The ids of the branches of all maps."""
    firsts = [node.branch for node in graph.nodes.values() if isinstance(node, MapNode)]
    return set(_followed(graph, firsts, _NOT_IN_BRANCHES))


_NOT_IN_BRANCHES = (MapNode, ApprovalNode, InputNode)


def _followed(graph: Graph, waiting: list[str], stops: tuple[type, ...]) -> list[str]:
    """Where these lead, themselves included, as they are reached; from nodes of `stops` nothing is followed."""
    found: dict[str, None] = {}
    for node_id in waiting:
        if node_id in found or node_id not in graph.nodes:
            continue
        found[node_id] = None
        if not isinstance(graph.nodes[node_id], stops):
            waiting.extend(edge.target for edge in edges_of(graph.nodes[node_id]))
    return list(found)


def find_cycles(graph: Graph) -> Iterator[list[str]]:
    """Circles of edges that are always open to be taken, each as `[a, b, a]`; one for every closing edge found.

    A script's `routes` don't count: a loop that a script decides on is what `_next` is for.
    """
    done: set[str] = set()
    for root in [graph.start, *graph.nodes]:
        if root in graph.nodes and root not in done:
            yield from _cycles_from(graph, root, done)


def _cycles_from(graph: Graph, root: str, done: set[str]) -> Iterator[list[str]]:
    trail: list[str] = [root]
    places = {root: 0}
    ahead = [_static_targets(graph, root)]
    while trail:
        target = next(ahead[-1], None)
        if target is None:
            over = trail.pop()
            done.add(over)
            del places[over]
            ahead.pop()
        elif target in places:
            yield [*trail[places[target] :], target]
        elif target not in done:
            places[target] = len(trail)
            trail.append(target)
            ahead.append(_static_targets(graph, target))


def _static_targets(graph: Graph, node_id: str) -> Iterator[str]:
    targets = [edge.target for edge in edges_of(graph.nodes[node_id]) if not edge.dynamic]
    return iter([target for target in dict.fromkeys(targets) if target in graph.nodes])
