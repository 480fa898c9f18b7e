"""XML as it streams by. Names lose their prefixes; a document type, and with it every entity, is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from xml.parsers import expat

from ..bounds import CantRead
from .archive import Archive, beside


class Handler(Protocol):
    """Gets the events."""

    def start(self, name: str, given: Mapping[str, str]) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def data(self, text: str) -> None:
        """Text, in pieces."""


def stream(pieces: Iterable[bytes], handler: Handler) -> None:
    """Parse.

    Raises:
        CantRead: it is not well-formed, or has a document type.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(name: str, given: dict[str, str]) -> None:
        names = {key: key if _local(key) in given else _local(key) for key in given}  # `id` and `r:id` stay apart
        handler.start(_local(name), {names[key]: value for key, value in given.items()})

    def refuse(*_: object) -> None:
        raise CantRead("there is a document type in its XML, which no office program writes")

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
        raise CantRead(f"the XML in it is broken: {error}") from error


class Relations:
    """What the parts of an Office Open XML file call each other: `id` to part, and the parts by type.

    Args:
        part: whose relations, empty for the whole file's; `_rels/<name>.rels` beside it says them.
    """

    def __init__(self, archive: Archive, part: str) -> None:
        self._part = part
        self.by_id: dict[str, str] = {}
        self.by_type: dict[str, str] = {}
        folder, _, name = part.rpartition("/")
        stream(archive.pieces(f"{folder}/_rels/{name}.rels".lstrip("/")), self)

    def start(self, name: str, given: Mapping[str, str]) -> None:
        """The parser's."""
        if name == "Relationship" and given.get("TargetMode") != "External":
            target = beside(self._part, given.get("Target", ""))
            self.by_id[given.get("Id", "")] = target
            self.by_type.setdefault(given.get("Type", "").rpartition("/")[2], target)

    def end(self, name: str) -> None:
        """The parser's."""

    def data(self, text: str) -> None:
        """The parser's."""


def _local(name: str) -> str:
    return name.rpartition(":")[2]
