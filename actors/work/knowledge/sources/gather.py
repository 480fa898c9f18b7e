"""Find all sources that the entries of `documents:` name.

The order is that of the entries, and within an entry that of the names on disk or of the links of a site. A source that
several entries name is yielded once.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import msgspec
import trio

from .....protocol.errors import UsageError
from .....protocol.knowledge import Document, Unreadable
from ..reading import kinds
from ..reading.bounds import CantRead
from ..reading.read import RawDocument, check_size
from . import loaders
from .found import Finding, FoundSource, SourceContext, SourceSettings, explained, held
from .specs import SourceSpec, is_wild, parse
from .walk import Walk, WalkedFile

if TYPE_CHECKING:
    from .....supervisors.actor import Actor

USUAL = SourceSettings()

AT_ONCE = 50
"""Files that are yielded between two checkpoints."""


async def gather(
    me: Actor,
    specs: Sequence[str],
    *,
    base: Path,
    environ: Mapping[str, str],
    settings: SourceSettings = USUAL,
    history: Path | None = None,
) -> AsyncGenerator[Finding, None]:
    """Yield all sources.

    Args:
        me: owner of the processes that are needed; must outlive the yielded sources.
        specs: entries; see `specs`.
        base: directory that relative paths start from: the agent's directory.
        environ: environment for `~`, proxies and loaders.
        history: directory for the records of crawls, so that the same call resumes after an interruption. The caller
            removes it after it has used all sources.
    """
    context = SourceContext(me, _normal(base), settings, environ, history)
    seen: set[str] = set()
    for text in specs:
        async with aclosing(_findings(context, text)) as findings:
            async for finding in findings:
                if finding.source in seen:
                    continue
                seen.add(finding.source)
                yield finding


def _normal(path: Path) -> Path:
    """Remove `..` from a path, which would end up in names; symbolic links stay unresolved."""
    return Path(os.path.normpath(path))


async def _findings(context: SourceContext, text: str) -> AsyncGenerator[Finding, None]:
    try:
        spec = parse(text, context.settings.loaders, crawls=context.settings.crawls)
        entries = await _entries(context, spec)
    except UsageError as error:
        yield Unreadable(source=text, reason=str(error))
        return
    for number, entry in enumerate(entries or (), 1):
        if number % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()  # a hundred thousand unchanged files must not stall the event loop
        yield _file(context, spec, entry)
    if entries is not None:
        return
    if spec.kind == "crawl" and "recursive_url" not in context.settings.loaders:
        from . import crawl, github

        tree = github.tree_of(context, spec)
        crawled = crawl.crawl(context, spec) if tree is None else github.files(context, spec, tree)
        async with aclosing(crawled) as pages:
            async for page in pages:
                yield page
        return
    ours = spec.kind == "page" and "url" not in context.settings.loaders
    found = [await _page(context, spec.target)] if ours else await _loaded(context, spec)
    for each in found:
        yield each


async def _entries(context: SourceContext, spec: SourceSpec) -> list[WalkedFile] | None:
    if spec.kind == "path":
        return await listed(context, spec.target)
    if spec.kind == "loader" and "://" not in spec.target:
        path = _path(context, spec.target)
        if path.is_file() or (is_wild(spec.target) and not path.exists()):
            return await listed(context, spec.target)
    return None


def _file(context: SourceContext, spec: SourceSpec, entry: WalkedFile) -> Finding:
    source = source_name(context, entry.path, spec.target)
    if entry.problem:
        return Unreadable(source=source, reason=entry.problem)
    loader = spec.loader or kinds.suffix(entry.path)
    try:
        # A file for a loader is packed data of any kind, so it gets the larger limit of PDF files.
        kind = "pdf" if loader in context.settings.loaders else kinds.by_name(entry.path)
        check_size(entry.size, kind, context.settings.bounds)
    except CantRead as error:
        return Unreadable(source=source, reason=str(error))
    file = DiskFile(context, source, entry)
    return loaders.LoadedFile(context, loader, file) if loader in context.settings.loaders else file


async def _page(context: SourceContext, url: str) -> Finding:
    """Fetch one page. If there is a loader for its ending, the loader reads it."""
    from .web import WebReader

    try:
        async with WebReader(context) as web:
            found = await web.get(url)
    except CantRead as error:
        return Unreadable(source=url, reason=str(error))
    raw = msgspec.structs.replace(found, source=url)
    loader = kinds.suffix(raw.path)
    return await (
        loaders.loaded_bytes(context, loader, raw) if loader in context.settings.loaders else held(context, raw)
    )


async def _loaded(context: SourceContext, spec: SourceSpec) -> list[Finding]:
    if spec.kind != "loader":
        name = "url" if spec.kind == "page" else "recursive_url"
        return await loaders.loaded(context, name, spec.target, spec.target)
    path = _path(context, spec.target)
    is_path = "://" not in spec.target and path.exists()
    source = source_name(context, str(path), spec.target) if is_path else spec.target
    return await loaders.loaded(context, spec.loader, str(path) if is_path else spec.target, source)


def _path(context: SourceContext, target: str) -> Path:
    return _normal(Path(*rooted(context, target)))


# --- files

T = TypeVar("T")

PIECE = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


async def listed(context: SourceContext, target: str) -> list[WalkedFile]:
    """Return the files that a path names: one file, all files of a directory, or all matches of a glob.

    `a;b`, Loki's syntax for several paths, means both, unless there is a file of that name.

    Raises:
        UsageError: the glob is invalid.
    """

    def look() -> list[WalkedFile]:
        walk = Walk(context.settings.files)
        entries: list[WalkedFile] = []
        several = ";" in target and not Path(*rooted(context, target)).exists()
        for path in [part.strip() for part in target.split(";") if part.strip()] if several else [target]:
            entries = walk.named(*rooted(context, path))  # all results of the walk, including earlier paths
        return entries

    return await trio.to_thread.run_sync(look, limiter=context.limiter, abandon_on_cancel=True)


def rooted(context: SourceContext, target: str) -> tuple[str, str]:
    """Return the directory that a path is relative to, and the path. A home directory is never read as a glob."""
    if target == "~" or target.startswith("~/"):
        return context.environ.get("HOME", "/"), target[2:]
    return str(context.base), target


def source_name(context: SourceContext, path: str, target: str) -> str:
    """Return the name of a file: relative to the base if it is below it or was named relative to it."""
    named_from_elsewhere = target.startswith(("/", "~")) and not Path(path).is_relative_to(context.base)
    name = path if named_from_elsewhere else os.path.relpath(path, context.base)
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@final
class DiskFile(FoundSource):
    """File on disk."""

    def __init__(self, context: SourceContext, source: str, entry: WalkedFile) -> None:
        super().__init__(source, size=entry.size, mtime=entry.mtime)
        self.path = entry.path
        self._context = context

    async def digest(self) -> str | Unreadable:
        """Return its checksum. The file is read in pieces, and not kept in memory."""
        try:
            return await self._in_thread(self._hashed)
        except (OSError, CantRead) as error:
            return Unreadable(source=self.source, reason=explained(error))

    async def _documents(self) -> Sequence[Document]:
        data = await self._in_thread(lambda: b"".join(self._pieces()))
        return (await self._context.read(RawDocument(source=self.source, data=data, path=self.path))).documents

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._context.limiter, abandon_on_cancel=True)

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
        return digest.hexdigest()

    def _pieces(self) -> Iterator[bytes]:
        """Yield its bytes. Type and size are checked again, because the file may have changed since it was found."""
        bounds = self._context.settings.bounds
        # O_NONBLOCK: a path that has become a named pipe must not block here.
        descriptor = os.open(self.path, _FLAGS)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CantRead("it is not a file any more")
            left = max(bounds.packed, bounds.text)
            while piece := file.read(PIECE):
                trio.from_thread.check_cancelled()
                left -= len(piece)
                if left < 0:
                    raise CantRead("it grows while it is read")
                yield piece
