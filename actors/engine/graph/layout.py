"""Where the nodes of a graph go in a picture: layers from top to bottom, few crossings, lines with little bend.

The usual way for layered drawings (Sugiyama): set aside the lines that lead back, put every node one layer
below the last one that leads to it, give long lines a bend point in each layer they pass, order every layer by
where its neighbours are, and push things apart. Small and quick rather than perfect; agents have tens of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec

from .picture import Line, Picture

_SWEEPS = 8


class Layout(msgspec.Struct, kw_only=True):
    """Layers of node ids from top to bottom, the horizontal centre of every node, and the lines between."""

    layers: list[list[str]]
    centre: dict[str, float]
    lines: list[Line]
    width: float


def lay_out(picture: Picture, width_of: Callable[[str], float], gap: float) -> Layout:
    """A place for every node.

    Args:
        width_of: width of a node by its id, in the unit of the picture.
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


def _layers(picture: Picture, lines: list[Line]) -> dict[str, int]:
    """A layer for every node, so that all lines but the ones that lead back go down."""
    leaving: dict[str, list[Line]] = {node_id: [] for node_id in picture.nodes}
    for line in lines:
        # What is taken as a matter of course decides first what is up and what is down.
        leaving[line.source].insert(0 if not line.dashed else len(leaving[line.source]), line)
    order = _finished_last(picture, leaving)
    layer = dict.fromkeys(picture.nodes, 0)
    for node_id in order:
        for line in leaving[node_id]:
            if not line.back:
                layer[line.target] = max(layer[line.target], layer[node_id] + 1)
    return layer


def _finished_last(picture: Picture, leaving: dict[str, list[Line]]) -> list[str]:
    """The nodes so that every line leads to a later one; lines that can't are marked as leading back."""
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
    picture: Picture, lines: list[Line], layer_of: dict[str, int]
) -> tuple[list[list[str]], list[tuple[Line, list[str]]]]:
    """The rows of nodes and bend points, and for every line that leads down the chain of what it passes."""
    rows: list[list[str]] = [[] for _ in range(max(layer_of.values(), default=0) + 1)]
    for node_id in picture.nodes:
        rows[layer_of[node_id]].append(node_id)
    chains: list[tuple[Line, list[str]]] = []
    for number, line in enumerate(lines):
        if line.back:
            continue
        between = range(layer_of[line.source] + 1, layer_of[line.target])
        bends = [f"{number}:{layer}" for layer in between]  # a node id can't clash: ids of bends are never shown
        for bend, layer in zip(bends, between, strict=True):
            rows[layer].append(bend)
        chains.append((line, [line.source, *bends, line.target]))
    return rows, chains


def _neighbours(chains: list[tuple[Line, list[str]]]) -> dict[str, tuple[list[str], list[str]]]:
    """For every item of a row what it is tied to in the row above and in the row below."""
    ties: dict[str, tuple[list[str], list[str]]] = {}
    for _, chain in chains:
        for upper, lower in pairwise(chain):
            ties.setdefault(upper, ([], []))[1].append(lower)
            ties.setdefault(lower, ([], []))[0].append(upper)
    return ties


def _order(rows: list[list[str]], ties: dict[str, tuple[list[str], list[str]]]) -> None:
    """Sort every row by the mean place of its neighbours, downwards and upwards in turn."""
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
    """A horizontal centre for every item: near its neighbours, and clear of those beside it."""
    centre: dict[str, float] = {}
    for row in rows:
        edge = 0.0
        for item in row:
            centre[item] = edge + widths[item] / 2
            edge += widths[item] + gap
    # Downwards last: a node with one predecessor ends up right below it.
    for sweep in range(_SWEEPS, 0, -1):
        side = sweep % 2
        for row in rows[::-1] if side else rows:
            wanted = [_mean([centre[tie] for tie in ties.get(item, ([], []))[side]], centre[item]) for item in row]
            centre.update(zip(row, _apart(row, wanted, widths, gap), strict=True))
    left = min(x - widths[item] / 2 for item, x in centre.items())
    return {item: x - left for item, x in centre.items()}


def _apart(row: list[str], wanted: list[float], widths: dict[str, float], gap: float) -> list[float]:
    """The wanted centres, moved as little as their widths demand; the order stays."""
    needed = [(widths[a] + widths[b]) / 2 + gap for a, b in pairwise(row)]
    from_left = list(wanted)
    for i, distance in enumerate(needed):
        from_left[i + 1] = max(from_left[i + 1], from_left[i] + distance)
    from_right = list(wanted)
    for i in range(len(needed) - 1, -1, -1):
        from_right[i] = min(from_right[i], from_right[i + 1] - needed[i])
    return [(a + b) / 2 for a, b in zip(from_left, from_right, strict=True)]
