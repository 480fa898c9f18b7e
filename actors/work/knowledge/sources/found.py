"""A source that was found, and the tools that finders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ProcessError, TimedOut
from .....protocol.knowledge import Document, Unreadable
from ....io.handed_out import hidden
from ..reading.bounds import MIB, Bounds, CantRead, megabytes
from ..reading.read import Contents, Raw, read

if TYPE_CHECKING:
    from .....supervisors.actor import Actor
    from .....supervisors.confinement import Confinement
    from ....io.vault.lookups import Lookup

THREADS = 3
"""That read at once for one `gather`: more would only fight for the processor."""


class GitHub(msgspec.Struct, frozen=True, kw_only=True):
    """Base URLs of GitHub, or of one like it: its pages, its API, and the files themselves."""

    site: str = "https://github.com"
    api: str = "https://api.github.com"
    raw: str = "https://raw.githubusercontent.com"


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How sources are looked for.

    Attributes:
        loaders: commands by the ending, the scheme or the name that they are for (`document_loaders`).
        vault: has the secrets that those commands name; None for the environment.
        loader_seconds: for one run of a loader.
        bounds: of what is read.
        files: that one spec may name.
        allow_private: whether pages may come from this machine and from private networks.
        page_bytes: of one page.
        page_seconds: for one page, redirects included.
        pages: that one crawl gets.
        depth: links that it goes away from where it began.
        at_once: pages that it gets at the same time.
        delay: seconds between two requests to one host; a longer one that robots.txt asks for is kept.
        crawls: whether `URL**` is allowed.
        github: where GitHub is.
    """

    loaders: Mapping[str, str] = {}
    vault: Lookup | None = None
    loader_seconds: float = 300.0
    bounds: Bounds = Bounds()
    files: int = 100_000
    allow_private: bool = False
    page_bytes: int = 16 * MIB
    page_seconds: float = 30.0
    pages: int = 500
    depth: int = 10
    at_once: int = 5
    delay: float = 0.2
    crawls: bool = True
    github: GitHub = GitHub()


class SourceContext(msgspec.Struct, frozen=True):
    """Shared by the finders and readers of sources.

    Attributes:
        me: owner of the processes that read.
        base: what relative paths are relative to.
        environ: for proxies, loaders and `~`, and what `${NAME}` in a loader's command stands for.
        history: a directory where crawls remember what they have seen, or None.
        limiter: of the threads that read.
    """

    me: Actor
    base: Path
    settings: SourceSettings
    environ: Mapping[str, str]
    history: Path | None
    limiter: trio.CapacityLimiter = msgspec.field(default_factory=lambda: trio.CapacityLimiter(THREADS))

    async def read(self, raw: Raw) -> Contents:
        """What is in these bytes. Raises CantRead."""
        return await read(self.me, raw, self.settings.bounds, self.limiter)

    async def printed(
        self, argv: Sequence[str], name: str, *, seconds: float, hint: str = "", confinement: Confinement | None = None
    ) -> bytes:
        """What a command prints.

        Args:
            name: its actor's.
            hint: what to do where its exit status alone makes it a failure.
            confinement: what it may not do.

        Raises:
            CantRead: it can't be started, fails, takes too long or prints too much.
        """
        from .....supervisors.process import run_process

        most = self.settings.bounds.text
        try:
            done = await run_process(
                self.me,
                argv,
                name=name,
                env=self.environ,
                cwd=self.base,
                output_limit=most,
                on_overflow="kill",
                timeout=seconds,
                confinement=confinement,
            )
        except (ProcessError, TimedOut) as error:
            raise CantRead(str(error)) from error
        if done.truncated:
            raise CantRead(f"it prints more than {megabytes(most)}")
        if done.status != 0:
            said = _in_short(hidden(done.stderr_tail.strip())) or "it wrote nothing to stderr"
            how = f"ended with status {done.status}" if done.signal is None else f"died of signal {done.signal}"
            raise CantRead(f"it {how}: {said}{hint}")
        return done.stdout


class Found(ABC):
    """A `base.model.Source`. Nothing is read before it is asked for, unless finding it meant reading it.

    Its name is a path relative to where the sources are named from, or a URL.
    """

    reader = ""

    def __init__(self, source: str, *, size: int | None = None, mtime: float | None = None) -> None:
        self.source = source
        self.size = size
        self.mtime = mtime

    @abstractmethod
    async def digest(self) -> str | Unreadable:
        """See `Source.digest`."""

    async def documents(self) -> Sequence[Document | Unreadable]:
        """What it says now; what can't be read is `Unreadable`."""
        try:
            return await self._documents()
        except (OSError, CantRead) as error:
            return (Unreadable(source=self.source, reason=explained(error)),)

    @abstractmethod
    async def _documents(self) -> Sequence[Document]:
        """Raises CantRead or OSError."""


class Held(Found):
    """A source that is here already, since its bytes came when it was found."""

    def __init__(
        self,
        source: str,
        digest: str,
        documents: Sequence[Document],
        size: int | None = None,
        mtime: float | None = None,
    ) -> None:
        super().__init__(source, size=size, mtime=mtime)
        self._digest = digest
        self._held = tuple(documents)

    async def digest(self) -> str | Unreadable:
        return self._digest

    async def _documents(self) -> Sequence[Document]:
        return self._held


async def held(context: SourceContext, raw: Raw) -> Held | Unreadable:
    """Read what has come."""
    try:
        contents = await context.read(raw)
    except CantRead as error:
        return Unreadable(source=raw.source, reason=str(error))
    return Held(raw.source, contents.digest, contents.documents, len(raw.data))


def explained(error: OSError | CantRead) -> str:
    """Why a file can't be read."""
    return str(error) if isinstance(error, CantRead) else f"it can't be read: {error.strerror or error}"


Finding = Found | Unreadable


_SHOWN = 500
"""Characters of what a command wrote to stderr that are shown."""


def _in_short(said: str) -> str:
    """What a command wrote to stderr: of much its first line, which often has the reason, and its last ones."""
    if len(said) <= _SHOWN:
        return said
    first, _, rest = said.partition("\n")
    end = rest[-(_SHOWN - 200) :]
    return "\n".join((first[:200], "[...]", end.partition("\n")[2] or end))
