"""Find all sources that the entries of `documents:` name.

The order is that of the entries, and within an entry that of the names on disk or of the links of a site. A source that
several entries name is yielded once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import UsageError
from .....protocol.knowledge import Unreadable
from ..reading import kinds
from ..reading.limits import CantRead
from ..reading.read import check_size
from . import loaders
from .found import Finding, SourceContext, SourceSettings, held
from .specs import SourceSpec, is_wild, parse
from .walk import DiskFile, WalkedFile, listed, normal, rooted, source_name

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
    context = SourceContext(me, normal(base), settings, environ, history)
    seen: set[str] = set()
    for text in specs:
        async with aclosing(_findings(context, text)) as findings:
            async for finding in findings:
                if finding.source in seen:
                    continue
                seen.add(finding.source)
                yield finding


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
        from . import web

        tree = web.github_tree(context, spec)
        crawled = web.crawl(context, spec) if tree is None else web.github_files(context, spec, tree)
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
    return normal(Path(*rooted(context, target)))
