"""Source of a bundle: its origin as users write it, and the listing of its files.

An origin is `URL[#ref]` of a git repository, or a directory (`read_source`). A `SourceTree` lists the files before any
of them is on disk, with a function that reads selected ones. `list_folder` lists a directory: symbolic links are
listed, but not followed. `git` lists a repository.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import trio

from ....protocol.errors import InvalidFile, UsageError
from ...io.secret_redaction import Redactor

BUILT_IN = "builtin:"
"""Source of the items that come with Callboard."""

FORMS = (
    "https://…, ssh://…, git@host:path or file://…, and #REF behind it for a branch, a tag or a commit; or a directory"
)

_REMOTE = re.compile(r"(?:https|ssh)://(?P<user>[^/@\s-][^/@\s]*@)?[A-Za-z0-9\[][^\s/@]*/\S+", re.IGNORECASE)
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!/?$)[^\s:][^\s]*")
_REF = re.compile(r"[A-Za-z0-9._/+][A-Za-z0-9._/+-]{0,199}")


class BundleSource(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a bundle.

    Attributes:
        url: URL for git, absolute path of a directory, or `BUILT_IN`.
        ref: branch, tag or commit; "" for the repository's HEAD.
        folder: the directory; None for a repository.
    """

    url: str
    ref: str = ""
    folder: Path | None = None

    @property
    def name(self) -> str:
        """Default name of the bundle: the last part of the URL."""
        last = re.split(r"[/:]", self.url.rstrip("/:"))[-1].removesuffix(".git")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:64]
        return name or "bundle"

    @property
    def origin(self) -> str:
        """Origin in the form in which users write it."""
        return f"{self.url}#{self.ref}" if self.ref else self.url


def read_source(text: str, here: Path) -> BundleSource:
    """Parse the origin of a bundle; a relative path starts from `here`.

    Raises:
        UsageError: the text is neither a supported URL nor a directory.
    """
    directory = _directory(text, here)
    if directory is not None:
        return BundleSource(url=str(directory), folder=directory)
    url, _, ref = text.partition("#")
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise UsageError(f"'{ref[:100]}' can't be a branch, a tag or a commit: it takes letters, digits and . _ / + -")
    directory = _directory(url, here)
    if directory is not None:
        return BundleSource(url=directory.as_uri(), ref=ref)
    _check(url)
    return BundleSource(url=url, ref=ref)


def _check(url: str) -> None:
    shown = url[:200]
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme == "file" and re.fullmatch(r"file:///\S+", url, re.IGNORECASE):
        return
    found = _REMOTE.fullmatch(url)
    if found is not None:
        if ":" in (found["user"] or ""):
            raise UsageError("the URL contains a password, which would be stored; use git's credential helper instead")
        if Redactor().text(url) != url:
            raise UsageError("the URL contains a token, which would be stored; use git's credential helper instead")
        return
    if scheme == "http":
        raise UsageError(f"'{shown}' would be fetched without encryption; write https://")
    if not scheme and _SCP.fullmatch(url):
        return
    if scheme or "@" in url or url.startswith("-"):
        raise UsageError(f"'{shown}' can't be fetched; expected {FORMS}")
    raise UsageError(f"there is no directory '{shown}', and it is no URL of a git repository; expected {FORMS}")


def _directory(text: str, here: Path) -> Path | None:
    if not text or "://" in text or "\0" in text:
        return None
    try:
        path = (here / Path(text).expanduser()).absolute()
        return path.resolve() if path.is_dir() else None
    except (OSError, RuntimeError):  # the home directory is unknown, or the name is invalid for files
        return None


KIB, MIB = 1024, 1024 * 1024

# --- file listing of a source


MOST_ENTRIES = 50_000
"""Most files of a source; a repository with more is not a bundle."""

Kind: TypeAlias = Literal["file", "link", "submodule", "special"]


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """File of a source.

    Attributes:
        path: path from the top of the source, with `/` between its parts.
        size: size in bytes.
        executable: the file may be started as a program.
        id: id of its contents in the source.
    """

    path: str
    kind: Kind = "file"
    size: int = 0
    executable: bool = False
    id: str = ""


def one_line(text: str) -> str:
    """Return an untrusted text as a single line without control characters, which a terminal could interpret."""
    text = " ".join(text.split())
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


Read: TypeAlias = Callable[[Sequence[SourceFile]], Awaitable[dict[str, bytes]]]


class SourceTree(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a source.

    Attributes:
        commit: commit of a repository; "" for a directory.
        entries: all files, in no order.
        read: returns the contents of some of them, by path.
    """

    entries: tuple[SourceFile, ...]
    read: Read
    commit: str = ""

    def below(self, top: str) -> SourceTree:
        """Return the tree of a subdirectory."""
        if not top:
            return self
        start = f"{top}/"
        inner = {entry.path.removeprefix(start): entry for entry in self.entries if entry.path.startswith(start)}

        async def read(entries: Sequence[SourceFile]) -> dict[str, bytes]:
            found = await self.read([inner[entry.path] for entry in entries])
            return {path.removeprefix(start): data for path, data in found.items()}

        seen = tuple(msgspec.structs.replace(entry, path=path) for path, entry in inner.items())
        return SourceTree(entries=seen, read=read, commit=self.commit)


# --- directories


_PASSED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
"""Directories without files of a bundle, which may be large."""


async def list_folder(directory: Path) -> SourceTree:
    """List the files below a directory.

    Raises:
        InvalidFile: the directory can't be read, or contains too many files.
    """

    async def read(entries: Sequence[SourceFile]) -> dict[str, bytes]:
        return await trio.to_thread.run_sync(lambda: {entry.path: _contents(directory, entry) for entry in entries})

    try:
        entries = await trio.to_thread.run_sync(lambda: tuple(_entries(directory)))
    except OSError as error:
        raise InvalidFile(f"{directory} can't be read: {error.strerror or error}") from error
    return SourceTree(entries=entries, read=read)


def _entries(top: Path) -> Iterator[SourceFile]:
    waiting, count = [""], 0
    while waiting:
        below = waiting.pop()
        with os.scandir(top / below) as found:
            for each in found:
                # Directories count as well: a tree of directories without files must end, too.
                count += 1
                if count > MOST_ENTRIES:
                    raise InvalidFile(f"{top} has more than {MOST_ENTRIES} files, too many for a bundle")
                path = f"{below}{each.name}"
                if not each.is_dir(follow_symlinks=False):
                    yield _entry(path, each.stat(follow_symlinks=False))
                elif each.name not in _PASSED:
                    waiting.append(f"{path}/")


def _entry(path: str, about: os.stat_result) -> SourceFile:
    if stat.S_ISLNK(about.st_mode):
        return SourceFile(path=path, kind="link")
    if not stat.S_ISREG(about.st_mode):
        return SourceFile(path=path, kind="special")
    return SourceFile(path=path, size=about.st_size, executable=bool(about.st_mode & stat.S_IXUSR))


def _contents(top: Path, entry: SourceFile) -> bytes:
    """Return the contents of a file, which may have been replaced since it was listed."""
    try:
        # O_NOFOLLOW and O_NONBLOCK: the file may have become a link, or a named pipe that would block.
        handle = os.open(top / entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidFile(f"{top / entry.path} is no file any more")
            # One byte more than listed, to notice that the file has grown.
            data = file.read(entry.size + 1)
    except OSError as error:
        raise InvalidFile(f"{top / entry.path} can't be read: {error.strerror or error}") from error
    if len(data) > entry.size:
        raise InvalidFile(f"{top / entry.path} has grown while it was read")
    return data
