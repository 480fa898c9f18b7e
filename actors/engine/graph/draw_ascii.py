"""Graph pictures in plain characters: boxes in layers, lines between them, and a list of edges that lead back.

Every line has a row of its own between two layers, so that no two lines share a horizontal stretch:

        +-------+
        | plan  |
        | llm   |
        +-------+
            |
       +----+----+        solid:  | - +
       v         :        dashed: : . +
"""

from __future__ import annotations

from .layout import Layout, lay_out
from .picture import Picture, PictureLine

_GAP = 3.0


def ascii_picture(picture: Picture) -> str:
    """Return the picture, as wide as its widest layer."""
    layout = lay_out(picture, lambda node_id: float(_width(picture, node_id)), _GAP)
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


def _width(picture: Picture, node_id: str) -> int:
    return max(len(node_id), len(picture.nodes[node_id].kind) + 2 * (node_id in picture.starts)) + 4


def _box(canvas: _Canvas, picture: Picture, node_id: str, centre: int, row: int) -> None:
    width = _width(picture, node_id)
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
