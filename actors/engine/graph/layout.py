"""Layered layout of a graph picture: layers from top to bottom, few crossings, lines with few bends.

Sugiyama's method: set aside the lines that lead back, and place every node one layer below its last predecessor.
Give long lines a bend point in each layer that they pass. Order every layer by the positions of its neighbours, and
separate overlapping nodes. The implementation prefers speed to an optimal result, because agents have tens of
nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec

from .picture import Picture, PictureLine

_SWEEPS = 8


class Layout(msgspec.Struct, kw_only=True):
    """Positions in a picture: layers of node ids from top to bottom, horizontal centres of the nodes, and lines."""

    layers: list[list[str]]
    centre: dict[str, float]
    lines: list[PictureLine]
    width: float


def lay_out(picture: Picture, width_of: Callable[[str], float], gap: float) -> Layout:
    """Return the positions of all nodes.

    Args:
        width_of: returns the width of a node, in the unit of the picture.
        gap: free space between neighbours, in the same unit.
    """
    lines = picture.lines
    layer_of = _layers(picture, lines)
    rows, chains = _with_bends(picture, lines, layer_of)
    neighbours = _neighbours(chains)
    _order(rows, neighbours)
    widths = {item: width_of(item) if item in picture.nodes else 1.0 for row in rows for item in row}
    centre = _place(rows, neighbours, widths, gap)
    for line, chain in chains:
        line.bends = [centre[item] for item in chain[1:-1]]
    return Layout(
        layers=[[item for item in row if item in picture.nodes] for row in rows],
        centre={node_id: centre[node_id] for node_id in picture.nodes},
        lines=lines,
        width=max(centre[item] + widths[item] / 2 for item in centre),
    )


def _layers(picture: Picture, lines: list[PictureLine]) -> dict[str, int]:
    """Return a layer for every node, such that all lines go down, except lines that lead back."""
    leaving: dict[str, list[PictureLine]] = {node_id: [] for node_id in picture.nodes}
    for line in lines:
        # Solid lines first: the main path must define up and down, not a fallback.
        leaving[line.source].insert(0 if not line.dashed else len(leaving[line.source]), line)
    order = _finished_last(picture, leaving)
    layer = dict.fromkeys(picture.nodes, 0)
    for node_id in order:
        for line in leaving[node_id]:
            if not line.back:
                layer[line.target] = max(layer[line.target], layer[node_id] + 1)
    return layer


def _finished_last(picture: Picture, leaving: dict[str, list[PictureLine]]) -> list[str]:
    """Return the nodes in topological order; mark lines that violate it as leading back."""
    finished: list[str] = []
    state: dict[str, str] = {}
    first = [id for id in picture.nodes if id in picture.starts]
    for root in [*first, *picture.nodes]:
        if root in state:
            continue
        state[root] = "open"
        trail = [(root, iter(leaving[root]))]
        while trail:
            node_id, ahead = trail[-1]
            line = next(ahead, None)
            if line is None:
                state[node_id] = "done"
                finished.append(node_id)
                trail.pop()
            elif state.get(line.target) == "open":
                line.back = True
            elif line.target not in state:
                state[line.target] = "open"
                trail.append((line.target, iter(leaving[line.target])))
    return finished[::-1]


def _with_bends(
    picture: Picture, lines: list[PictureLine], layer_of: dict[str, int]
) -> tuple[list[list[str]], list[tuple[PictureLine, list[str]]]]:
    """Return the rows of nodes and bend points, and the chain of items that each line passes on its way down."""
    rows: list[list[str]] = [[] for _ in range(max(layer_of.values(), default=0) + 1)]
    for node_id in picture.nodes:
        rows[layer_of[node_id]].append(node_id)
    chains: list[tuple[PictureLine, list[str]]] = []
    for number, line in enumerate(lines):
        if line.back:
            continue
        between = range(layer_of[line.source] + 1, layer_of[line.target])
        # node ids cannot clash with this, and bends are never printed
        bends = [f"{number}:{layer}" for layer in between]
        for bend, layer in zip(bends, between, strict=True):
            rows[layer].append(bend)
        chains.append((line, [line.source, *bends, line.target]))
    return rows, chains


def _neighbours(chains: list[tuple[PictureLine, list[str]]]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the connected items in the row above and in the row below, for every item."""
    ties: dict[str, tuple[list[str], list[str]]] = {}
    for _, chain in chains:
        for upper, lower in pairwise(chain):
            ties.setdefault(upper, ([], []))[1].append(lower)
            ties.setdefault(lower, ([], []))[0].append(upper)
    return ties


def _order(rows: list[list[str]], ties: dict[str, tuple[list[str], list[str]]]) -> None:
    """Sort every row by the mean position of its neighbours, in alternating downward and upward sweeps."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        sequence = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for index in sequence:
            fixed = {item: place for place, item in enumerate(rows[index - 1 if down else index + 1])}
            side = 0 if down else 1
            own = {item: place for place, item in enumerate(rows[index])}
            keys = {
                item: _mean([fixed[tie] for tie in ties.get(item, ([], []))[side]], own[item]) for item in rows[index]
            }
            rows[index].sort(key=keys.__getitem__)


def _mean(places: list[float] | list[int], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _place(
    rows: list[list[str]], ties: dict[str, tuple[list[str], list[str]]], widths: dict[str, float], gap: float
) -> dict[str, float]:
    """Return a horizontal centre for every item, near its neighbours and clear of the items next to it."""
    centre: dict[str, float] = {}
    for row in rows:
        edge = 0.0
        for item in row:
            centre[item] = edge + widths[item] / 2
            edge += widths[item] + gap
    # The last sweep goes down, so that a node with one predecessor is right below it.
    for sweep in range(_SWEEPS, 0, -1):
        side = sweep % 2
        for row in rows[::-1] if side else rows:
            wanted = [_mean([centre[tie] for tie in ties.get(item, ([], []))[side]], centre[item]) for item in row]
            centre.update(zip(row, _apart(row, wanted, widths, gap), strict=True))
    left = min(x - widths[item] / 2 for item, x in centre.items())
    return {item: x - left for item, x in centre.items()}


def _apart(row: list[str], wanted: list[float], widths: dict[str, float], gap: float) -> list[float]:
    """Return the wanted centres, moved as little as the widths require; the order does not change."""
    needed = [(widths[a] + widths[b]) / 2 + gap for a, b in pairwise(row)]
    from_left = list(wanted)
    for i, distance in enumerate(needed):
        from_left[i + 1] = max(from_left[i + 1], from_left[i] + distance)
    from_right = list(wanted)
    for i in range(len(needed) - 1, -1, -1):
        from_right[i] = min(from_right[i], from_right[i + 1] - needed[i])
    return [(a + b) / 2 for a, b in zip(from_left, from_right, strict=True)]
