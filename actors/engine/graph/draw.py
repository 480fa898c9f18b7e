"""Picture of a graph as Mermaid and Graphviz text, as plain characters, and as one self-contained SVG.

`picture_of` makes the `Picture` of a graph agent: boxes, and lines between them. `workflow.picture` makes one of a
DevAll workflow. `FORMS` has a function for each format.

A solid line is an edge that the run takes by default. A dashed line is an optional edge: a script's `_next`, a
fallback, a timeout. The shape of a node shows its type (`SHAPES`).

Mermaid and Graphviz arrange the nodes themselves. The other formats share one layout in layers (`lay_out`), with few
crossings and lines with few bends. It is Sugiyama's method: set aside the lines that lead back, and place every node
one layer below its last predecessor. Give long lines a bend point in each layer that they pass. Order every layer by
the positions of its neighbours, and separate overlapping nodes. The implementation prefers speed to an optimal result,
because agents have tens of nodes.

In plain characters, every line has a row of its own between two layers, so that no two lines share a horizontal
stretch; edges that lead back are listed below:

        +-------+
        | plan  |
        | llm   |
        +-------+
            |
       +----+----+        solid:  | - +
       v         :        dashed: : . +
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

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
        dashed: all its edges are optional (see the module).
        label: options, conditions and keys of its edges.
        back: the line leads to a layer above or to its own node.
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


# --- layout -----------------------------------------------------------------------------------------------


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


# --- plain characters -------------------------------------------------------------------------------------


_TEXT_GAP = 3.0


def ascii_picture(picture: Picture) -> str:
    """Return the picture in ASCII, as wide as its widest layer, with the lines that lead back listed below it."""
    layout = lay_out(picture, lambda node_id: float(_text_width(picture, node_id)), _TEXT_GAP)
    canvas = _Canvas()
    row = 0
    passing: list[tuple[PictureLine, int]] = []
    for number, layer in enumerate(layout.layers):
        for line, step in passing:
            canvas.vertical(int(line.bends[step]), row, row + 3, dashed=line.dashed)
        for node_id in layer:
            _box(canvas, picture, node_id, int(layout.centre[node_id]), row)
        row += 4
        crossing = _crossing(layout, layer, passing)
        if number + 1 < len(layout.layers):
            row = _channel(canvas, crossing, row)
        passing = [(line, step) for line, step, _, _ in crossing if step < len(line.bends)]
    notes = [
        f"{line.source} {'..>' if line.dashed else '-->'} {line.target}" + (f"  ({line.label})" if line.label else "")
        for line in layout.lines
        if line.back
    ]
    drawn = canvas.text()
    if notes:
        drawn += "\n\nback:\n" + "\n".join(f"  {note}" for note in notes)
    return f"{picture.name}\n\n{drawn}\n\n{picture.legend}\n"


def _text_width(picture: Picture, node_id: str) -> int:
    return max(len(node_id), len(picture.nodes[node_id].kind) + 2 * (node_id in picture.starts)) + 4


def _box(canvas: _Canvas, picture: Picture, node_id: str, centre: int, row: int) -> None:
    width = _text_width(picture, node_id)
    left = centre - width // 2
    kind, shape = picture.nodes[node_id].kind, picture.nodes[node_id].shape
    if node_id in picture.starts:
        kind = f"> {kind}"
    side, corner = ("(", "-") if shape == "end" else ("|", "+")
    other = ")" if side == "(" else "|"
    border = "=" if shape == "agent" else "-"
    canvas.write(left, row, corner + border * (width - 2) + corner)
    canvas.write(left, row + 1, f"{side} {node_id.ljust(width - 4)} {other}")
    canvas.write(left, row + 2, f"{side} {kind.ljust(width - 4)} {other}")
    canvas.write(left, row + 3, corner + border * (width - 2) + corner)


def _crossing(
    layout: Layout, layer: list[str], passing: list[tuple[PictureLine, int]]
) -> list[tuple[PictureLine, int, int, int]]:
    """Return the lines from this layer to the next: (line, its next bend, column above, column below)."""
    found: list[tuple[PictureLine, int, int, int]] = []
    for line in layout.lines:
        if line.source in layer and not line.back:
            there = line.bends[0] if line.bends else layout.centre[line.target]
            found.append((line, 0, int(layout.centre[line.source]), int(there)))
    for line, step in passing:
        last = step + 1 >= len(line.bends)
        there = layout.centre[line.target] if last else line.bends[step + 1]
        found.append((line, step + 1, int(line.bends[step]), int(there)))
    return found


def _channel(canvas: _Canvas, crossing: list[tuple[PictureLine, int, int, int]], row: int) -> int:
    """Draw the lines between two layers; return the first row of the next layer."""
    turning = sorted((entry for entry in crossing if entry[2] != entry[3]), key=lambda entry: (entry[2], entry[3]))
    # Lines to the left turn in order from the left, lines to the right in order from the right: fewer crossings.
    order = [entry for entry in turning if entry[3] < entry[2]] + [entry for entry in turning if entry[3] > entry[2]][
        ::-1
    ]
    foot = row + 1 + len(order) + 1
    tracks = {id(entry): row + 1 + number for number, entry in enumerate(order)}
    # Dashed lines first, so that solid lines are on top.
    for entry in sorted(crossing, key=lambda entry: entry[0].dashed, reverse=True):
        line, step, here, there = entry
        turn = tracks.get(id(entry))
        if turn is None:
            canvas.vertical(here, row, foot - 1, dashed=line.dashed)
        else:
            canvas.vertical(here, row, turn, dashed=line.dashed)
            canvas.vertical(there, turn, foot - 1, dashed=line.dashed)
            canvas.horizontal(here, there, turn, dashed=line.dashed)
        if step >= len(line.bends):
            canvas.write(there, foot, "v")
            if line.label:
                canvas.label(there + 2, foot, line.label)
        else:
            canvas.vertical(there, foot, foot, dashed=line.dashed)
    return foot + 1


class _Canvas:
    """Grid of characters."""

    def __init__(self) -> None:
        self.rows: list[dict[int, str]] = []

    def put(self, column: int, row: int, character: str) -> None:
        while len(self.rows) <= row:
            self.rows.append({})
        self.rows[row][column] = character

    def at(self, column: int, row: int) -> str:
        return self.rows[row].get(column, " ") if row < len(self.rows) else " "

    def write(self, column: int, row: int, text: str) -> None:
        for offset, character in enumerate(text):
            self.put(column + offset, row, character)

    def label(self, column: int, row: int, text: str) -> None:
        """Write text if there is room for it; otherwise omit it."""
        if all(self.at(column + offset - 1, row) == " " for offset in range(len(text) + 2)):
            self.write(column, row, text)

    def vertical(self, column: int, first: int, last: int, *, dashed: bool) -> None:
        for row in range(first, last + 1):
            if self.at(column, row) != "+":
                self.put(column, row, ":" if dashed else "|")

    def horizontal(self, one: int, other: int, row: int, *, dashed: bool) -> None:
        left, right = min(one, other), max(one, other)
        for column in range(left + 1, right):
            if self.at(column, row) == " ":
                self.put(column, row, "." if dashed else "-")
        self.put(left, row, "+")
        self.put(right, row, "+")

    def text(self) -> str:
        left = min((column for row in self.rows for column in row), default=0)
        return "\n".join(
            "".join(row.get(column, " ") for column in range(left, max(row, default=left - 1) + 1)).rstrip()
            for row in self.rows
        )


# --- SVG --------------------------------------------------------------------------------------------------


_HEIGHT = 44.0  # height of a node
_ROW = 104.0  # from the top of a layer to the top of the next
_SVG_GAP = 34.0
_MARGIN = 28.0
_CHARACTER = 7.6  # width of an average character at the font size of ids
_BACK = 16.0  # distance between lines that lead back

_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)


def svg_picture(picture: Picture) -> str:
    """Return the picture as an SVG document."""
    layout = lay_out(picture, lambda node_id: _svg_width(picture, node_id), _SVG_GAP)
    top = {node_id: row * _ROW for row, layer in enumerate(layout.layers) for node_id in layer}
    backs = [line for line in layout.lines if line.back]
    width = layout.width + 2 * _MARGIN + (len(backs) + 1) * _BACK * bool(backs)
    height = len(layout.layers) * _ROW - (_ROW - _HEIGHT) + 2 * _MARGIN + 18
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(picture.name)}</title>",
        _ARROW,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="18" font-weight="600" fill="#222">{escape(picture.name)}</text>',
        f'<g transform="translate({_MARGIN} {_MARGIN + 8})">',
    ]
    parts += [_line(picture, layout, top, line, backs) for line in layout.lines]
    parts += [_node(picture, node_id, layout.centre[node_id], top[node_id]) for node_id in picture.nodes]
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _svg_width(picture: Picture, node_id: str) -> float:
    extra = 56 if picture.nodes[node_id].shape in ("approval", "map", "input") else 30
    return max(80.0, len(node_id) * _CHARACTER + extra)


def _node(picture: Picture, node_id: str, x: float, y: float) -> str:
    kind, shape = picture.nodes[node_id].kind, picture.nodes[node_id].shape
    fill, stroke = SHAPES[shape].fill, SHAPES[shape].stroke
    weight = 2.6 if node_id in picture.starts else 1.3
    style = f'fill="{fill}" stroke="{stroke}" stroke-width="{weight}"'
    note = picture.nodes[node_id].note
    title = f"<title>{escape(note)}</title>" if note else ""
    return (
        f"<g id={quoteattr('node-' + node_id)}>{title}"
        f"{_shape(shape, x - _svg_width(picture, node_id) / 2, y, _svg_width(picture, node_id), style)}"
        f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle" fill="#1a1a1a">{escape(node_id)}</text>'
        f'<text x="{x:.1f}" y="{y + 35:.1f}" text-anchor="middle" font-size="10" fill="{stroke}">{kind}</text></g>'
    )


def _shape(kind: str, x: float, y: float, w: float, style: str) -> str:
    h = _HEIGHT
    if kind == "llm":
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" rx="10" {style}/>'
    if kind == "end":
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" rx="{h / 2}" {style}/>'
    if kind == "agent":
        inner = f'<rect x="{x + 4:.1f}" y="{y + 4:.1f}" width="{w - 8:.1f}" height="{h - 8}" {style}/>'
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" {style}/>{inner}'
    if kind == "rag":
        start, half = f"M{x:.1f} {y + 6:.1f}", w / 2
        body = f"{start} a{half:.1f} 6 0 0 1 {w:.1f} 0 v{h - 12} a{half:.1f} 6 0 0 1 {-w:.1f} 0 z"
        rim = f"{start} a{half:.1f} 6 0 0 0 {w:.1f} 0"
        return f'<path d="{body}" {style}/><path d="{rim}" {style}/>'
    corners = {
        "approval": [(0, h / 2), (18, 0), (w - 18, 0), (w, h / 2), (w - 18, h), (18, h)],
        "input": [(14, 0), (w, 0), (w - 14, h), (0, h)],
        "map": [(0, 0), (w - 12, 0), (w, 12), (w, h), (12, h), (0, h - 12)],
    }.get(kind, [(0, 0), (w, 0), (w, h), (0, h)])
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {style}/>'


def _line(picture: Picture, layout: Layout, top: dict[str, float], line: PictureLine, backs: list[PictureLine]) -> str:
    if line.back:
        path, label_at = _way_back(picture, layout, top, line, backs)
    else:
        path, label_at = _way_down(layout, top, line)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    text = ""
    if line.label:
        x, y = label_at
        text = (
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="10.5" fill="#444" text-anchor="middle" '
            f'stroke="#ffffff" stroke-width="4" paint-order="stroke">{escape(line.label)}</text>'
        )
    return f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.3"{dash} marker-end="url(#arrow)"/>{text}'


def _way_down(layout: Layout, top: dict[str, float], line: PictureLine) -> tuple[str, tuple[float, float]]:
    """Return the path from the source's foot through its bends to the target's head, and the label position."""
    x, y = layout.centre[line.source], top[line.source] + _HEIGHT
    stops = [
        *((bend, top[line.source] + (row + 1) * _ROW) for row, bend in enumerate(line.bends)),
        (layout.centre[line.target], top[line.target]),
    ]
    parts = [f"M{x:.1f} {y:.1f}"]
    first = stops[0]
    label_at = ((x + first[0]) / 2, (y + first[1]) / 2 + 4)
    for number, (to_x, to_y) in enumerate(stops):
        middle = (y + to_y) / 2
        parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
        if number < len(stops) - 1:  # straight past the nodes of the layer between
            y += _HEIGHT
            parts.append(f"V{y:.1f}")
    return " ".join(parts), label_at


def _way_back(
    picture: Picture, layout: Layout, top: dict[str, float], line: PictureLine, backs: list[PictureLine]
) -> tuple[str, tuple[float, float]]:
    """Return the path of a line that leads back, and the label position.

    It leaves the source at its right side, runs up the right edge of the picture, and enters the target's right
    side.
    """
    lane = layout.width + (backs.index(line) + 1) * _BACK
    start_x = layout.centre[line.source] + _svg_width(picture, line.source) / 2
    end_x = layout.centre[line.target] + _svg_width(picture, line.target) / 2
    start_y, end_y = top[line.source] + _HEIGHT * 0.7, top[line.target] + _HEIGHT * 0.3
    path = (
        f"M{start_x:.1f} {start_y:.1f} H{lane - 8:.1f} Q{lane:.1f} {start_y:.1f} {lane:.1f} {start_y - 8:.1f} "
        f"V{end_y + 8:.1f} Q{lane:.1f} {end_y:.1f} {lane - 8:.1f} {end_y:.1f} H{end_x + 2:.1f}"
    )
    return path, ((start_x + lane) / 2, start_y - 4)


# --- Mermaid and Graphviz ---------------------------------------------------------------------------------


def mermaid(picture: Picture) -> str:
    """Return a Mermaid flowchart, which GitHub and other Markdown readers render."""
    names = {node_id: f"n{number}" for number, node_id in enumerate(picture.nodes)}
    lines = ["flowchart TD"]
    for node_id, node in picture.nodes.items():
        opening, closing = SHAPES[node.shape].mermaid
        lines.append(f'    {names[node_id]}{opening}"{_mermaid_text(node_id)}<br/><i>{node.kind}</i>"{closing}')
    for line in picture.lines:
        arrow = "-.->" if line.dashed else "-->"
        label = f'|"{_mermaid_text(line.label)}"|' if line.label else ""
        lines.append(f"    {names[line.source]} {arrow}{label} {names[line.target]}")
    lines += [f"    style {names[id]} stroke-width:3px" for id in names if id in picture.starts]
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    """Escape text for use inside quotes; Mermaid accepts only its own escapes."""
    # `#` first: the other escapes contain it.
    for character, escaped in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(character, escaped)
    return text


def dot(picture: Picture) -> str:
    """Return the picture as a Graphviz digraph, which Graphviz lays out itself."""
    lines = [f"digraph {_dot_text(picture.name)} {{", "    rankdir=TB;", '    node [fontname="sans-serif"];']
    for node_id, node in picture.nodes.items():
        width = ", penwidth=2.5" if node_id in picture.starts else ""
        label = _dot_text(f"{node_id}\n{node.kind}")
        lines.append(f"    {_dot_text(node_id)} [label={label}, {SHAPES[node.shape].dot}{width}];")
    for line in picture.lines:
        marks = [f"label={_dot_text(line.label)}"] if line.label else []
        marks += ["style=dashed"] if line.dashed else []
        suffix = f" [{', '.join(marks)}]" if marks else ""
        lines.append(f"    {_dot_text(line.source)} -> {_dot_text(line.target)}{suffix};")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


FORMS: dict[str, Callable[[Picture], str]] = {
    "mermaid": mermaid,
    "dot": dot,
    "svg": svg_picture,
    "ascii": ascii_picture,
}
"""Formats of `callboard graph -o`; each returns text with a newline at its end."""
