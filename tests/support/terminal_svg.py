"""A terminal's screen as an SVG picture: dark, monospaced, with its colours; no font or script of others."""

from __future__ import annotations

from itertools import groupby
from typing import Any
from xml.sax.saxutils import escape

import pyte

_WIDE, _HIGH, _ROUND = 8.4, 18, 14
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
_FIRM = "\u00a0"
"""A blank; of others some browsers draw one where there are several."""
_BACK, _FRONT = "#16181d", "#d7dae0"
_COLOURS = {
    "black": "#3b3f4a",
    "red": "#ef6b73",
    "green": "#8cc570",
    "brown": "#e2b86b",
    "blue": "#6cb0f2",
    "magenta": "#c98ae0",
    "cyan": "#5fc0c9",
    "white": _FRONT,
    "brightblack": "#858b98",
    "brightred": "#ff8f95",
    "brightgreen": "#a8dd8e",
    "brightbrown": "#f2d18f",
    "brightblue": "#93c8ff",
    "brightmagenta": "#dfaaf2",
    "brightcyan": "#86dbe3",
    "brightwhite": "#ffffff",
}


class Coloured(pyte.Screen):  # type: ignore[misc]  # pyte has no types
    """pyte's screen, which knows faint letters: they are grey here."""

    def select_graphic_rendition(self, *attributes: int, **more: bool) -> None:
        """Faint becomes grey."""
        if attributes[:2] not in ((38, 2), (48, 2)) and attributes[:1] not in ((38,), (48,)):
            attributes = tuple(90 if each == 2 else each for each in attributes)
        super().select_graphic_rendition(*attributes, **more)


def drawn(sent: str, columns: int, rows: int) -> Coloured:
    """The screen of a terminal to which a program has sent this."""
    screen = Coloured(columns, rows)
    stream = pyte.Stream(screen)
    stream.select_other_charset("G")
    stream.feed(sent)
    return screen


def rows_of(screen: Coloured) -> list[str]:
    """Its rows as text, without the empty ones below."""
    rows = [row.rstrip() for row in screen.display]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def picture(screen: Coloured) -> str:
    """The SVG."""
    rows = len(rows_of(screen))
    wide, high = round(screen.columns * _WIDE + 2 * _ROUND), rows * _HIGH + 2 * _ROUND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
        f'<rect width="100%" height="100%" rx="8" fill="{_BACK}"/>',
        f'<g font-family="{_FONT}" font-size="14" fill="{_FRONT}">',
    ]
    for number in range(rows):
        parts += _row(screen, number)
    cursor = screen.cursor
    if not cursor.hidden and cursor.y < rows:
        x, y = _ROUND + cursor.x * _WIDE, _ROUND + cursor.y * _HIGH
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{_WIDE}" height="{_HIGH}" fill="{_FRONT}" opacity=".55"/>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _row(screen: Coloured, number: int, *, at_top: bool = False) -> list[str]:
    parts: list[str] = []
    row = screen.buffer[number]
    cells = [row[column] for column in range(screen.columns)]
    column = 0
    for look, group in groupby(cells, key=_look):
        run = list(group)
        text = "".join(cell.data for cell in run)
        x, y, width = _ROUND + column * _WIDE, _ROUND + (0 if at_top else number) * _HIGH, len(run) * _WIDE
        column += len(run)
        front, back, style = look
        if back != _BACK:
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_HIGH}" fill="{back}"/>')
        if not (shown := text.rstrip()):
            continue
        begin = len(shown) - len(shown.lstrip())
        x, shown = x + begin * _WIDE, shown.lstrip()
        fill = "" if front == _FRONT else f' fill="{front}"'
        length = f' textLength="{len(shown) * _WIDE:.1f}"'
        parts.append(f'<text x="{x:.1f}" y="{y + 13}"{length}{fill}{style}>{escape(shown).replace(" ", _FIRM)}</text>')
    return parts


def _look(cell: Any) -> tuple[str, str, str]:
    front, back = _colour(cell.fg, _FRONT), _colour(cell.bg, _BACK)
    if cell.reverse:
        front, back = back, front
    style = ' font-weight="bold"' if cell.bold else ""
    style += ' font-style="italic"' if cell.italics else ""
    style += ' text-decoration="underline"' if cell.underscore else ""
    return front, back, style


def _colour(name: str, usual: str) -> str:
    if name == "default":
        return usual
    return _COLOURS.get(name) or f"#{name}"


def recording(frames: list[tuple[float, Coloured]]) -> str:
    """An SVG that shows screens one after another, and again from the first; where nothing moves, the last.

    Args:
        frames: each screen with the seconds for which it is shown, all of one size.
    """
    columns, lines = frames[0][1].columns, frames[0][1].lines
    wide, high = round(columns * _WIDE + 2 * _ROUND), lines * _HIGH + 2 * _ROUND
    rows: dict[str, str] = {}  # each row once, by its name: screens have most of theirs in common
    shown, total, at = [], sum(seconds for seconds, _ in frames), 0.0
    for number, (seconds, screen) in enumerate(frames, 1):
        begin, end, at = at / total, (at + seconds) / total, at + seconds
        is_last = number == len(frames)
        times, values = (f"0;{begin:.4f}", "hidden;visible") if begin else ("0", "visible")
        if not is_last:
            times, values = f"{times};{end:.4f}", f"{values};hidden"
        shown.append(f'<g visibility="{"visible" if is_last else "hidden"}">')
        shown.append(
            f'<animate attributeName="visibility" values="{values}" keyTimes="{times}" dur="{total:.2f}s" '
            'calcMode="discrete" repeatCount="indefinite"/>'
        )
        for line in range(lines):
            drawing = "".join(_row(screen, line, at_top=True))
            if drawing:
                name = rows.setdefault(drawing, f"r{len(rows)}")
                shown.append(f'<use href="#{name}" y="{line * _HIGH}"/>')
        shown.append("</g>")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
            "<defs>",
            *(f'<g id="{name}">{drawing}</g>' for drawing, name in rows.items()),
            "</defs>",
            f'<rect width="100%" height="100%" rx="8" fill="{_BACK}"/>',
            f'<g font-family="{_FONT}" font-size="14" fill="{_FRONT}">',
            *shown,
            "</g>",
            "</svg>",
            "",
        ]
    )
