"""Word's .docx to Markdown: paragraphs, headings by the names of their styles, lists, tables, notes at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .....io.html.markdown import Writer
from .archive import Archive
from .xml import Relations, stream

_HEADING = re.compile(r"heading ([1-6])$")


def markdown_of(archive: Archive, part: str, most: int) -> str:
    """The text of the document whose main part this is."""
    relations = Relations(archive, part)
    styles = _Styles()
    stream(archive.pieces(relations.by_type.get("styles", "")), styles)
    writer = Writer(most)
    for name in (part, relations.by_type.get("footnotes", ""), relations.by_type.get("endnotes", "")):
        stream(archive.pieces(name), _Text(writer, styles.levels))
    return writer.text


class _Styles:
    """Which styles are headings or lists. Their ids are in the writer's language, their names are not."""

    def __init__(self) -> None:
        self.levels: dict[str, str] = {}
        self._style = ""

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "style":
            self._style = given.get("styleId", "")
        elif name == "name" and self._style:
            said = given.get("val", "").lower()
            if found := _HEADING.match(said):
                self.levels[self._style] = f"h{found[1]}"
            elif said == "title":
                self.levels[self._style] = "h1"
            elif said.startswith("list "):
                self.levels[self._style] = "li"

    def end(self, name: str) -> None:
        pass

    def data(self, text: str) -> None:
        pass


class _Text:
    def __init__(self, writer: Writer, levels: Mapping[str, str]) -> None:
        self._writer = writer
        self._levels = levels
        self._block = ""  # what the paragraph is, once something is in it
        self._style = "p"
        self._taken = False  # inside of text, not of field codes
        self._fallback = 0  # inside of what only old programs show, which says the same again

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "Fallback":
            self._fallback += 1
        if self._fallback:
            return
        if name == "p":
            self._style = "p"
        elif name == "pStyle":
            self._style = self._levels.get(given.get("val", ""), self._style)
        elif name == "numPr" and self._style == "p":
            self._style = "li"
        elif name == "tbl":
            self._writer.open("table")
        elif name in ("tr", "tc"):
            self._writer.open("td" if name == "tc" else name)
        elif name in ("br", "cr"):
            self._words("\n")
        elif name == "tab":
            self._words(" ")
        elif name == "t":
            self._taken = True

    def end(self, name: str) -> None:
        if name == "Fallback":
            self._fallback -= 1
        if self._fallback:
            return
        if name == "t":
            self._taken = False
        elif name == "p":
            if self._block:
                self._writer.close(self._block)
            self._block = ""
        elif name in ("tr", "tc"):
            self._writer.close("td" if name == "tc" else name)
        elif name == "tbl":
            self._writer.close("table")

    def data(self, text: str) -> None:
        if self._taken and not self._fallback:
            self._words(text)

    def _words(self, text: str) -> None:
        if not self._block:
            self._block = self._style
            self._writer.open(self._block)
        self._writer.add(text)
