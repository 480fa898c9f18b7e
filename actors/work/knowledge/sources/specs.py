"""What a line under `documents:` means.

notes.md                  a file
./knowledge/              a directory, with all that is below
docs/*.md                 a glob: `*` and `?` within a name, `**` any number of directories, `{md,txt}` either
https://example.com/spec  a page
https://example.com/**    all pages below, by their links; of GitHub, see `github`
git:./project             what the command `git` of `document_loaders` makes of `./project`
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


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        text: as it was written.
        kind: what it is. A path may be a file, a directory or a glob, which only the disk can tell.
        target: the path, the URL (of a crawl: where it begins), or what is handed to the loader.
        loader: name of the loader.
    """

    text: str
    kind: Literal["path", "page", "crawl", "loader"]
    target: str
    loader: str = ""


def parse(text: str, loaders: Collection[str] = (), *, crawls: bool = True) -> Spec:
    """Say what a spec means.

    Args:
        loaders: the names that `document_loaders` has.
        crawls: whether `URL**` is allowed here.

    Raises:
        UsageError: it means nothing.
    """
    text = text.strip()
    if not text or "\0" in text:
        raise UsageError("an empty document source; write a path, a glob, a URL or <loader>:<path>")
    name, colon, rest = text.partition(":")
    if colon and name in loaders and rest and not _URL.match(text):
        return Spec(text=text, kind="loader", target=rest, loader=name)
    if _URL.match(text):
        import httpx  # takes longer than all else that a server needs to begin, and most documents are files

        recursive = text.endswith("**")
        try:
            url = httpx.URL(text.removesuffix("**"))
        except (httpx.InvalidURL, ValueError) as error:
            raise UsageError(f"Invalid website '{text}': {error}") from error
        if not url.host or (recursive and not crawls):
            why = "a whole site can't be read here; name one page" if url.host else "there is no host in it"
            raise UsageError(f"Invalid website '{text}': {why}")
        return Spec(text=text, kind="crawl" if recursive else "page", target=str(url.copy_with(fragment=None)))
    if scheme := _SCHEME.match(text):
        known = f"; known loaders: {', '.join(sorted(loaders))}" if loaders else ""
        raise UsageError(f"'{text}': there is no document loader '{scheme[1]}' in config.yaml{known}")
    return Spec(text=text, kind="path", target=text)


def is_wild(path: str) -> bool:
    """Whether a path is a glob."""
    return _WILD.search(path) is not None
