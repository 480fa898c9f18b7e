"""What a source holds, listed before anything of it is on the disk, and the way to read what was chosen of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

KIB, MIB = 1024, 1024 * 1024

MOST_ENTRIES = 50_000
"""Files of a source that are listed; a repository with more is no bundle."""

Kind: TypeAlias = Literal["file", "link", "submodule", "special"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a source.

    Attributes:
        path: from the top of the source, with `/` between its parts.
        size: in bytes.
        executable: whether it may be started as a program.
        id: how its source calls its contents.
    """

    path: str
    kind: Kind = "file"
    size: int = 0
    executable: bool = False
    id: str = ""


def one_line(text: str) -> str:
    """A stranger's text as a single line that a terminal takes for nothing else: a name of a file may hold anything."""
    text = " ".join(text.split())
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


Read: TypeAlias = Callable[[Sequence[Entry]], Awaitable[dict[str, bytes]]]


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A source.

    Attributes:
        commit: which state of a repository it is; "" for a directory.
        entries: all files, in no order.
        read: the contents of some of them, by path.
    """

    entries: tuple[Entry, ...]
    read: Read
    commit: str = ""

    def below(self, top: str) -> Tree:
        """The tree as a directory of it sees it."""
        if not top:
            return self
        start = f"{top}/"
        inner = {entry.path.removeprefix(start): entry for entry in self.entries if entry.path.startswith(start)}

        async def read(entries: Sequence[Entry]) -> dict[str, bytes]:
            found = await self.read([inner[entry.path] for entry in entries])
            return {path.removeprefix(start): data for path, data in found.items()}

        seen = tuple(msgspec.structs.replace(entry, path=path) for path, entry in inner.items())
        return Tree(entries=seen, read=read, commit=self.commit)
