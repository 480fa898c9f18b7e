"""Syntax of the entries of `documents:`.

notes.md                  a file
./knowledge/              a directory, with everything below it
docs/*.md                 a glob: `*` and `?` within a name, `**` any number of directories, `{md,txt}` either
https://example.com/spec  a page
https://example.com/**    all pages below, by their links; for GitHub, see `web`
git:./project             output of the command `git` of `document_loaders` for `./project`
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import msgspec

from .....protocol.errors import UsageError

_WILD = re.compile(r"[*?\[{]")
_URL = re.compile(r"https?://", re.IGNORECASE)
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+-]+)://")


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed entry of `documents:`.

    Attributes:
        text: the original text.
        kind: its kind. A path may be a file, a directory or a glob; only the disk can decide.
        target: the path, the URL (the start of a crawl), or the argument of the loader.
        loader: name of the loader.
    """

    text: str
    kind: Literal["path", "page", "crawl", "loader"]
    target: str
    loader: str = ""


def parse(text: str, loaders: Collection[str] = (), *, crawls: bool = True) -> SourceSpec:
    """Parse an entry.

    Args:
        loaders: names of `document_loaders`.
        crawls: `URL**` is allowed.

    Raises:
        UsageError: the entry is invalid.
    """
    text = text.strip()
    if not text or "\0" in text:
        raise UsageError("an empty document source; write a path, a glob, a URL or <loader>:<path>")
    name, colon, rest = text.partition(":")
    if colon and name in loaders and rest and not _URL.match(text):
        return SourceSpec(text=text, kind="loader", target=rest, loader=name)
    if _URL.match(text):
        import httpx  # slow to import: longer than everything else at a server's start, and most documents are files

        recursive = text.endswith("**")
        try:
            url = httpx.URL(text.removesuffix("**"))
        except (httpx.InvalidURL, ValueError) as error:
            raise UsageError(f"Invalid website '{text}': {error}") from error
        if not url.host or (recursive and not crawls):
            why = "only knowledge bases can read a whole site; name one page" if url.host else "the URL has no host"
            raise UsageError(f"Invalid website '{text}': {why}")
        return SourceSpec(text=text, kind="crawl" if recursive else "page", target=str(url.copy_with(fragment=None)))
    if scheme := _SCHEME.match(text):
        known = f"; known loaders: {', '.join(sorted(loaders))}" if loaders else ""
        raise UsageError(f"'{text}': there is no document loader '{scheme[1]}' in config.yaml{known}")
    return SourceSpec(text=text, kind="path", target=text)


def is_wild(path: str) -> bool:
    """Return whether a path is a glob."""
    return _WILD.search(path) is not None
