"""A cache of what servers offer, so that a server need not run to be known.

A file per digest (see `leases`) under the cache directory, written anew at each start and whenever the server says that
its tools changed. It may be deleted at any time; one that can't be read or written is none. Of too many the oldest go:
an entry whose values change from run to run leaves a file each time that is never read again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import final

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.jsonrpc import UNREADABLE
from .....protocol.mcp.config import ToolList
from .....protocol.mcp.model import Implementation, Tool
from ....io.directories import private_directory
from ....io.whole_file import write_whole

MAX_BYTES = 8 * 1024 * 1024
"""A larger catalogue is not kept on disk."""


MOST_FILES = 500
"""Catalogues kept on disk."""


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said of itself. Never changed: when the server's tools change there is another.

    Attributes:
        server: name and version as the server has them.
        version: revision of the protocol that it speaks.
        tools: those that its entry in `mcp.json` admits.
        instructions: how it wants to be used.
        fetched: when, in seconds since 1970.
    """

    server: Implementation
    version: str
    tools: tuple[Tool, ...] = ()
    instructions: str | None = None
    fetched: float = 0.0

    def within(self, admitted: ToolList) -> Catalog:
        """The catalogue without the tools that these lists leave out."""
        if admitted.allow is None and not admitted.deny:
            return self
        return msgspec.structs.replace(self, tools=tuple(tool for tool in self.tools if admitted.admits(tool.name)))


@final
class Catalogs:
    """All there are, by digest, in memory and below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, Catalog] = {}

    def get(self, digest: str) -> Catalog | None:
        """The newest; None if the server never ran, or its file is gone or broken."""
        if digest not in self._known:
            with suppress(OSError, *UNREADABLE):
                path = self._file(digest)
                if path.stat().st_size <= MAX_BYTES:
                    self._known[digest] = _DECODER.decode(path.read_bytes())
        return self._known.get(digest)

    def put(self, digest: str, catalog: Catalog) -> None:
        """Remember it; on disk only if that goes."""
        self._known[digest] = catalog
        data = msgspec.json.encode(catalog)
        if len(data) > MAX_BYTES:
            return
        path = self._file(digest)
        with suppress(OSError):
            private_directory(self._directory)
            is_new = not path.exists()
            write_whole(path, data, private=True)
            if is_new:
                self._remove_the_oldest()

    def _remove_the_oldest(self) -> None:
        """Remove what was not written for the longest time; also what a process that was killed has begun to write."""
        dated: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            with suppress(OSError):  # another process removes it as well
                dated.append((path.stat().st_mtime, path))
        for _, path in sorted(dated, reverse=True)[MOST_FILES:]:
            path.unlink(missing_ok=True)

    def _file(self, digest: str) -> Path:
        return self._directory / f"{digest}.json"


_DECODER = json_decoder(Catalog)
