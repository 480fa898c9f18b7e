"""Web pages as sources: single pages, crawls, and documentation on GitHub.

`io.http.guarded` decides which addresses may be reached. `WebReader` fetches pages, with limits on redirects, time and
size.

A crawl follows the links from one page to all pages with the same prefix, level by level, within the limits of
robots.txt. A few pages are fetched at a time and then processed in the order of the queue, so the same site yields the
same sources in the same order. A site may be endless by mistake or on purpose, so there are these limits:

- The number of pages and the depth are capped.
- A page whose bytes were seen under another URL is no source, and its links are not followed.
- URLs with the patterns of crawler traps are ignored.

The crawl reports the pages that it cut off.

Most of the text of a GitHub page is navigation, so GitHub's API is used where possible:

    https://github.com/owner/repo/tree/main/docs/**  a directory of a branch, from GitHub's own listing
    https://github.com/owner/repo/wiki/**            a crawl that uses only the article of each page

The listing of a branch's files takes one request and has a checksum of each file, so unchanged files are not fetched
again. As in Loki, change logs and licences are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Self, TypeAlias, final
from urllib.parse import quote, unquote

import httpx
import msgspec
import trio
from protego import Protego

from .....protocol.decoding import decode_json
from .....protocol.json_values import UNREADABLE
from .....protocol.knowledge import Document, Unreadable
from ....io.http import guarded
from ..reading import kinds
from ..reading.kinds import suffix
from ..reading.limits import CantRead, megabytes
from ..reading.read import Contents, RawDocument, check_size
from .found import FetchedSource, Finding, FoundSource, SourceContext
from .specs import SourceSpec

PATIENCE = 30.0
"""Longest delay in seconds that an overloaded server may request, once."""

_HEADERS = {
    **guarded.HEADERS,
    "Accept": "text/html, text/*;q=0.9, application/pdf;q=0.8, */*;q=0.5",
}
_ANYTHING = frozenset(("", "application/octet-stream", "binary/octet-stream", "application/zip"))
"""Media types without information about the format, so that the contents decide."""


@final
class WebReader:
    """Client that fetches pages with a delay per host. Use `async with WebReader(context) as web`."""

    def __init__(self, context: SourceContext) -> None:
        self._settings = context.settings
        private, seconds = context.settings.allow_private, context.settings.page_seconds
        self._client = guarded.client(context.environ, allow_private=private, seconds=seconds)
        self._delay = context.settings.delay
        self._turns: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def slow_down(self, seconds: float) -> None:
        """Set the minimum delay between two requests to one host, capped at `PATIENCE`."""
        self._delay = max(self._delay, min(seconds, PATIENCE))

    async def get(self, url: str, *, allowed: Callable[[httpx.URL], bool] | None = None) -> RawDocument:
        """Fetch a page; its `source` is the URL after redirects.

        Args:
            allowed: returns whether a redirect may lead to a URL; anywhere by default.

        Raises:
            CantRead: the page can't be fetched, or has no readable format.
        """
        # Time of the servers, redirects included; the delay between requests is not part of it.
        left = self._settings.page_seconds

        async def once(target: httpx.URL) -> RawDocument | httpx.URL | int:
            """Send one request. Return the seconds to wait if the server asks for a delay."""
            nonlocal left
            await self._turn(target.host)
            began = trio.current_time()
            try:
                with trio.move_on_after(left):
                    async with self._client.stream("GET", target, headers=_HEADERS) as response:
                        wait = response.headers.get("retry-after", "1")
                        # `patiently` repeats once: a crawl must not hang on a server that always asks for more time.
                        if response.status_code in (429, 503) and wait.isdigit() and int(wait) <= PATIENCE:
                            return int(wait)
                        return guarded.redirected(response, target) or await self._raw(target, response)
            finally:
                left = max(0.0, left - (trio.current_time() - began))
            raise CantRead(f"{target.host} did not answer within {self._settings.page_seconds:g} s")

        async def patiently(target: httpx.URL) -> RawDocument | httpx.URL:
            found = await once(target)
            if isinstance(found, int):
                await trio.sleep(found)
                found = await once(target)
            if isinstance(found, int):
                raise CantRead("the server limits the number of requests (HTTP 429); try again later")
            return found

        try:
            return await guarded.followed(url, patiently, allowed=allowed)
        except guarded.Private as error:
            raise CantRead(
                f"{error}; to read pages of private networks, set `rag_private_pages: true` in config.yaml"
            ) from error
        except guarded.CantFetch as error:
            raise CantRead(str(error)) from error

    async def _turn(self, host: str) -> None:
        now = trio.current_time()
        turn = max(self._turns.get(host, now), now)
        # The slot is reserved before the sleep, so that concurrent requests to a host are spaced as well.
        self._turns[host] = turn + self._delay
        await trio.sleep_until(turn)

    async def _raw(self, url: httpx.URL, response: httpx.Response) -> RawDocument:
        status = response.status_code
        if status >= 400 or status in (204, 304):
            raise CantRead(f"the server answered {status} {response.reason_phrase}".strip())
        media = response.headers.get("content-type", "").split(";")[0].strip().lower()
        # Pictures and other binary formats are refused by their type, before they are downloaded.
        if media not in _ANYTHING and not kinds.by_media(media):
            raise CantRead(f"the page is {media}, which is not text")
        most = self._settings.page_bytes
        data = await guarded.body_of(response, most)
        if len(data) > most:
            raise CantRead(f"the page is too large: at most {megabytes(most)} are read of one page")
        charset = response.charset_encoding or ""
        return RawDocument(source=str(url), data=data, path=url.path, media=media, charset=charset)


@final
class PageSource(FoundSource):
    """Page with a known digest; it is fetched only when it is read.

    Args:
        within: see `RawDocument`.
    """

    def __init__(self, context: SourceContext, url: str, digest: str, size: int, within: str = "") -> None:
        super().__init__(url, size=size)
        self._context = context
        self._digest = digest
        self._within = within

    async def digest(self) -> str | Unreadable:
        return self._digest

    async def _documents(self) -> Sequence[Document]:
        async with WebReader(self._context) as web:
            raw = await web.get(self.source)
        raw = msgspec.structs.replace(raw, source=self.source, within=self._within)
        return (await self._context.read(raw)).documents


ROBOT = "callboard"
"""Name of the crawler in robots.txt."""

ROBOTS_LARGEST = 500 * 1024
ROBOTS_LINES = 5000
"""Most characters and lines of a robots.txt that are read."""

_VERSION = re.compile(rf"^(\s*+user-agent\s*+:\s*+{ROBOT})/\S*", re.IGNORECASE)

LONGEST = 1000
DEEPEST = 25
REPEATED = 3
"""Most repetitions of a part in a path; more are taken for a link that leads into itself."""

_ENDINGS = (
    "png jpg jpeg gif webp avif ico svg bmp tif tiff woff woff2 ttf otf mp3 mp4 m4a m4v mov avi mkv webm ogg wav flac"
    " css js mjs map zip gz bz2 xz zst tar tgz 7z rar jar whl exe msi dmg iso deb rpm"
)
_NO_PAGES = frozenset(_ENDINGS.split())


_Got: TypeAlias = "Visit | tuple[RawDocument, Contents] | str"
"""Result for one URL of the queue: a recorded visit, a new document, or the reason for a failure."""


async def crawl(context: SourceContext, spec: SourceSpec) -> AsyncGenerator[Finding, None]:
    """Yield all pages of a spec, and reports about the unreadable ones."""
    history = CrawlHistory(context.history, spec.target, context.limiter)
    await history.load()
    async with WebReader(context) as web:
        run = _Crawl(context, web, history, spec)
        while batch := run.next():
            for found in await run.visit(batch):
                yield found
        if run.queue:
            pages, rest = context.settings.pages, len(run.queue)
            reason = f"{pages} pages were read, which is the limit; {rest} more pages that they link to were not read"
            yield Unreadable(source=spec.text, reason=reason)


def robots_in(text: str) -> Protego:
    """Return the rules of a robots.txt, up to its limits. A version after the crawler's name means all versions."""
    lines = text[:ROBOTS_LARGEST].splitlines()[:ROBOTS_LINES]
    return Protego.parse("\n".join(_VERSION.sub(r"\1", line) for line in lines))


@final
class _Crawl:
    def __init__(self, context: SourceContext, web: WebReader, history: CrawlHistory, spec: SourceSpec) -> None:
        self._context = context
        self._settings = context.settings
        self._web = web
        self._history = history
        self._start_url = httpx.URL(spec.target)
        self._origins = {_origin(self._start_url)}
        self._robots: dict[str, Protego] = {}
        start = _spelled(self._start_url)
        self._start = start
        self._is_wiki = is_wiki(context, start)
        self._within = ARTICLE if self._is_wiki else ""
        self._seen = {start}
        self._digests: set[str] = set()
        self._sources: set[str] = set()
        self._visited = 0
        self.queue = deque([(start, 0)])

    def next(self) -> list[tuple[str, int]]:
        """Return the next URLs of the queue with their depth; none if it is empty or the page limit is reached."""
        count = min(self._settings.at_once, self._settings.pages - self._visited, len(self.queue))
        if self._visited == 0:
            count = 1  # the first page determines the host, since it may redirect
        self._visited += count
        return [self.queue.popleft() for _ in range(count)]

    async def visit(self, batch: Sequence[tuple[str, int]]) -> list[Finding]:
        """Fetch some pages concurrently, then process them one after the other."""
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

    # --- fetching

    async def _get(self, url: str) -> _Got:
        if known := self._history.known.get(url):
            return known
        target = httpx.URL(url)
        try:
            robots = await self._robots_of(target)
            if not robots.can_fetch(url, ROBOT):
                raise CantRead("the site's robots.txt disallows it")
            raw = await self._web.get(url, allowed=lambda url: self._holds(url, loosely=self._visited == 1))
            contents = await self._context.read(msgspec.structs.replace(raw, within=self._within))
        except CantRead as error:
            return str(error)
        return raw, contents

    async def _robots_of(self, url: httpx.URL) -> Protego:
        """Return the rules of a host.

        A host without robots.txt (status 4xx) allows everything. A host whose robots.txt can't be read allows nothing.
        """
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if origin not in self._robots:
            text = ""
            # Only the first page may redirect loosely, to https or `www.`, because it determines the host.
            try:
                answer = await self._web.get(f"{origin}/robots.txt")
                text = answer.data.decode("utf-8", "replace")
            except CantRead as error:
                if "answered 4" not in str(error):
                    raise CantRead(f"the robots.txt of its host can't be read: {error}") from error
            self._robots[origin] = robots = await trio.to_thread.run_sync(robots_in, text)
            self._web.slow_down(robots.crawl_delay(ROBOT) or 0.0)
        return self._robots[origin]

    # --- processing

    async def _taken(self, url: str, depth: int, got: _Got) -> list[Finding]:
        if isinstance(got, str):
            if url == self._start and url.endswith("/") and httpx.URL(url).path != "/":
                await self._followed([url.rstrip("/")], depth)  # `docs/**` of a site that has `docs`, but not `docs/`
            return [Unreadable(source=url, reason=got)]
        if isinstance(got, Visit):
            return await self._remembered(got, depth)
        raw, contents = got
        source = _spelled(httpx.URL(raw.source))
        digest = contents.digest
        # Links are followed on the host to which the first page redirected, too.
        self._origins.add(_origin(httpx.URL(source)))
        twice = digest in self._digests or source in self._sources
        self._digests.add(digest)
        self._sources.add(source)
        self._seen.add(source)
        links = () if twice else await self._followed(contents.links, depth)
        silent = twice or contents.kept_out
        size = len(raw.data)
        await self._history.add(Visit(url=url, source=source, digest=digest, size=size, links=links, silent=silent))
        renamed = [msgspec.structs.replace(document, source=source) for document in contents.documents]
        return [] if silent else [FetchedSource(source, digest, renamed, size)]

    async def _remembered(self, visit: Visit, depth: int) -> list[Finding]:
        self._origins.add(_origin(httpx.URL(visit.source)))
        self._digests.add(visit.digest)
        self._sources.add(visit.source)
        self._seen.add(visit.source)
        await self._followed(visit.links, depth)
        return [] if visit.silent else [PageSource(self._context, visit.source, visit.digest, visit.size, self._within)]

    async def _followed(self, links: Sequence[str], depth: int) -> tuple[str, ...]:
        """Append new links to the queue and return them. Runs in a thread: a page may have thousands of links."""
        return await trio.to_thread.run_sync(self._follow, links, depth, limiter=self._context.limiter)

    def _follow(self, links: Sequence[str], depth: int) -> tuple[str, ...]:
        new: list[str] = []
        if depth >= self._settings.depth:
            return ()
        for link in links:
            # Stop collecting: far more URLs are known than can be fetched, so memory stays bounded.
            if len(self._seen) > self._settings.pages * 20:
                break
            try:
                url = _spelled(httpx.URL(link)) if len(link) <= LONGEST else ""
            except (httpx.InvalidURL, UnicodeError):
                continue
            if url and url not in self._seen and self._is_wanted(url):
                self._seen.add(url)
                self.queue.append((url, depth + 1))
                new.append(url)
        return tuple(new)

    def _is_wanted(self, url: str) -> bool:
        is_page = not self._is_wiki or is_article(url)
        return is_page and self._holds(httpx.URL(url)) and not _is_trap(url)

    def _holds(self, url: httpx.URL, *, loosely: bool = False) -> bool:
        """Return whether a URL belongs to the crawl. `loosely` ignores `www.` and the scheme."""
        start, wanted, path = self._start_url, _path(self._start_url), _path(url)
        same_place = _bare(url.host) == _bare(start.host) if loosely else _origin(url) in self._origins
        return same_place and (path.startswith(wanted) or f"{path}/" == wanted)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _path(url: httpx.URL) -> str:
    return url.raw_path.decode("ascii").partition("?")[0]


def _bare(host: str) -> str:
    return host.removeprefix("www.")


def _spelled(url: httpx.URL) -> str:
    return str(url.copy_with(raw_path=url.raw_path, fragment=None))


def _is_trap(url: str) -> bool:
    path = httpx.URL(url).path
    parts = [part for part in path.split("/") if part]
    if len(parts) > DEEPEST or any(parts.count(part) > REPEATED for part in parts):
        return True
    return suffix(path) in _NO_PAGES


# --- record of a crawl: a file with one line per page, so that an interrupted crawl can resume
#
# The content of pages is not stored. A repeated crawl processes the same queue in the same order, and uses this record
# for pages that it need not fetch again. To fetch all pages again, the caller removes the file.


class Visit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Record of a fetched page.

    Attributes:
        url: the requested URL; `source` is the URL after redirects.
        digest: checksum of its bytes.
        size: number of its bytes.
        links: the links that were new when it was read.
        silent: the page is not a source: it forbids indexing, or repeats another page.
    """

    url: str
    source: str
    digest: str
    size: int = 0
    links: tuple[str, ...] = ()
    silent: bool = False


@final
class CrawlHistory:
    """Record of one crawl.

    Args:
        directory: directory of the file; None for no record.
        target: start URL of the crawl.
        limiter: limiter of the threads that read and write the file.
    """

    def __init__(self, directory: Path | None, target: str, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        name = hashlib.sha256(target.encode()).hexdigest()[:16]
        self._file = directory / f"crawl-{name}.jsonl" if directory is not None else None
        self.known: dict[str, Visit] = {}

    async def load(self) -> None:
        """Read the record of an earlier crawl. Incomplete lines are ignored."""
        if self._file is not None:
            try:
                data = await trio.to_thread.run_sync(self._file.read_bytes, limiter=self._limiter)
            except FileNotFoundError:
                return
            for line in data.splitlines():
                with suppress(*UNREADABLE):
                    visit = decode_json(line, Visit)
                    self.known[visit.url] = visit

    async def add(self, visit: Visit) -> None:
        """Append a fetched page to the record of the crawl."""
        if self._file is not None:
            await trio.to_thread.run_sync(_append, self._file, msgspec.json.encode(visit), limiter=self._limiter)


def _append(file: Path, line: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as trail:
        trail.write(b"\n" + line + b"\n")  # a kill may have cut the line before short


ARTICLE = "wiki-body"
"""Id of the element with the article of a wiki page."""

NO_ARTICLES = frozenset(("_history", "_new", "_edit", "_compare", "_pages", "_delete"))
"""Path components of wiki pages that are not articles."""

_TREE = re.compile(r"/([^/]+)/([^/]+)/tree/([^/]+)(?:/(.*))?")
_WIKI = re.compile(r"/[^/]+/[^/]+/wiki(?:/.*)?")
_DOCUMENTATION = frozenset(("md", "markdown", "mdown", "mdx", "rst", "adoc"))
_NO_DOCUMENTATION = frozenset(("changelog", "changes", "license"))


class GithubDirectory(msgspec.Struct, frozen=True):
    """Directory of a branch of a GitHub repository."""

    owner: str
    repository: str
    branch: str
    directory: str


class _Entry(msgspec.Struct):
    path: str
    type: str
    sha: str = ""
    size: int = 0


class _Listing(msgspec.Struct):
    tree: list[_Entry]
    truncated: bool = False


def github_tree(context: SourceContext, spec: SourceSpec) -> GithubDirectory | None:
    """Return the directory that a crawl names, or None."""
    path = _path_in_repository(context, spec.target)
    if path is None or (found := _TREE.fullmatch(path)) is None:
        return None
    owner, repository, branch, directory = (unquote(part or "") for part in found.groups())
    return GithubDirectory(owner, repository, branch, directory.strip("/"))


def is_wiki(context: SourceContext, url: str) -> bool:
    """Return whether a page belongs to a wiki."""
    path = _path_in_repository(context, url)
    return path is not None and _WIKI.fullmatch(path) is not None


def is_article(url: str) -> bool:
    """Return whether the URL of a GitHub wiki is an article, and not a page about one (`_history`, `_edit`)."""
    return not NO_ARTICLES.intersection(httpx.URL(url).path.split("/"))


def _path_in_repository(context: SourceContext, url: str) -> str | None:
    site = context.settings.github.site
    return httpx.URL(url).path if url.startswith(f"{site}/") else None


async def github_files(
    context: SourceContext, spec: SourceSpec, tree: GithubDirectory
) -> AsyncGenerator[Finding, None]:
    """Yield the documentation files in that directory, sorted by path."""
    try:
        listing = await _listing(context, tree)
    except CantRead as error:
        yield Unreadable(source=spec.text, reason=f"the list of files can't be read from GitHub: {error}")
        return
    # Sorted before the limit cuts, so that each run reads the same files.
    wanted = sorted((entry for entry in listing.tree if _is_wanted(entry, tree)), key=lambda entry: entry.path)
    most = context.settings.pages
    for entry in wanted[:most]:
        yield _found(context, tree, entry)
    if len(wanted) > most:
        yield Unreadable(source=spec.text, reason=f"{most} of {len(wanted)} files were read, which is the limit")
    # GitHub cuts a recursive listing at 100,000 entries or 7 MB, and says so in this field.
    if listing.truncated:
        yield Unreadable(
            source=spec.text, reason="the repository has more files than GitHub lists; name directories of it"
        )
    if not wanted:
        yield Unreadable(
            source=spec.text, reason="the repository has no documentation there (Markdown, reStructuredText, AsciiDoc)"
        )


async def _listing(context: SourceContext, tree: GithubDirectory) -> _Listing:
    # `safe=""`: a branch name may contain a slash, which must not become a path component.
    place = "/".join(quote(part, safe="") for part in (tree.owner, tree.repository, "git", "trees", tree.branch))
    async with WebReader(context) as web:
        answer = await web.get(f"{context.settings.github.api}/repos/{place}?recursive=1")
    try:
        return decode_json(answer.data, _Listing)
    except UNREADABLE as error:
        raise CantRead(f"GitHub's response is not the expected JSON: {error}") from error


def _is_wanted(entry: _Entry, tree: GithubDirectory) -> bool:
    path = PurePosixPath(entry.path)
    return (
        entry.type == "blob"
        and (not tree.directory or path.is_relative_to(tree.directory))
        and kinds.suffix(path.name) in _DOCUMENTATION
        and path.stem.lower() not in _NO_DOCUMENTATION
    )


def _found(context: SourceContext, tree: GithubDirectory, entry: _Entry) -> Finding:
    place = "/".join(quote(part) for part in (tree.owner, tree.repository, tree.branch, entry.path))
    url = f"{context.settings.github.raw}/{place}"
    try:
        check_size(entry.size, kinds.by_name(entry.path), context.settings.bounds)
    except CantRead as error:
        return Unreadable(source=url, reason=str(error))
    return PageSource(context, url, f"git:{entry.sha}", entry.size)  # git's own digest: it changes with the contents
