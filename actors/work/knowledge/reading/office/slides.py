"""PowerPoint's .pptx to Markdown: each slide under its title, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from .....io.html.markdown import Writer
from .archive import Archive
from .xml import Relations, stream


def markdown_of(archive: Archive, part: str, most: int) -> str:
    """The text of the presentation whose main part this is."""
    order = _Order(Relations(archive, part).by_id)
    stream(archive.pieces(part), order)
    writer = Writer(most)
    for name in order.parts:
        stream(archive.pieces(name), _Slide(writer))
    return writer.text


class _Order:
    """The parts of the slides, in order."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        self.parts: list[str] = []
        self._known = parts

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "sldId":
            self.parts += [self._known[value] for value in given.values() if value in self._known]

    def end(self, name: str) -> None:
        pass

    def data(self, text: str) -> None:
        pass


class _Slide:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._block = "p"
        self._taken = False
        self._table = 0

    def start(self, name: str, given: Mapping[str, str]) -> None:
        if name == "ph":
            self._block = "h2" if given.get("type") in ("title", "ctrTitle") else "p"
        elif name == "sp":
            self._block = "p"
        elif name == "tbl":
            self._table += 1
            self._writer.open("table")
        elif name in ("tr", "tc"):
            self._writer.open("td" if name == "tc" else name)
        elif name == "p":
            self._writer.open("br" if self._table else self._block)
        elif name == "br":
            self._writer.add(" ")
        elif name == "t":
            self._taken = True

    def end(self, name: str) -> None:
        if name == "t":
            self._taken = False
        elif name in ("tr", "tc"):
            self._writer.close("td" if name == "tc" else name)
        elif name == "tbl":
            self._table -= 1
            self._writer.close("table")
        elif name == "p":
            self._writer.close("br" if self._table else self._block)

    def data(self, text: str) -> None:
        if self._taken:
            self._writer.add(text)
