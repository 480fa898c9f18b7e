"""Jupyter notebooks: their text and their code, without what it printed (pictures above all)."""

from __future__ import annotations

from typing import Any

import msgspec


class _Cell(msgspec.Struct):
    cell_type: str
    source: str | list[str] = ""


class _Notebook(msgspec.Struct):
    cells: list[_Cell]
    metadata: dict[str, Any] = {}


def markdown_of(text: str) -> str:
    """The notebook as Markdown; empty if it is none of the kind that is known."""
    try:
        book = msgspec.json.decode(text, type=_Notebook)
    except (msgspec.DecodeError, RecursionError):
        return ""
    kernel = book.metadata.get("kernelspec")
    language = str(kernel.get("language", "python")) if isinstance(kernel, dict) else "python"
    parts: list[str] = []
    for cell in book.cells:
        source = cell.source if isinstance(cell.source, str) else "".join(cell.source)
        if source.strip():
            parts.append(f"```{language}\n{source}\n```" if cell.cell_type == "code" else source)
    return "\n\n".join(parts)
