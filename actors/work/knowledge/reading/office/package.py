"""Office files as ZIP archives of XML, parsed as a stream.

Names in the XML lose their prefixes. A document type declaration is refused, and with it all entities.
"""

from __future__ import annotations

import io
import lzma
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from xml.parsers import expat

from ..limits import MIB, Bounds, CantRead, megabytes


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
            raise CantRead(f"it is an archive of more than {bounds.entries:,} parts")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _BROKEN as error:
            raise CantRead(f"it is a broken archive: {error}") from error
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
                        raise CantRead(f"its part {name} becomes {self._bounds.ratio} times larger than it is packed")
                    if self._unpacked > self._bounds.unpacked:
                        raise CantRead(f"it unpacks to more than {megabytes(self._bounds.unpacked)}")
                    yield piece
        except _BROKEN as error:
            raise CantRead(f"its part {name} can't be unpacked: {error}") from error


def resolve_part(part: str, target: str) -> str:
    """Return the name of the part that `target` refers to in a file that belongs to `part`."""
    if target.startswith("/"):
        return target.lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(part), target))
