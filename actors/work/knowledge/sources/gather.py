"""Goes through what stands under `documents:` and finds everything that it names.

    async with aclosing(gather(me, ["./knowledge/", "https://example.com/**"], base=home, environ=os.environ)) as found:
        async for source in found:
            if isinstance(source, Unreadable):
                ...
            elif await source.digest() != known:
                documents = await source.documents()

The order is that of the specs, and within one of them that of the names on disk or of the links of a site. What
several specs name comes once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import UsageError
from .....protocol.knowledge import Unreadable
from .....protocol.references import Secrets
from ..reading import kinds
from ..reading.bounds import CantRead
from ..reading.read import check_size
from . import loaders
from .files import File, listed, rooted, shown
from .found import Desk, Finding, OnFound, SourceSettings, held
from .specs import Spec, is_wild, parse
from .walk import Entry

if TYPE_CHECKING:
    from .....supervisors.actor import Actor

USUAL = SourceSettings()

AT_ONCE = 50
"""Files that are named without letting others have their turn."""


async def gather(
    me: Actor,
    specs: Sequence[str],
    *,
    base: Path,
    environ: Mapping[str, str],
    settings: SourceSettings = USUAL,
    secrets: Secrets | None = None,
    trail: Path | None = None,
    on_found: OnFound | None = None,
) -> AsyncGenerator[Finding, None]:
    """Find all sources.

    Args:
        me: owner of the processes that are needed; must outlive what is found.
        specs: see `specs`.
        base: what relative paths are relative to: the agent's directory.
        environ: for `~`, proxies and loaders.
        secrets: what references in loaders' commands stand for; by default `environ`.
        trail: a directory for what crawls have seen, so that the same call goes on after an interruption; the
            caller removes it after using all that was found.
        on_found: gets the name of each source, readable or not.
    """
    desk = Desk(me, _normal(base), settings, environ, environ if secrets is None else secrets, trail)
    seen: set[str] = set()
    for text in specs:
        async with aclosing(_findings(desk, text)) as findings:
            async for finding in findings:
                if finding.source in seen:
                    continue
                seen.add(finding.source)
                if on_found is not None:
                    on_found(finding.source)
                yield finding


def _normal(path: Path) -> Path:
    """Without `..`, which would end up in names; links stay what they are."""
    return Path(os.path.normpath(path))


async def _findings(desk: Desk, text: str) -> AsyncGenerator[Finding, None]:
    """What one spec names."""
    try:
        spec = parse(text, desk.settings.loaders, crawls=desk.settings.crawls)
        entries = await _entries(desk, spec)
    except UsageError as error:
        yield Unreadable(source=text, reason=str(error))
        return
    for number, entry in enumerate(entries or (), 1):
        if number % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()  # a hundred thousand unchanged files must not stall the loop
        yield _file(desk, spec, entry)
    if entries is not None:
        return
    if spec.kind == "crawl" and "recursive_url" not in desk.settings.loaders:
        from . import crawl, github

        tree = github.tree_of(desk, spec)
        crawled = crawl.crawl(desk, spec) if tree is None else github.files(desk, spec, tree)
        async with aclosing(crawled) as pages:
            async for page in pages:
                yield page
        return
    found = [await _page(desk, spec.target)] if _is_ours(desk, spec) else await _loaded(desk, spec)
    for each in found:
        yield each


async def _entries(desk: Desk, spec: Spec) -> list[Entry] | None:
    """The files of a spec that names files; None for the others."""
    if spec.kind == "path":
        return await listed(desk, spec.target)
    if spec.kind == "loader" and "://" not in spec.target:
        path = _path(desk, spec.target)
        if path.is_file() or (is_wild(spec.target) and not path.exists()):
            return await listed(desk, spec.target)
    return None


def _file(desk: Desk, spec: Spec, entry: Entry) -> Finding:
    source = shown(desk, entry.path, spec.target)
    if entry.problem:
        return Unreadable(source=source, reason=entry.problem)
    loader = spec.loader or kinds.suffix(entry.path)
    try:
        check_size(
            entry.size, "pdf" if loader in desk.settings.loaders else kinds.by_name(entry.path), desk.settings.bounds
        )
    except CantRead as error:
        return Unreadable(source=source, reason=str(error))
    file = File(desk, source, entry)
    return loaders.LoadedFile(desk, loader, file) if loader in desk.settings.loaders else file


def _is_ours(desk: Desk, spec: Spec) -> bool:
    return spec.kind == "page" and "url" not in desk.settings.loaders


async def _page(desk: Desk, url: str) -> Finding:
    """One page. A loader for its ending is given what came."""
    from .web import Web

    try:
        async with Web(desk) as web:
            answer = await web.get(url)
    except CantRead as error:
        return Unreadable(source=url, reason=str(error))
    raw = msgspec.structs.replace(answer.raw, source=url)
    loader = kinds.suffix(raw.path)
    return await (loaders.loaded_bytes(desk, loader, raw) if loader in desk.settings.loaders else held(desk, raw))


async def _loaded(desk: Desk, spec: Spec) -> list[Finding]:
    """What a loader makes of a URL, a directory, or a name that only it knows."""
    if spec.kind != "loader":
        name = "url" if spec.kind == "page" else "recursive_url"
        return await loaders.loaded(desk, name, spec.target, spec.target)
    path = _path(desk, spec.target)
    is_path = "://" not in spec.target and path.exists()
    source = shown(desk, str(path), spec.target) if is_path else spec.target
    return await loaders.loaded(desk, spec.loader, str(path) if is_path else spec.target, source)


def _path(desk: Desk, target: str) -> Path:
    root, rest = rooted(desk, target)
    return _normal(Path(root) / rest)
