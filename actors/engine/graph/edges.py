"""Declared edges of a graph, for checks, pictures and reachability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from ....protocol.graph import (
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


class DeclaredEdge(msgspec.Struct, frozen=True):
    """Edge that the file declares between two nodes.

    Attributes:
        via: the key that declares it.
        path: position of the target's id in the file.
        label: for an approval's `routes`, the option.
        dynamic: declared by a script's `routes`: taken only on the script's `_next`, and allowed to lead back.
    """

    source: str
    target: str
    via: Via
    path: Path
    label: str = ""
    dynamic: bool = False


def edges_of(node: AnyNode) -> Iterator[DeclaredEdge]:
    """Yield the edges that leave a node, in a fixed order.

    The `next` of an approval or end node has no effect and yields nothing.
    """
    base: Path = ("nodes", node.id)
    if not isinstance(node, ApprovalNode | EndNode):
        for i, target in enumerate(node.targets):
            path = (*base, "next", i) if len(node.targets) > 1 else (*base, "next")
            yield DeclaredEdge(node.id, target, "next", path)
    if isinstance(node, MapNode):
        yield DeclaredEdge(node.id, node.branch, "branch", (*base, "branch"))
    if isinstance(node, ScriptNode):
        for i, target in enumerate(node.routes):
            yield DeclaredEdge(node.id, target, "routes", (*base, "routes", i), dynamic=True)
    if isinstance(node, ApprovalNode):
        for option, target in node.routes.items():
            yield DeclaredEdge(node.id, target, "routes", (*base, "routes", option), label=option)
        yield DeclaredEdge(node.id, node.on_other, "on_other", (*base, "on_other"))
    if isinstance(node, ApprovalNode | InputNode) and node.on_timeout is not None:
        yield DeclaredEdge(node.id, node.on_timeout, "on_timeout", (*base, "on_timeout"))
    if isinstance(node, ScriptNode | LlmNode | AgentNode) and node.fallback is not None:
        yield DeclaredEdge(node.id, node.fallback, "fallback", (*base, "fallback"))


def edges(graph: Graph) -> list[DeclaredEdge]:
    """Return the declared edges of all nodes, in the order of the nodes in the file."""
    return [edge for node in graph.nodes.values() for edge in edges_of(node)]


def reachable(graph: Graph, start: str) -> set[str]:
    """Return the nodes that declared edges reach from `start`, including itself; unknown ids are omitted."""
    return set(_followed(graph, [start], stops=()))


def branch_nodes(graph: Graph, node: MapNode) -> list[str]:
    """Return the ids of a map's branch, in breadth-first order: its first node and all nodes that edges reach from it.

    Map, approval and input nodes are included, but the edges that leave them are not followed.
    """
    return _followed(graph, [node.branch], _NOT_IN_BRANCHES)


def all_branch_nodes(graph: Graph) -> set[str]:
    """Return the ids of the nodes in the branches of all maps (see `branch_nodes`)."""
    firsts = [node.branch for node in graph.nodes.values() if isinstance(node, MapNode)]
    return set(_followed(graph, firsts, _NOT_IN_BRANCHES))


_NOT_IN_BRANCHES = (MapNode, ApprovalNode, InputNode)


def _followed(graph: Graph, waiting: list[str], stops: tuple[type, ...]) -> list[str]:
    """Return the nodes reached from these, themselves included, in order; edges of `stops` nodes are not followed."""
    found: dict[str, None] = {}
    # The list grows during the loop, and the loop also visits the appended ids.
    for node_id in waiting:
        if node_id in found or node_id not in graph.nodes:
            continue
        found[node_id] = None
        if not isinstance(graph.nodes[node_id], stops):
            waiting.extend(edge.target for edge in edges_of(graph.nodes[node_id]))
    return list(found)


def find_cycles(graph: Graph) -> Iterator[list[str]]:
    """Yield cycles of edges that the run can take by default, each as `[a, b, a]`, one for every closing edge.

    A script's `routes` do not count: `_next` exists for loops that a script controls.
    """
    done: set[str] = set()
    for root in [graph.start, *graph.nodes]:
        if root in graph.nodes and root not in done:
            yield from _cycles_from(graph, root, done)


def _cycles_from(graph: Graph, root: str, done: set[str]) -> Iterator[list[str]]:
    trail: list[str] = [root]
    # An explicit stack: files with thousands of nodes would exceed Python's recursion limit.
    places = {root: 0}
    ahead = [_static_targets(graph, root)]
    while trail:
        target = next(ahead[-1], None)
        # All targets of the last node are explored: leave it.
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
