"""OpenDocument's .odt and .odp to Markdown: headings with their levels, paragraphs, lists, tables, notes."""

from __future__ import annotations

from collections.abc import Mapping

from .....io.html.markdown import Writer
from .archive import Archive
from .xml import stream

_TABLES = {"table-row": "tr", "table-cell": "td"}


def markdown_of(archive: Archive, most: int) -> str:
    """The text of the document."""
    writer = Writer(most)
    stream(archive.pieces("content.xml"), _Text(writer))
    return writer.text


class _Text:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._open: list[str] = []  # the blocks that we are in; notes stand inside of paragraphs
        self._items = 0
        self._unseen = 0

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name in ("tracked-changes", "note-citation", "annotation"):
            self._unseen += 1
        elif self._unseen:
            return
        elif name in ("p", "h"):
            level = given.get("outline-level", "1")[:1]
            block = f"h{level if level in '123456' else 6}" if name == "h" else "br" if self._items else "p"
            self._open.append(block)
            self._writer.open(block)
        elif name == "list-item":
            self._items += 1
            self._writer.open("li")
        elif name == "list":
            self._writer.open("ul")
        elif name == "table":
            self._writer.open("table")
        elif name in _TABLES:
            self._writer.open(_TABLES[name])
        elif name in ("s", "tab", "line-break") and self._open:
            self._writer.add(" ")

    def end(self, name: str) -> None:
        if name in ("tracked-changes", "note-citation", "annotation"):
            self._unseen -= 1
        elif self._unseen:
            return
        elif name in ("p", "h"):
            self._writer.close(self._open.pop())
        elif name == "list-item":
            self._items -= 1
            self._writer.close("li")
        elif name == "list":
            self._writer.close("ul")
        elif name == "table":
            self._writer.close("table")
        elif name in _TABLES:
            self._writer.close(_TABLES[name])

    def data(self, text: str) -> None:
        if self._open and not self._unseen:
            self._writer.add(text)
