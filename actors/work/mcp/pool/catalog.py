"""Cache of the tools that servers offer, so that a server need not run for its tools to be listed.

One file per digest (see `pool`) in the cache directory, written at each start and at each change of the server's
tools. Files may be deleted at any time; an unreadable one counts as missing. Beyond `MOST_FILES` the oldest are
removed: an entry whose values change with every run leaves a file each time that is never read again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import final

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.jsonrpc import UNREADABLE
from .....protocol.mcp.config import ToolList
from .....protocol.mcp.model import Implementation, McpTool
from ....io.atomic_write import write_whole
from ....io.directories import private_directory

MAX_BYTES = 8 * 1024 * 1024
"""Bytes of a catalog at most; a larger one is not stored on disk."""


MOST_FILES = 500
"""Catalogs on disk at most."""


class ServerCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a server and its tools. Immutable: a change of the tools makes a new one.

    Attributes:
        server: name and version that the server reports.
        version: protocol revision of the connection.
        tools: tools of the server.
        instructions: instructions of the server for its use.
        fetched: time of the request, in seconds since 1970.
    """

    server: Implementation
    version: str
    tools: tuple[McpTool, ...] = ()
    instructions: str | None = None
    fetched: float = 0.0

    def within(self, admitted: ToolList) -> ServerCatalog:
        """Return the catalog without the tools that these lists exclude."""
        if admitted.allow is None and not admitted.deny:
            return self
        return msgspec.structs.replace(self, tools=tuple(tool for tool in self.tools if admitted.admits(tool.name)))


@final
class Catalogs:
    """Catalogs by digest, in memory and in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, ServerCatalog] = {}

    def get(self, digest: str) -> ServerCatalog | None:
        """Return the newest catalog; None if the server never ran, or its file is missing or invalid."""
        if digest not in self._known:
            with suppress(OSError, *UNREADABLE):
                path = self._file(digest)
                if path.stat().st_size <= MAX_BYTES:
                    self._known[digest] = _DECODER.decode(path.read_bytes())
        return self._known.get(digest)

    def put(self, digest: str, catalog: ServerCatalog) -> None:
        """Store a catalog in memory, and on disk if possible."""
        self._known[digest] = catalog
        data = msgspec.json.encode(catalog)
        if len(data) > MAX_BYTES:
            return
        path = self._file(digest)
        with suppress(OSError):
            private_directory(self._directory)
            is_new = not path.exists()
            write_whole(path, data, private=True)
            # Only a new file can exceed the limit.
            if is_new:
                self._remove_the_oldest()

    def _remove_the_oldest(self) -> None:
        """Remove the files that were not written for the longest time, partial files of killed processes included."""
        dated: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            with suppress(OSError):  # another process may remove it concurrently
                dated.append((path.stat().st_mtime, path))
        for _, path in sorted(dated, reverse=True)[MOST_FILES:]:
            path.unlink(missing_ok=True)

    def _file(self, digest: str) -> Path:
        return self._directory / f"{digest}.json"


_DECODER = json_decoder(ServerCatalog)
