"""Office texts to Markdown: Word's .docx, PowerPoint's .pptx, OpenDocument's .odt and .odp."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .....io.html import MarkdownWriter
from .package import Archive, Relations, XmlHandler, stream

_HEADING = re.compile(r"heading ([1-6])$")
_MICROSOFT = {"tbl": "table", "tr": "tr", "tc": "td"}
_OPEN_DOCUMENT = {"table": "table", "table-row": "tr", "table-cell": "td", "list": "ul", "list-item": "li"}
_UNSEEN = ("tracked-changes", "note-citation", "annotation")


def word(archive: Archive, part: str, most: int) -> str:
    """Return a Word document as Markdown, given its main part.

    Paragraphs, headings by their styles, lists, and tables are converted; notes are at the end.
    """
    relations = Relations(archive, part)
    styles = _Styles()
    stream(archive.pieces(relations.by_type.get("styles", "")), styles)
    writer = MarkdownWriter(most)
    for name in (part, relations.by_type.get("footnotes", ""), relations.by_type.get("endnotes", "")):
        stream(archive.pieces(name), _Word(writer, styles.levels))
    return writer.text


def slides(archive: Archive, part: str, most: int) -> str:
    """Return a presentation as Markdown, given its main part: each slide under its title, in display order."""
    order = _Order(Relations(archive, part).by_id)
    stream(archive.pieces(part), order)
    writer = MarkdownWriter(most)
    for name in order.parts:
        stream(archive.pieces(name), _Slide(writer))
    return writer.text


def open_document(archive: Archive, most: int) -> str:
    """Return an OpenDocument file as Markdown: headings with their levels, paragraphs, lists, tables, notes."""
    writer = MarkdownWriter(most)
    stream(archive.pieces("content.xml"), _OpenDocument(writer))
    return writer.text


class _Styles(XmlHandler):
    """Styles that are headings or lists. Style ids are localised, names are not."""

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


class _Word(XmlHandler):
    def __init__(self, writer: MarkdownWriter, levels: Mapping[str, str]) -> None:
        self._writer = writer
        self._levels = levels
        self._block = ""  # element of the paragraph, once it has content
        self._style = "p"
        self._taken = False  # inside text, not field codes
        self._fallback = 0  # inside content for old programs, which repeats the rest

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
        elif name in _MICROSOFT:
            self._writer.open(_MICROSOFT[name])
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
        elif name in _MICROSOFT:
            self._writer.close(_MICROSOFT[name])

    def data(self, text: str) -> None:
        if self._taken and not self._fallback:
            self._words(text)

    def _words(self, text: str) -> None:
        if not self._block:
            self._block = self._style
            self._writer.open(self._block)
        self._writer.add(text)


class _Order(XmlHandler):
    def __init__(self, parts: Mapping[str, str]) -> None:
        self.parts: list[str] = []
        self._known = parts

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "sldId":
            self.parts += [self._known[value] for value in given.values() if value in self._known]


class _Slide(XmlHandler):
    def __init__(self, writer: MarkdownWriter) -> None:
        self._writer = writer
        self._block = "p"
        self._taken = False
        self._table = 0

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "ph":
            self._block = "h2" if given.get("type") in ("title", "ctrTitle") else "p"
        elif name == "sp":
            self._block = "p"
        elif name in _MICROSOFT:
            self._table += name == "tbl"
            self._writer.open(_MICROSOFT[name])
        elif name == "p":
            self._writer.open("br" if self._table else self._block)
        elif name == "br":
            self._writer.add(" ")
        elif name == "t":
            self._taken = True

    def end(self, name: str) -> None:
        if name == "t":
            self._taken = False
        elif name in _MICROSOFT:
            self._table -= name == "tbl"
            self._writer.close(_MICROSOFT[name])
        elif name == "p":
            self._writer.close("br" if self._table else self._block)

    def data(self, text: str) -> None:
        if self._taken:
            self._writer.add(text)


class _OpenDocument(XmlHandler):
    def __init__(self, writer: MarkdownWriter) -> None:
        self._writer = writer
        self._open: list[str] = []  # open blocks; notes are nested in paragraphs
        self._items = 0
        self._unseen = 0

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name in _UNSEEN:
            self._unseen += 1
        elif self._unseen:
            return
        elif name in ("p", "h"):
            level = given.get("outline-level", "1")[:1]
            block = f"h{level if level in '123456' else 6}" if name == "h" else "br" if self._items else "p"
            self._open.append(block)
            self._writer.open(block)
        elif name in _OPEN_DOCUMENT:
            self._items += name == "list-item"
            self._writer.open(_OPEN_DOCUMENT[name])
        elif name in ("s", "tab", "line-break") and self._open:
            self._writer.add(" ")

    def end(self, name: str) -> None:
        if name in _UNSEEN:
            self._unseen -= 1
        elif self._unseen:
            return
        elif name in ("p", "h"):
            self._writer.close(self._open.pop())
        elif name in _OPEN_DOCUMENT:
            self._items -= name == "list-item"
            self._writer.close(_OPEN_DOCUMENT[name])

    def data(self, text: str) -> None:
        if self._open and not self._unseen:
            self._writer.add(text)
