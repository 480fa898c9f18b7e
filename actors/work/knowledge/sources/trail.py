"""What a crawl has seen, in a file of one line a page, so that one that was interrupted goes on where it was.

Pages are not kept, only what they were: a crawl that begins again goes through the same queue in the same order, and
takes from here what it need not get again. Who wants to see the pages as they are today removes the file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import final

import msgspec
import trio

from .....protocol.json_values import UNREADABLE


class Visit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page that was got.

    Attributes:
        url: as it was asked for; `source` where it was found.
        digest: of its bytes.
        size: of its bytes.
        links: the pages that were new when it was read.
        silent: whether it is no source: it does not want to be found, or says what another page says.
    """

    url: str
    source: str
    digest: str
    size: int = 0
    links: tuple[str, ...] = ()
    silent: bool = False


@final
class Trail:
    """The memory of one crawl.

    Args:
        directory: where it is; None for no memory.
        target: what is crawled.
        limiter: of the threads that read and write it.
    """

    def __init__(self, directory: Path | None, target: str, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        name = hashlib.sha256(target.encode()).hexdigest()[:16]
        self._file = directory / f"crawl-{name}.jsonl" if directory is not None else None
        self.known: dict[str, Visit] = {}

    async def load(self) -> None:
        """Read it. A line that was not written to its end counts as not written."""
        if self._file is not None:
            for line in await trio.to_thread.run_sync(_lines, self._file, limiter=self._limiter):
                try:
                    visit = msgspec.json.decode(line, type=Visit)
                except UNREADABLE:
                    continue
                self.known[visit.url] = visit

    async def add(self, visit: Visit) -> None:
        """Remember a page."""
        if self._file is not None:
            await trio.to_thread.run_sync(_append, self._file, msgspec.json.encode(visit), limiter=self._limiter)


def _lines(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _append(file: Path, line: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as trail:
        trail.write(b"\n" + line + b"\n")  # the line before may have been cut short
