"""File listing of a source, made before any file is on disk, with a function that reads selected files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

KIB, MIB = 1024, 1024 * 1024

MOST_ENTRIES = 50_000
"""Most files of a source; a repository with more is not a bundle."""

Kind: TypeAlias = Literal["file", "link", "submodule", "special"]


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """File of a source.

    Attributes:
        path: path from the top of the source, with `/` between its parts.
        size: size in bytes.
        executable: the file may be started as a program.
        id: id of its contents in the source.
    """

    path: str
    kind: Kind = "file"
    size: int = 0
    executable: bool = False
    id: str = ""


def one_line(text: str) -> str:
    """Return an untrusted text as a single line without control characters, which a terminal could interpret."""
    text = " ".join(text.split())
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


Read: TypeAlias = Callable[[Sequence[SourceFile]], Awaitable[dict[str, bytes]]]


class SourceTree(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a source.

    Attributes:
        commit: commit of a repository; "" for a directory.
        entries: all files, in no order.
        read: returns the contents of some of them, by path.
    """

    entries: tuple[SourceFile, ...]
    read: Read
    commit: str = ""

    def below(self, top: str) -> SourceTree:
        """Return the tree of a subdirectory."""
        if not top:
            return self
        start = f"{top}/"
        inner = {entry.path.removeprefix(start): entry for entry in self.entries if entry.path.startswith(start)}

        async def read(entries: Sequence[SourceFile]) -> dict[str, bytes]:
            found = await self.read([inner[entry.path] for entry in entries])
            return {path.removeprefix(start): data for path, data in found.items()}

        seen = tuple(msgspec.structs.replace(entry, path=path) for path, entry in inner.items())
        return SourceTree(entries=seen, read=read, commit=self.commit)
