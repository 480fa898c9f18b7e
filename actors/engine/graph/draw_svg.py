"""Graph pictures as one self-contained SVG, without scripts, fonts or other files."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from .layout import Layout, lay_out
from .picture import SHAPES, Picture, PictureLine

_HEIGHT = 44.0  # height of a node
_ROW = 104.0  # from the top of a layer to the top of the next
_GAP = 34.0
_MARGIN = 28.0
_CHARACTER = 7.6  # width of an average character at the font size of ids
_BACK = 16.0  # distance between lines that lead back

_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)


def svg_picture(picture: Picture) -> str:
    """Return the picture as an SVG document."""
    layout = lay_out(picture, lambda node_id: _width(picture, node_id), _GAP)
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


def _width(picture: Picture, node_id: str) -> float:
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
        f"{_shape(shape, x - _width(picture, node_id) / 2, y, _width(picture, node_id), style)}"
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
    start_x = layout.centre[line.source] + _width(picture, line.source) / 2
    end_x = layout.centre[line.target] + _width(picture, line.target) / 2
    start_y, end_y = top[line.source] + _HEIGHT * 0.7, top[line.target] + _HEIGHT * 0.3
    path = (
        f"M{start_x:.1f} {start_y:.1f} H{lane - 8:.1f} Q{lane:.1f} {start_y:.1f} {lane:.1f} {start_y - 8:.1f} "
        f"V{end_y + 8:.1f} Q{lane:.1f} {end_y:.1f} {lane - 8:.1f} {end_y:.1f} H{end_x + 2:.1f}"
    )
    return path, ((start_x + lane) / 2, start_y - 4)
