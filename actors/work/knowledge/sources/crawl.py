"""Crawls: from one page along the links to all that begin with the same prefix, level by level.

A few pages are got at a time and then looked at in the order of the queue, so the same site gives the same sources in
the same order. A site may be endless by mistake or on purpose. So pages and depth are capped; a page whose bytes were
seen under another URL is no source, and its links are not followed; and URLs that grow the way traps make them grow are
left out. What was cut off is reported.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import final

import httpx
import msgspec
import trio
from protego import Protego

from .....protocol.knowledge import Document, Unreadable
from ..reading.bounds import CantRead
from ..reading.kinds import suffix
from ..reading.read import Contents, Raw, read
from . import github
from .found import Desk, Finding, Found, Held
from .specs import Spec
from .trail import Trail, Visit
from .web import Answer, Web

ROBOT = "callboard"
"""What robots.txt calls us."""

ROBOTS_LARGEST = 500 * 1024
ROBOTS_LINES = 5000
"""Characters and lines of a robots.txt that count."""

_VERSION = re.compile(rf"^(\s*+user-agent\s*+:\s*+{ROBOT})/\S*", re.IGNORECASE)

LONGEST = 1000
DEEPEST = 25
REPEATED = 3
"""A part of a path that comes more often is a link that leads into itself."""

_NO_PAGES = frozenset(
    (
        *(
            "png",
            "jpg",
            "jpeg",
            "gif",
            "webp",
            "avif",
            "ico",
            "svg",
            "bmp",
            "tif",
            "tiff",
            "woff",
            "woff2",
            "ttf",
            "otf",
        ),
        *(
            "mp3",
            "mp4",
            "m4a",
            "m4v",
            "mov",
            "avi",
            "mkv",
            "webm",
            "ogg",
            "wav",
            "flac",
            "css",
            "js",
            "mjs",
            "map",
            "zip",
        ),
        *("gz", "bz2", "xz", "zst", "tar", "tgz", "7z", "rar", "jar", "whl", "exe", "msi", "dmg", "iso", "deb", "rpm"),
    )
)


class _Got(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one URL of the queue: what was remembered, or what is new, or why there is nothing."""

    visit: Visit | None = None
    answer: Answer | None = None
    contents: Contents | None = None
    problem: str = ""


async def crawl(desk: Desk, spec: Spec) -> AsyncGenerator[Finding, None]:
    """All pages that `spec` means, and what is wrong with the others."""
    trail = Trail(desk.trail, spec.target, desk.limiter)
    await trail.load()
    async with Web(desk) as web:
        run = _Crawl(desk, web, trail, spec)
        while batch := run.next():
            for found in await run.visit(batch):
                yield found
        if run.queue:
            yield Unreadable(source=spec.text, reason=run.what_is_left())


def robots_in(text: str) -> Protego:
    """The rules of a robots.txt, as far as it counts. A version behind our name means all versions."""
    lines = text[:ROBOTS_LARGEST].splitlines()[:ROBOTS_LINES]
    return Protego.parse("\n".join(_VERSION.sub(r"\1", line) for line in lines))


@final
class _Crawl:
    """One crawl: the queue, and what was seen."""

    def __init__(self, desk: Desk, web: Web, trail: Trail, spec: Spec) -> None:
        self._desk = desk
        self._settings = desk.settings
        self._web = web
        self._trail = trail
        self._scope = _Scope(httpx.URL(spec.target))
        self._robots: dict[str, Protego] = {}
        start = _spelled(httpx.URL(spec.target))
        self._start = start
        self._is_wiki = github.is_wiki(desk, start)
        self._seen = {start}
        self._digests: set[str] = set()
        self._sources: set[str] = set()
        self._visited = 0
        self.queue = deque([(start, 0)])

    def next(self) -> list[tuple[str, int]]:
        """The next few of the queue, with their depth; none if it is empty or enough were got."""
        count = min(self._settings.at_once, self._settings.pages - self._visited, len(self.queue))
        if self._visited == 0:
            count = 1  # the first page says which host it is in the end
        self._visited += count
        return [self.queue.popleft() for _ in range(count)]

    def what_is_left(self) -> str:
        """Why the queue is not empty."""
        pages = self._settings.pages
        return f"{pages} pages were read, which is the limit; {len(self.queue)} more that they link to were not"

    async def visit(self, batch: Sequence[tuple[str, int]]) -> list[Finding]:
        """Get some pages at once, then look at them one after the other."""
        got: dict[str, _Got] = {}

        async def one(url: str) -> None:
            got[url] = await self._get(url)

        async with trio.open_nursery() as nursery:
            for url, _ in batch:
                nursery.start_soon(one, url)
        found: list[Finding] = []
        for url, depth in batch:
            found += await self._taken(url, depth, got[url])
        return found

    # --- getting

    async def _get(self, url: str) -> _Got:
        if known := self._trail.known.get(url):
            return _Got(visit=known)
        target = httpx.URL(url)
        try:
            robots = await self._robots_of(target)
            if not robots.can_fetch(url, ROBOT):
                raise CantRead("its robots.txt wants nobody to read it")
            answer = await self._web.get(url, allowed=self._may_go)
            contents = await read(self._desk.me, self._raw(answer), self._settings.bounds, self._desk.limiter)
        except CantRead as error:
            return _Got(problem=str(error))
        return _Got(answer=answer, contents=contents)

    def _raw(self, answer: Answer) -> Raw:
        return msgspec.structs.replace(answer.raw, within=github.ARTICLE) if self._is_wiki else answer.raw

    def _may_go(self, url: httpx.URL) -> bool:
        return self._scope.holds(url, loosely=self._visited == 1)

    async def _robots_of(self, url: httpx.URL) -> Protego:
        """A host without one allows everything; one whose robots.txt is broken allows nothing until it is mended."""
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if origin not in self._robots:
            text = ""
            try:
                answer = await self._web.get(f"{origin}/robots.txt")
                text = answer.data.decode("utf-8", "replace")
            except CantRead as error:
                if "answered 4" not in str(error):
                    raise CantRead(f"its host's robots.txt can't be read: {error}") from error
            self._robots[origin] = robots = await trio.to_thread.run_sync(robots_in, text)
            self._web.slow_down(robots.crawl_delay(ROBOT) or 0.0)
        return self._robots[origin]

    # --- looking

    async def _taken(self, url: str, depth: int, got: _Got) -> list[Finding]:
        """What one page is, and where it leads."""
        if got.problem:
            if url == self._start and url.endswith("/") and httpx.URL(url).path != "/":
                await self._followed([url.rstrip("/")], depth)  # `docs/**` of a site that knows `docs` only
            return [Unreadable(source=url, reason=got.problem)]
        if got.visit is not None:
            return await self._remembered(got.visit, depth)
        assert got.answer is not None
        assert got.contents is not None
        source = _spelled(httpx.URL(got.answer.url))
        digest = got.contents.digest
        self._scope.add(httpx.URL(source))
        twice = digest in self._digests or source in self._sources
        self._digests.add(digest)
        self._sources.add(source)
        self._seen.add(source)
        links = () if twice else await self._followed(got.contents.links, depth)
        silent = twice or got.contents.kept_out
        size = len(got.answer.data)
        await self._trail.add(Visit(url=url, source=source, digest=digest, size=size, links=links, silent=silent))
        renamed = [msgspec.structs.replace(document, source=source) for document in got.contents.documents]
        return [] if silent else [Held(source, digest, renamed, size)]

    async def _remembered(self, visit: Visit, depth: int) -> list[Finding]:
        self._scope.add(httpx.URL(visit.source))
        self._digests.add(visit.digest)
        self._sources.add(visit.source)
        self._seen.add(visit.source)
        await self._followed(visit.links, depth)
        return [] if visit.silent else [Seen(self._desk, visit)]

    async def _followed(self, links: Sequence[str], depth: int) -> tuple[str, ...]:
        """Put what is new into the queue; what that was. In a thread: a page may have thousands of links."""
        return await trio.to_thread.run_sync(self._follow, links, depth, limiter=self._desk.limiter)

    def _follow(self, links: Sequence[str], depth: int) -> tuple[str, ...]:
        new: list[str] = []
        if depth >= self._settings.depth:
            return ()
        for link in links:
            if len(self._seen) > self._settings.pages * 20:
                break
            url = _spelled_or_nothing(link)
            if url and url not in self._seen and self._is_wanted(url):
                self._seen.add(url)
                self.queue.append((url, depth + 1))
                new.append(url)
        return tuple(new)

    def _is_wanted(self, url: str) -> bool:
        is_page = not self._is_wiki or github.is_article(url)
        return is_page and self._scope.holds(httpx.URL(url)) and not _is_trap(url)


@final
class Seen(Found):
    """A page that an interrupted crawl has seen. Only reading it gets it again."""

    def __init__(self, desk: Desk, visit: Visit) -> None:
        super().__init__(visit.source, size=visit.size)
        self._desk = desk
        self._visit = visit

    async def digest(self) -> str | Unreadable:
        """As it was."""
        return self._visit.digest

    async def documents(self) -> Sequence[Document | Unreadable]:
        """What it says now."""
        try:
            async with Web(self._desk) as web:
                answer = await web.get(self._visit.source)
            within = github.ARTICLE if github.is_wiki(self._desk, self.source) else ""
            raw = msgspec.structs.replace(answer.raw, source=self.source, within=within)
            return (await read(self._desk.me, raw, self._desk.settings.bounds, self._desk.limiter)).documents
        except CantRead as error:
            return (self.unreadable(str(error)),)


@final
class _Scope:
    """Which URLs belong to a crawl: those of its host whose path begins as its own does."""

    def __init__(self, start: httpx.URL) -> None:
        self._host = _bare(start.host)
        self._path = start.raw_path.decode("ascii").partition("?")[0]
        self._origins = {_origin(start)}

    def holds(self, url: httpx.URL, *, loosely: bool = False) -> bool:
        """Whether a URL belongs to it; `loosely`, `www.` and https are as good as none."""
        same_place = _bare(url.host) == self._host if loosely else _origin(url) in self._origins
        path = url.raw_path.decode("ascii").partition("?")[0]
        return same_place and (path.startswith(self._path) or f"{path}/" == self._path)

    def add(self, url: httpx.URL) -> None:
        """Where a page was found is a place of this crawl as well."""
        self._origins.add(_origin(url))


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _bare(host: str) -> str:
    return host.removeprefix("www.")


def _spelled(url: httpx.URL) -> str:
    """One spelling of a URL."""
    return str(url.copy_with(raw_path=url.raw_path, fragment=None))


def _spelled_or_nothing(link: str) -> str:
    try:
        return _spelled(httpx.URL(link)) if len(link) <= LONGEST else ""
    except (httpx.InvalidURL, UnicodeError):
        return ""


def _is_trap(url: str) -> bool:
    path = httpx.URL(url).path
    parts = [part for part in path.split("/") if part]
    if len(parts) > DEEPEST or any(parts.count(part) > REPEATED for part in parts):
        return True
    return suffix(path) in _NO_PAGES
