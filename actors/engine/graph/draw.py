"""Pictures of a graph: Mermaid and Graphviz text here, plain characters and SVG next door.

In all of them a solid line is a way the run takes by itself, and a dashed one a way it may take: a script's
`_next`, a fallback, a timeout. The shape of a node tells its type.
"""

from __future__ import annotations

from collections.abc import Callable

from .draw_ascii import ascii_picture
from .draw_svg import svg_picture
from .layout import lay_out
from .picture import SHAPES, Picture


def mermaid(picture: Picture) -> str:
    """A flowchart that GitHub and other Markdown readers show."""
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
    """Text inside quotes; Mermaid knows only its own escapes."""
    for character, escape in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(character, escape)
    return text


def dot(picture: Picture) -> str:
    """Graphviz text."""
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
"""The forms of `callboard graph -o`: a picture as text, with a newline at its end."""
