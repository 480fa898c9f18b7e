"""Sources on GitHub, through its API where possible.

https://github.com/owner/repo/tree/main/docs/**   documentation in a directory of a branch, from GitHub's own listing
https://github.com/owner/repo/wiki/**             a crawl that uses only the article of each page

Most of the text of a GitHub page is navigation. The listing of a branch's files takes one request and has a checksum of
each file, so unchanged files are not fetched again. As in Loki, change logs and licences are left out.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

import httpx
import msgspec

from .....protocol.decoding import decode_json
from .....protocol.json_values import UNREADABLE
from .....protocol.knowledge import Unreadable
from ..reading import kinds
from ..reading.limits import CantRead
from ..reading.read import check_size
from .found import Finding, SourceContext
from .specs import SourceSpec
from .web import PageSource, WebReader

ARTICLE = "wiki-body"
"""Id of the element with the article of a wiki page."""

NO_ARTICLES = frozenset(("_history", "_new", "_edit", "_compare", "_pages", "_delete"))
"""Path components of wiki pages that are not articles."""

_TREE = re.compile(r"/([^/]+)/([^/]+)/tree/([^/]+)(?:/(.*))?")
_WIKI = re.compile(r"/[^/]+/[^/]+/wiki(?:/.*)?")
_DOCUMENTATION = frozenset(("md", "markdown", "mdown", "mdx", "rst", "adoc"))
_NO_DOCUMENTATION = frozenset(("changelog", "changes", "license"))


class GithubDirectory(msgspec.Struct, frozen=True):
    """Directory of a branch."""

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


def tree_of(context: SourceContext, spec: SourceSpec) -> GithubDirectory | None:
    """Return the directory that a crawl names, or None."""
    path = _path(context, spec.target)
    if path is None or (found := _TREE.fullmatch(path)) is None:
        return None
    owner, repository, branch, directory = (unquote(part or "") for part in found.groups())
    return GithubDirectory(owner, repository, branch, directory.strip("/"))


def is_wiki(context: SourceContext, url: str) -> bool:
    """Return whether a page belongs to a wiki."""
    path = _path(context, url)
    return path is not None and _WIKI.fullmatch(path) is not None


def is_article(url: str) -> bool:
    """Return whether a wiki page is an article."""
    return not NO_ARTICLES.intersection(httpx.URL(url).path.split("/"))


def _path(context: SourceContext, url: str) -> str | None:
    site = context.settings.github.site
    return httpx.URL(url).path if url.startswith(f"{site}/") else None


async def files(context: SourceContext, spec: SourceSpec, tree: GithubDirectory) -> AsyncGenerator[Finding, None]:
    """Yield the documentation files in that directory, sorted by path."""
    try:
        listing = await _listing(context, tree)
    except CantRead as error:
        yield Unreadable(source=spec.text, reason=f"GitHub does not list its files: {error}")
        return
    # Sorted before the limit cuts, so that each run reads the same files.
    wanted = sorted((entry for entry in listing.tree if _is_wanted(entry, tree)), key=lambda entry: entry.path)
    most = context.settings.pages
    for entry in wanted[:most]:
        yield _found(context, tree, entry)
    if len(wanted) > most:
        yield Unreadable(
            source=spec.text, reason=f"{most} files were read, which is the limit; {len(wanted)} are there"
        )
    # GitHub cuts a recursive listing at 100,000 entries or 7 MB, and says so in this field.
    if listing.truncated:
        yield Unreadable(source=spec.text, reason="there is too much in it for GitHub to list; name directories of it")
    if not wanted:
        yield Unreadable(source=spec.text, reason="there is no documentation (Markdown, reStructuredText, AsciiDoc)")


async def _listing(context: SourceContext, tree: GithubDirectory) -> _Listing:
    # `safe=""`: a branch name may contain a slash, which must not become a path component.
    place = "/".join(quote(part, safe="") for part in (tree.owner, tree.repository, "git", "trees", tree.branch))
    async with WebReader(context) as web:
        answer = await web.get(f"{context.settings.github.api}/repos/{place}?recursive=1")
    try:
        return decode_json(answer.data, _Listing)
    except UNREADABLE as error:
        raise CantRead(f"its answer is not the expected JSON: {error}") from error


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
