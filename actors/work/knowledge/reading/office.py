"""Office files: ZIP archives of XML, read with the standard library.

    .docx, .pptx, .odt, .odp    Markdown
    .xlsx                       CSV, one document per sheet. Formulas become their last value, dates are formatted

Complete libraries for these formats (python-docx, openpyxl, python-pptx) load everything at once and depend on lxml.
The text alone needs only a bounded archive, a streaming parser, and one page of code per format.

Names in the XML lose their prefixes. A document type declaration is refused, and with it all entities.
"""

from __future__ import annotations

import csv
import io
import lzma
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from xml.parsers import expat

from ....io.html import MarkdownWriter
from .limits import MIB, TOO_MUCH, Bounds, CantRead, megabytes


class XmlHandler:
    """Handler of XML events; subclasses override the ones that they need."""

    def start(self, name: str, given: Mapping[str, str]) -> None:
        """Handle the start of an element."""

    def end(self, name: str) -> None:
        """Handle the end of an element."""

    def data(self, text: str) -> None:
        """Handle text, in pieces."""


def stream(pieces: Iterable[bytes], handler: XmlHandler) -> None:
    """Parse XML.

    Raises:
        CantRead: the XML is not well-formed, or has a document type declaration.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(name: str, given: dict[str, str]) -> None:
        # `id` and `r:id` must stay distinct
        names = {key: key if _local(key) in given else _local(key) for key in given}
        handler.start(_local(name), {names[key]: value for key, value in given.items()})

    def refuse(*_: object) -> None:
        raise CantRead("the XML of the document declares a document type (DTD), which office programs never write")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: handler.end(_local(name))
    parser.CharacterDataHandler = handler.data
    parser.StartDoctypeDeclHandler = refuse
    fed = False
    try:
        for piece in pieces:
            fed = True
            parser.Parse(piece, False)
        if fed:
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise CantRead(f"the XML of the document is broken: {error}") from error


class Relations(XmlHandler):
    """Relationships of a part of an Office Open XML file: target parts by id, and by type.

    Args:
        part: the part, or "" for the whole file; its relationships are in `_rels/<name>.rels` next to it.
    """

    def __init__(self, archive: Archive, part: str) -> None:
        self._part = part
        self.by_id: dict[str, str] = {}
        self.by_type: dict[str, str] = {}
        folder, _, name = part.rpartition("/")
        stream(archive.pieces(f"{folder}/_rels/{name}.rels".lstrip("/")), self)

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "Relationship" and given.get("TargetMode") != "External":
            target = resolve_part(self._part, given.get("Target", ""))
            self.by_id[given.get("Id", "")] = target
            self.by_type.setdefault(given.get("Type", "").rpartition("/")[2], target)


def _local(name: str) -> str:
    return name.rpartition(":")[2]


PIECE = 64 * 1024
SMALL = 1 * MIB
"""Size in bytes up to which a part may have any compression ratio."""

_ENTRY = b"PK\x01\x02"
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)
"""Exceptions of zipfile for archives that are broken, encrypted, or compressed by an unknown method."""


class Archive:
    """Archive that returns its parts in pieces.

    Raises:
        CantRead: from the constructor and from `pieces`: the archive is broken, or exceeds the limits.
    """

    def __init__(self, data: bytes, bounds: Bounds, look: Callable[[], None]) -> None:
        self._bounds = bounds
        self._look = look
        self._unpacked = 0
        if data.count(_ENTRY) > bounds.entries:  # counted in the bytes first: zipfile would create an object for each
            raise CantRead(f"the document is an archive of more than {bounds.entries:,} parts")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _BROKEN as error:
            raise CantRead(f"the document is a broken archive: {error}") from error
        self.names = frozenset(self._zip.namelist())

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the contents of a part; nothing if it does not exist."""
        if name not in self.names:
            return
        info = self._zip.getinfo(name)
        largest = max(SMALL, info.compress_size * self._bounds.ratio)
        size = 0
        try:
            with self._zip.open(info) as part:
                while piece := part.read(PIECE):
                    self._look()
                    size += len(piece)
                    self._unpacked += len(piece)
                    if size > largest:
                        raise CantRead(
                            f"part {name} of the document unpacks to more than {self._bounds.ratio} times its "
                            "packed size"
                        )
                    if self._unpacked > self._bounds.unpacked:
                        raise CantRead(f"the document unpacks to more than {megabytes(self._bounds.unpacked)}")
                    yield piece
        except _BROKEN as error:
            raise CantRead(f"part {name} of the document can't be unpacked: {error}") from error


def resolve_part(part: str, target: str) -> str:
    """Return the name of the part that `target` refers to in a file that belongs to `part`."""
    if target.startswith("/"):
        return target.lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(part), target))


_HEADING = re.compile(r"heading ([1-6])$")
_MICROSOFT = {"tbl": "table", "tr": "tr", "tc": "td"}
_OPEN_DOCUMENT = {"table": "table", "table-row": "tr", "table-cell": "td", "list": "ul", "list-item": "li"}
_UNSEEN = ("tracked-changes", "note-citation", "annotation")


def word(archive: Archive, part: str, most: int) -> str:
    """Return a Word document as Markdown, given its main part.

    Paragraphs, headings by their styles, lists, and tables are converted; notes are at the end.
    """
    relations = Relations(archive, part)
    styles = _HeadingStyles()
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


class _HeadingStyles(XmlHandler):
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


COLUMNS = 1000
"""Most columns of a sheet that are read."""

_EPOCH = datetime(1899, 12, 30)  # noqa: DTZ001 - dates in sheets have no time zone
_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
"""Ids of the built-in number formats for dates and times."""

_LITERAL = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')


def sheets_of(archive: Archive, part: str, most: int) -> Iterator[tuple[str, str]]:
    """Yield name and CSV of each non-empty sheet."""
    relations = Relations(archive, part)
    book = _Book()
    stream(archive.pieces(part), book)
    strings = _Strings(most)
    stream(archive.pieces(relations.by_type.get("sharedStrings", "")), strings)
    styles = _CellFormats()
    stream(archive.pieces(relations.by_type.get("styles", "")), styles)
    for name, key in book.sheets:
        sheet = _Sheet(strings.texts, styles.dates, most)
        stream(archive.pieces(relations.by_id.get(key, "")), sheet)
        if text := sheet.out.getvalue():
            # The limit applies to all sheets together.
            most -= len(text)
            yield name, text


class _Book(XmlHandler):
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "sheet":
            self.sheets.append((given.get("name", ""), given.get("id", "")))


class _Strings(XmlHandler):
    """Shared texts, which cells refer to by number."""

    def __init__(self, most: int) -> None:
        self.texts: list[str] = []
        self._left = most
        self._item: list[str] = []
        self._taken = False
        self._spoken = False  # inside a phonetic annotation

    def start(self, name: str, given: Mapping[str, str]) -> None:  # noqa: ARG002 - signature of the handler
        if name == "si":
            self._item = []
        elif name == "rPh":
            self._spoken = True
        elif name == "t":
            self._taken = not self._spoken

    def end(self, name: str) -> None:
        if name == "t":
            self._taken = False
        elif name == "rPh":
            self._spoken = False
        elif name == "si":
            self.texts.append("".join(self._item))

    def data(self, text: str) -> None:
        if self._taken:
            self._left -= len(text)
            if self._left < 0:
                raise CantRead(TOO_MUCH)
            self._item.append(text)


class _CellFormats(XmlHandler):
    def __init__(self) -> None:
        self.dates: list[bool] = []
        self._own: set[str] = set()
        self._inside = False

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "numFmt" and re.search("[ymdhs]", _LITERAL.sub("", given.get("formatCode", "")).lower()):
            self._own.add(given.get("numFmtId", ""))
        elif name == "cellXfs":
            self._inside = True
        elif name == "xf" and self._inside:
            number = given.get("numFmtId", "0")
            self.dates.append(number in self._own or (number.isdigit() and int(number) in _DATES))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._inside = False


class _Sheet(XmlHandler):
    def __init__(self, strings: list[str], dates: list[bool], most: int) -> None:
        self.out = io.StringIO()
        self._csv = csv.writer(self.out, lineterminator="\n")
        self._strings = strings
        self._dates = dates
        self._left = most
        self._row: list[str] = []
        self._given: Mapping[str, str] = {}
        self._cell: list[str] = []
        self._taken = False

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "row":
            self._row = []
        elif name == "c":
            self._given = given
            self._cell = []
        elif name in ("v", "t"):
            self._taken = True

    def end(self, name: str) -> None:
        if name in ("v", "t"):
            self._taken = False
        elif name == "c" and self._cell:
            self._put(self._cell_text("".join(self._cell)))
        elif name == "row" and any(self._row):
            self._csv.writerow(self._row)

    def data(self, text: str) -> None:
        if self._taken:
            self._cell.append(text)

    def _put(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise CantRead(TOO_MUCH)
        # Empty cells are omitted in the file; a cell without a reference follows the previous one.
        place = _column(self._given.get("r", "")) if "r" in self._given else len(self._row)
        if place < COLUMNS:
            self._row += [""] * (place - len(self._row))
            self._row[place:] = [text]

    def _cell_text(self, text: str) -> str:
        kind, style = self._given.get("t", "n"), self._given.get("s", "0")
        if kind == "s":
            return self._strings[int(text)] if text.isdigit() and int(text) < len(self._strings) else ""
        if kind == "b":
            return "TRUE" if text == "1" else "FALSE"
        if kind == "n" and style.isdigit() and int(style) < len(self._dates) and self._dates[int(style)]:
            return _date(text)
        return text.strip()


def _column(cell: str) -> int:
    """Return the index of a cell's column: 2 for `C7`, 0 for A or without letters."""
    number = 0
    for letter in cell[:4]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return max(number - 1, 0)


def _date(text: str) -> str:
    try:
        days = float(text)
        moment = _EPOCH + timedelta(days=days)
    except (ValueError, OverflowError):
        return text
    if 0 <= days < 1:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"
