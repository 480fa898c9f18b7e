"""A ZIP archive from a stranger. What it says of its sizes is not believed: bytes are counted as they come out."""

from __future__ import annotations

import io
import lzma
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import Self

from ..bounds import MIB, Bounds, CantRead, Watch, megabytes

PIECE = 64 * 1024
SMALL = 1 * MIB
"""Parts up to this may be packed as tightly as they like."""

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
"""What zipfile raises for archives that are broken, encrypted, or packed in a way it does not know."""


class Archive:
    """The parts of an archive, in pieces.

    Raises:
        CantRead: from here and from `pieces`: it is none, or goes beyond the bounds.
    """

    def __init__(self, data: bytes, bounds: Bounds, watch: Watch) -> None:
        self._bounds = bounds
        self._watch = watch
        self._unpacked = 0
        if data.count(_ENTRY) > bounds.entries:  # counted first: zipfile would make an object of each
            raise CantRead(f"it is an archive of more than {bounds.entries:,} parts")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _BROKEN as error:
            raise CantRead(f"it is a broken archive: {error}") from error
        self.names = frozenset(self._zip.namelist())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def pieces(self, name: str) -> Iterator[bytes]:
        """One part's contents; nothing if it is not there."""
        if name not in self.names:
            return
        info = self._zip.getinfo(name)
        largest = max(SMALL, info.compress_size * self._bounds.ratio)
        size = 0
        try:
            with self._zip.open(info) as part:
                while piece := part.read(PIECE):
                    self._watch.look()
                    size += len(piece)
                    self._unpacked += len(piece)
                    if size > largest:
                        raise CantRead(f"its part {name} becomes {self._bounds.ratio} times larger than it is packed")
                    if self._unpacked > self._bounds.unpacked:
                        raise CantRead(f"it unpacks to more than {megabytes(self._bounds.unpacked)}")
                    yield piece
        except _BROKEN as error:
            raise CantRead(f"its part {name} can't be unpacked: {error}") from error


def beside(part: str, target: str) -> str:
    """The name of the part that `target` means in a file that belongs to `part`."""
    if target.startswith("/"):
        return target.lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(part), target))
