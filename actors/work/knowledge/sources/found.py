"""Found sources, and the context that finders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ProcessError, TimedOut
from .....protocol.knowledge import Document, Unreadable
from ....io.secret_redaction import hidden
from ..reading.limits import MIB, Bounds, CantRead, megabytes
from ..reading.read import Contents, RawDocument, read

if TYPE_CHECKING:
    from .....supervisors.actor import Actor
    from .....supervisors.confinement import Confinement
    from ....io.vault.lookups import Lookup

THREADS = 3
"""Threads that read for one `gather`; more would only compete for the processor."""


class GitHub(msgspec.Struct, frozen=True, kw_only=True):
    """Base URLs of GitHub, or of a compatible server: pages, API, and raw files."""

    site: str = "https://github.com"
    api: str = "https://api.github.com"
    raw: str = "https://raw.githubusercontent.com"


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for finding and reading sources.

    Attributes:
        loaders: commands by the file ending, the scheme or the name that they handle (`document_loaders`).
        vault: vault with the secrets that these commands name; None for the environment.
        loader_seconds: timeout of one loader.
        bounds: limits of reading.
        files: most files of one spec.
        allow_private: pages may be on this machine and in private networks.
        page_bytes: most bytes of one page.
        page_seconds: timeout of one page, redirects included.
        pages: most pages of one crawl.
        depth: most links between the start of a crawl and a page.
        at_once: concurrent requests of a crawl.
        delay: seconds between two requests to one host; a longer delay in robots.txt is respected.
        crawls: `URL**` is allowed.
        github: base URLs of GitHub.
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
    """Context of the finders and readers of sources.

    Attributes:
        me: owner of the processes that read.
        base: directory that relative paths start from.
        environ: environment for proxies, loaders and `~`, and for `${NAME}` in a loader's command.
        history: directory for the records of crawls, or None.
        limiter: limiter of the threads that read.
    """

    me: Actor
    base: Path
    settings: SourceSettings
    environ: Mapping[str, str]
    history: Path | None
    limiter: trio.CapacityLimiter = msgspec.field(default_factory=lambda: trio.CapacityLimiter(THREADS))

    async def read(self, raw: RawDocument) -> Contents:
        """Return the documents in these bytes. Raises CantRead."""
        return await read(self.me, raw, self.settings.bounds, self.limiter)

    async def printed(
        self, argv: Sequence[str], name: str, *, seconds: float, hint: str = "", confinement: Confinement | None = None
    ) -> bytes:
        """Return the output of a command.

        Args:
            name: name of its actor.
            hint: advice for the error if only the exit status makes it a failure.
            confinement: restrictions of the process.

        Raises:
            CantRead: the command can't be started, fails, takes too long or prints too much.
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
        # Checked before the status: the process was killed because it printed too much, so its status says nothing.
        if done.truncated:
            raise CantRead(f"the command printed more than {megabytes(most)}, the limit of one source")
        if done.status != 0:
            # A loader's command may contain secrets of the vault, and programs quote their arguments in errors.
            said = _in_short(hidden(done.stderr_tail.strip())) or "no message on stderr"
            how = f"exited with status {done.status}" if done.signal is None else f"was killed by signal {done.signal}"
            raise CantRead(f"the command {how}: {said}{hint}")
        return done.stdout


class FoundSource(ABC):
    """Base class of sources that implements `base.model.KnowledgeSource`.

    A source is read only on demand, unless finding it required reading it. Its name is a URL, or a path relative to the
    directory that the sources are named from.
    """

    reader = ""

    def __init__(self, source: str, *, size: int | None = None, mtime: float | None = None) -> None:
        self.source = source
        self.size = size
        self.mtime = mtime

    @abstractmethod
    async def digest(self) -> str | Unreadable:
        """Return its checksum; see `KnowledgeSource.digest`."""

    async def documents(self) -> Sequence[Document | Unreadable]:
        """Return its current documents; unreadable ones as `Unreadable`."""
        try:
            return await self._documents()
        except (OSError, CantRead) as error:
            # A file may vanish, or lose its permissions, between the search and the read; the others are still read.
            return (Unreadable(source=self.source, reason=explained(error)),)

    @abstractmethod
    async def _documents(self) -> Sequence[Document]:
        """Return its documents. Raises CantRead or OSError."""


class FetchedSource(FoundSource):
    """Source whose documents are in memory, since they were fetched when it was found."""

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


async def held(context: SourceContext, raw: RawDocument) -> FetchedSource | Unreadable:
    """Return a source for fetched bytes, which are read to documents now; `Unreadable` if they can't be read."""
    try:
        contents = await context.read(raw)
    except CantRead as error:
        return Unreadable(source=raw.source, reason=str(error))
    return FetchedSource(raw.source, contents.digest, contents.documents, len(raw.data))


def explained(error: OSError | CantRead) -> str:
    """Return the reason why a file can't be read, for users."""
    return str(error) if isinstance(error, CantRead) else f"the file can't be read: {error.strerror or error}"


Finding = FoundSource | Unreadable


_SHOWN = 500
"""Most characters of a command's stderr in an error."""


def _in_short(said: str) -> str:
    """Shorten the stderr of a command to its first line, which often has the reason, and its last lines."""
    if len(said) <= _SHOWN:
        return said
    first, _, rest = said.partition("\n")
    end = rest[-(_SHOWN - 200) :]
    return "\n".join((first[:200], "[...]", end.partition("\n")[2] or end))
