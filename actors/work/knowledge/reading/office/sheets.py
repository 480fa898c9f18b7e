"""Excel's .xlsx to CSV, one document per sheet. Formulas become their last value, dates are formatted."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from ..limits import TOO_MUCH, CantRead
from .package import Archive, Relations, XmlHandler, stream

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
    styles = _Styles()
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


class _Styles(XmlHandler):
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
