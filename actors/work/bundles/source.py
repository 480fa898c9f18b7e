"""Source of a bundle: its origin as users write it, and the listing of its files.

An origin is `URL[#ref]` of a git repository, or a directory (`read_source`). A `SourceTree` lists the files before any
of them is on disk, with a function that reads selected ones. `list_folder` lists a directory: symbolic links are
listed, but not followed. `fetch` gets one commit of a repository, and reads it without a checkout.

Problem: a checkout of an untrusted repository can run hooks and filters (`.gitattributes`), fetch submodules, create
links, and write files under names that the repository has chosen. Without a checkout none of this can happen. `ls-tree`
lists paths and sizes, and `cat-file` prints the selected files. The repository is created without templates in a
temporary directory, and deleted with it.

The user's git configuration stays in effect: proxies, certificates, credential helpers and `insteadOf`. Prompts at a
terminal are turned off; users with passwords need a credential helper or an SSH agent.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import trio

from ....protocol.errors import ConfigError, InvalidFile, NotKept, ProcessError, TimedOut, UpstreamError, UsageError
from ...io.imports import PROCESSES, imported
from ...io.secret_redaction import Redactor

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.process import Completed


BUILT_IN = "builtin:"
"""Source of the items that come with Callboard."""

FORMS = (
    "https://…, ssh://…, git@host:path or file://…, optionally followed by #REF (a branch, a tag or a "
    "commit); or a directory"
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

    A directory is used as it is. A directory with `#REF` is used as a git repository.

    Raises:
        UsageError: the text is neither a supported URL nor a directory, or the URL has an invalid ref, a password or a
            token.
    """
    directory = _directory(text, here)
    if directory is not None:
        return BundleSource(url=str(directory), folder=directory)
    url, _, ref = text.partition("#")
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise UsageError(
            f"'{ref[:100]}' can't be a branch, a tag or a commit: only letters, digits and . _ / + - are allowed"
        )
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
            raise UsageError(
                "the URL contains a password, which would be stored in plain text; use git's credential helper instead"
            )
        if Redactor().text(url) != url:
            raise UsageError(
                "the URL contains a token, which would be stored in plain text; use git's credential helper instead"
            )
        return
    if scheme == "http":
        raise UsageError(f"'{shown}' would be fetched without encryption; use https://")
    if not scheme and _SCP.fullmatch(url):
        return
    if scheme or "@" in url or url.startswith("-"):
        raise UsageError(f"'{shown}' can't be fetched; expected {FORMS}")
    raise UsageError(f"'{shown}' is neither a directory nor the URL of a git repository; expected {FORMS}")


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
        """Return the part of the tree below a subdirectory."""
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
    """List the files below a directory, without those in `_PASSED`. Links are listed and not followed.

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
                raise InvalidFile(f"{top / entry.path} is no longer a regular file")
            # One byte more than listed, to notice that the file has grown.
            data = file.read(entry.size + 1)
    except OSError as error:
        raise InvalidFile(f"{top / entry.path} can't be read: {error.strerror or error}") from error
    if len(data) > entry.size:
        raise InvalidFile(f"{top / entry.path} grew while it was read; try again")
    return data


SECONDS = 120.0
"""Timeout of a git command; a bundle is small."""

LARGEST = 256 * MIB
"""Most bytes of a commit's pack."""

MOST_LISTED = 16 * MIB
"""Most bytes of the file list."""

PROTOCOLS = "https:ssh:file"

_BOUNDED = f'ulimit -f {LARGEST // 512}; ulimit -v {4 * 1024 * 1024}; exec git "$@"'
"""Shell command with limits by the kernel: 4 GiB of memory, and `LARGEST` bytes for a pack.

The limit of the pack is twice that in shells that count in KiB.
"""

# No hooks, no prompts, no background work. With unpackLimit=1 the objects stay in one pack, whose size `ulimit` can
# limit.
_SETTINGS = ("core.hooksPath=/dev/null", "core.askPass=", "core.fsmonitor=false", "gc.auto=0", "fetch.unpackLimit=1")
_SAFE = tuple(part for setting in _SETTINGS for part in ("-c", setting))
# Variables that would make git use another repository, ask with a dialog, or write traces.
_PLACES = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|NAMESPACE|PREFIX"
    r"|CEILING_DIRECTORIES|TEMPLATE_DIR|ASKPASS|TRACE.*|EXEC_PATH|SHALLOW_FILE|GRAFT_FILE)|SSH_ASKPASS.*"
)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MODES: Mapping[str, Kind] = {"100644": "file", "100755": "file", "120000": "link", "160000": "submodule"}


async def fetch(me: Actor, source: BundleSource, into: Path, environ: Mapping[str, str]) -> SourceTree:
    """Fetch a repository into an empty directory, which must exist as long as its files are read. Return its files.

    Raises:
        ConfigError: git is not installed.
        UpstreamError: the repository can't be reached within `SECONDS`, or access is denied.
        UsageError: the repository has no such branch, tag or commit.
        InvalidFile: the repository is empty, broken or too large.
        NotKept: no space is left for it.
    """
    if shutil.which("git", path=environ.get("PATH")) is None:
        raise ConfigError(
            "git is needed to fetch a bundle, and is not on the PATH; install git, or name a local directory"
        )
    git = _Git(me, into, environ, source)
    await git.ask("init", "--bare", "--quiet", "--template=", str(into))
    await git.fetch()
    commit = (await git.ask("rev-parse", "--verify", "--quiet", "callboard^{commit}")).decode().strip()
    # Limit of the output: a few small objects can refer to each other so that there are a billion paths.
    listed = await git.ask("ls-tree", "-r", "-z", "-l", "--full-tree", commit, limit=MOST_LISTED)
    return SourceTree(entries=tuple(_listed(listed)), read=git.read, commit=commit)


class _Git:
    def __init__(self, me: Actor, home: Path, environ: Mapping[str, str], source: BundleSource) -> None:
        self._me = me
        self._home = home
        self._source = source
        kept = {name: value for name, value in environ.items() if not _PLACES.fullmatch(name)}
        # A user's own ssh command stays in effect. BatchMode makes ssh fail instead of asking.
        ssh = {} if "GIT_SSH_COMMAND" in kept or "GIT_SSH" in kept else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
        fixed = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": PROTOCOLS, "LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1"}
        self._environ = {**kept, **ssh, **fixed}

    async def fetch(self) -> None:
        """Fetch the commit of the source, alone if the server allows it."""
        ref = self._source.ref or "HEAD"
        done = await self._fetched(f"+{ref}:refs/heads/callboard", "--depth=1")
        if done.status != 0 and _COMMIT.fullmatch(ref):
            # Few servers serve a commit by a short id, and some by none: search it in all branches.
            done = await self._fetched("+refs/heads/*:refs/remotes/*")
            if done.status == 0:
                found = await self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
                if found.status != 0:
                    raise UsageError(f"{self._source.url} has no commit '{ref}'")
                await self.ask("update-ref", "refs/heads/callboard", found.stdout.decode().strip())
                return
        if done.status != 0:
            raise self._refused(done)

    async def read(self, entries: Sequence[SourceFile]) -> dict[str, bytes]:
        """Return the contents of some files."""
        wanted = "".join(f"{entry.id}\n" for entry in entries)
        # 200 bytes are enough for the header line of each object.
        room = sum(entry.size for entry in entries) + 200 * len(entries) + 1
        data = await self.ask("cat-file", "--batch", input=wanted.encode(), limit=room)
        found, at = {}, 0
        for entry in entries:
            # `cat-file --batch` prints a header line with id, type and size before each object.
            head, _, _ = data[at : at + 200].partition(b"\n")
            if head.split() != [entry.id.encode(), b"blob", str(entry.size).encode()]:
                raise InvalidFile(f"{self._source.url}: git can't read {entry.path!r}")
            start = at + len(head) + 1
            found[entry.path] = data[start : start + entry.size]
            at = start + entry.size + 1
        return found

    async def ask(self, *arguments: str, input: bytes | None = None, limit: int = 64 * MIB) -> bytes:
        """Return the output of a command that should always succeed. Raises InvalidFile if it fails."""
        done = await self.run(*arguments, input=input, limit=limit, kill=True)
        if done.status != 0 or done.truncated:
            why = "git printed too much output" if done.truncated else _last_line(done.stderr_tail) or "git was killed"
            raise InvalidFile(f"git {arguments[0]} of {self._source.url} failed: {why}")
        return done.stdout

    async def run(self, *arguments: str, input: bytes | None = None, limit: int = MIB, kill: bool = False) -> Completed:
        """Execute a command to its end, or with `kill` until its output exceeds the limit."""
        await imported(PROCESSES)
        from ....supervisors.process import run_process

        argv = ["/bin/sh", "-c", _BOUNDED, "git", *_SAFE, f"--git-dir={self._home}", *arguments]
        try:
            return await run_process(
                self._me,
                argv,
                name="git",
                input=input,
                env=self._environ,
                cwd=self._home,
                output_limit=limit,
                on_overflow="kill" if kill else "discard",
                timeout=SECONDS,
            )
        except TimedOut as error:
            raise UpstreamError(f"{self._source.url} was not fetched within {SECONDS:g} s") from error
        except ProcessError as error:
            raise ConfigError(f"git is needed to fetch a bundle: {error}") from error

    async def _fetched(self, refs: str, *how: str) -> Completed:
        quiet = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance")
        return await self.run("fetch", *quiet, *how, "--", self._source.url, refs)

    def _refused(self, done: Completed) -> Exception:
        said = _last_line(done.stderr_tail)
        url, ref = self._source.url, self._source.ref
        if ref and ("couldn't find remote ref" in said or "not our ref" in said):
            return UsageError(f"{url} has no branch, tag or commit '{ref}'")
        if "couldn't find remote ref" in said:
            return InvalidFile(f"{url} is an empty repository")
        if "No space left on device" in done.stderr_tail:
            return NotKept(
                f"{url} can't be fetched: no space is left in {self._home}; free some, or set TMPDIR to another "
                "directory"
            )
        if "index-pack" in said or "out of memory" in said.lower() or done.signal is not None:
            return InvalidFile(
                f"{url} can't be used as a bundle: its commit is larger than {LARGEST // MIB} MiB, or broken"
            )
        if "terminal prompts disabled" in done.stderr_tail:
            return UpstreamError(
                f"{url} does not exist or is private; for a private repository configure git's credential "
                "helper, or use its ssh:// URL"
            )
        return UpstreamError(f"{url} can't be fetched: {said or f'git exited with status {done.status}'}")


def _listed(text: bytes) -> Iterator[SourceFile]:
    """Parse the output of `ls-tree -z -l`: mode, type, id and size before a tab, then the path."""
    rows = text.split(b"\0")
    if len(rows) > MOST_ENTRIES:
        raise InvalidFile(f"the repository has more than {MOST_ENTRIES} files, too many for a bundle")
    for row in rows:
        about, tab, path = row.partition(b"\t")
        if not tab:
            continue
        mode, _, id, size = about.decode().split()
        kind = _MODES.get(mode, "special")
        # A path that is not UTF-8 is decoded with surrogates, and refused by `layout`.
        shown = path.decode(errors="surrogateescape")
        bytes_ = int(size) if size.isdecimal() else 0
        yield SourceFile(path=shown, kind=kind, size=bytes_, executable=mode == "100755", id=id)


def _last_line(text: str) -> str:
    """Return the last error of git, without its prefix. For ssh it is the line before, which git does not repeat."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    last = told[-1] if told else ""
    if "Could not read from remote repository" in last and (place := lines.index(last)):
        last = lines[place - 1]
    return last.removeprefix("fatal:").removeprefix("error:").strip()[:300]
