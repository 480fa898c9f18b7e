"""Pictures of a graph as Mermaid and Graphviz text; `draw_ascii` and `draw_svg` draw plain characters and SVG.

A solid line is an edge that the run takes by default. A dashed line is an optional edge: a script's `_next`, a
fallback, a timeout. The shape of a node shows its type.
"""

from __future__ import annotations

from collections.abc import Callable

from .draw_ascii import ascii_picture
from .draw_svg import svg_picture
from .layout import lay_out
from .picture import SHAPES, Picture


def mermaid(picture: Picture) -> str:
    """Return a Mermaid flowchart, which GitHub and other Markdown readers render."""
    names = {node_id: f"n{number}" for number, node_id in enumerate(picture.nodes)}
    lines = ["flowchart TD"]
    for node_id, node in picture.nodes.items():
        opening, closing = SHAPES[node.shape].mermaid
        lines.append(f'    {names[node_id]}{opening}"{_mermaid_text(node_id)}<br/><i>{node.kind}</i>"{closing}')
    for line in lay_out(picture, lambda _: 1.0, 1.0).lines:
        arrow = "-.->" if line.dashed else "-->"
        label = f'|"{_mermaid_text(line.label)}"|' if line.label else ""
        lines.append(f"    {names[line.source]} {arrow}{label} {names[line.target]}")
    lines += [f"    style {names[id]} stroke-width:3px" for id in names if id in picture.starts]
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    """Escape text for use inside quotes; Mermaid accepts only its own escapes."""
    for character, escape in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(character, escape)
    return text


def dot(picture: Picture) -> str:
    """Return Graphviz text."""
    lines = [f"digraph {_dot_text(picture.name)} {{", "    rankdir=TB;", '    node [fontname="sans-serif"];']
    for node_id, node in picture.nodes.items():
        width = ", penwidth=2.5" if node_id in picture.starts else ""
        label = _dot_text(f"{node_id}\n{node.kind}")
        lines.append(f"    {_dot_text(node_id)} [label={label}, {SHAPES[node.shape].dot}{width}];")
    for line in lay_out(picture, lambda _: 1.0, 1.0).lines:
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
