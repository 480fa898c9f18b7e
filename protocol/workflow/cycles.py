"""The cycles of a graph: its strongly connected components, found without recursion.

All edges count here, also edges with `trigger: false`, because DevAll orders its nodes by them, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from .model import Graph


def successors(ids: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return for every node its successors, in the order of the edges; edges with an unknown node are skipped."""
    found: dict[str, list[str]] = {key: [] for key in ids}
    for source, target in pairs:
        if source in found and target in found:
            found[source].append(target)
    return found


def components(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return Tarjan's strongly connected components; members and components have the order of `after`."""
    order = {key: i for i, key in enumerate(after)}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in after:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        # An explicit stack in place of recursion: DevAll raises RecursionError for a chain of 1,100 nodes.
        work = [(root, iter(after[root]))]
        while work:
            node, rest = work[-1]
            for child in rest:
                if child not in number:
                    number[child] = low[child] = len(number)
                    stack.append(child)
                    on_stack.add(child)
                    work.append((child, iter(after[child])))
                    break
                if child in on_stack:
                    low[node] = min(low[node], number[child])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == number[node]:
                    members: list[str] = []
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    found.append(sorted(members, key=order.__getitem__))
    return sorted(found, key=lambda members: order[members[0]])


def cyclic(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the components that contain a cycle: several nodes, or one with an edge to itself."""
    return [members for members in components(after) if len(members) > 1 or members[0] in after[members[0]]]


def cycles_of(graph: Graph) -> list[list[str]]:
    """Return the cycles of a graph, each as the ids of its nodes in the order of the file."""
    return cyclic(successors((n.id for n in graph.nodes), ((e.source, e.target) for e in graph.edges)))


def reached(after: Mapping[str, Sequence[str]], start: Collection[str]) -> set[str]:
    """Return the nodes that can be reached from `start`, with the start nodes included."""
    seen = {key for key in start if key in after}
    todo = list(seen)
    while todo:
        for child in after[todo.pop()]:
            if child not in seen:
                seen.add(child)
                todo.append(child)
    return seen
