"""A git repository as a source: one commit is fetched, and read without being checked out.

What a checkout could do to us can't happen, because there is none: no hook, no filter (`.gitattributes`), no
submodule, no link, and no file of a name that the repository has chosen. `ls-tree` says what there is and how large,
`cat-file` hands out what was chosen. The repository is made without templates in a temporary directory, and goes with
it.

Our git's own configuration stays in force: proxies, certificates, credential helpers and `insteadOf` are its user's.
What asks at a terminal is turned off; who needs a password has a credential helper or an agent for keys.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.errors import ConfigError, InvalidFile, NotKept, ProcessError, TimedOut, UpstreamError, UsageError
from .source import Source
from .tree import MIB, MOST_ENTRIES, Entry, Kind, Tree

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.process import Completed

SECONDS = 120.0
"""For fetching; a bundle is small."""

LARGEST = 256 * MIB
"""Bytes of a repository's commit, packed."""

MOST_LISTED = 16 * MIB
"""Bytes of the list of its files."""

PROTOCOLS = "https:ssh:file"

_BOUNDED = f'ulimit -f {LARGEST // 512}; ulimit -v {4 * 1024 * 1024}; exec git "$@"'
"""The kernel ends a git whose pack grows beyond that (twice that, if the shell counts in KiB), or that needs 4 GiB."""

_SETTINGS = ("core.hooksPath=/dev/null", "core.askPass=", "core.fsmonitor=false", "gc.auto=0", "fetch.unpackLimit=1")
_SAFE = tuple(part for setting in _SETTINGS for part in ("-c", setting))
_PLACES = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|NAMESPACE|PREFIX"
    r"|CEILING_DIRECTORIES|TEMPLATE_DIR|ASKPASS|TRACE.*|EXEC_PATH|SHALLOW_FILE|GRAFT_FILE)|SSH_ASKPASS.*"
)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MODES: Mapping[str, Kind] = {"100644": "file", "100755": "file", "120000": "link", "160000": "submodule"}


async def fetch(me: Actor, source: Source, into: Path, environ: Mapping[str, str]) -> Tree:
    """The files of a repository, which is fetched into an empty directory and stays there as long as they are read.

    Raises:
        ConfigError: there is no git.
        UpstreamError: the repository can't be reached, or does not let us in.
        UsageError: it has no such branch, tag or commit.
        InvalidFile: it is too large.
    """
    if shutil.which("git", path=environ.get("PATH")) is None:
        raise ConfigError("git is needed to fetch a bundle, and is not on the PATH; install it, or name a directory")
    git = _Git(me, into, environ, source)
    await git.ask("init", "--bare", "--quiet", "--template=", str(into))
    await git.fetch()
    commit = (await git.ask("rev-parse", "--verify", "--quiet", "callboard^{commit}")).decode().strip()
    # A few small objects can name each other so that there are a billion paths.
    listed = await git.ask("ls-tree", "-r", "-z", "-l", "--full-tree", commit, limit=MOST_LISTED)
    return Tree(entries=tuple(_listed(listed)), read=git.read, commit=commit)


class _Git:
    def __init__(self, me: Actor, home: Path, environ: Mapping[str, str], source: Source) -> None:
        self._me = me
        self._home = home
        self._source = source
        kept = {name: value for name, value in environ.items() if not _PLACES.fullmatch(name)}
        ssh = {} if "GIT_SSH_COMMAND" in kept or "GIT_SSH" in kept else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
        fixed = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": PROTOCOLS, "LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1"}
        self._environ = {**kept, **ssh, **fixed}

    async def fetch(self) -> None:
        """The commit that the source names, alone if its server lets us ask for it alone."""
        ref = self._source.ref or "HEAD"
        done = await self._fetched(f"+{ref}:refs/heads/callboard", "--depth=1")
        if done.status != 0 and _COMMIT.fullmatch(ref):
            # Few servers hand out a commit by a short id, and some by none: among all branches it is found.
            done = await self._fetched("+refs/heads/*:refs/remotes/*")
            if done.status == 0:
                found = await self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
                if found.status != 0:
                    raise UsageError(f"{self._source.url} has no commit '{ref}'")
                await self.ask("update-ref", "refs/heads/callboard", found.stdout.decode().strip())
                return
        if done.status != 0:
            raise self._refused(done)

    async def read(self, entries: Sequence[Entry]) -> dict[str, bytes]:
        """The contents of some files."""
        wanted = "".join(f"{entry.id}\n" for entry in entries)
        room = sum(entry.size for entry in entries) + 200 * len(entries) + 1
        data = await self.ask("cat-file", "--batch", input=wanted.encode(), limit=room)
        found, at = {}, 0
        for entry in entries:
            head, _, _ = data[at : at + 200].partition(b"\n")
            if head.split() != [entry.id.encode(), b"blob", str(entry.size).encode()]:
                raise InvalidFile(f"{self._source.url}: git can't read {entry.path!r}")
            start = at + len(head) + 1
            found[entry.path] = data[start : start + entry.size]
            at = start + entry.size + 1
        return found

    async def ask(self, *arguments: str, input: bytes | None = None, limit: int = 64 * MIB) -> bytes:
        """What a command prints that can only fail by our fault, or that of the disk."""
        done = await self.run(*arguments, input=input, limit=limit, kill=True)
        if done.status != 0 or done.truncated:
            why = "it printed too much" if done.truncated else _last_line(done.stderr_tail) or "it was ended"
            raise InvalidFile(f"git {arguments[0]} of {self._source.url} failed: {why}")
        return done.stdout

    async def run(self, *arguments: str, input: bytes | None = None, limit: int = MIB, kill: bool = False) -> Completed:
        """One command, to its end, or with `kill` until it has printed more than the limit."""
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
            return NotKept(f"{url} can't be fetched: no space is left in {self._home}; TMPDIR names another directory")
        if "index-pack" in said or "out of memory" in said.lower() or done.signal is not None:
            return InvalidFile(f"{url} is no bundle: its commit is larger than {LARGEST // MIB} MiB, or broken")
        if "terminal prompts disabled" in done.stderr_tail:
            return UpstreamError(
                f"{url} is not there, or private; for a private one give git a credential helper, or use its ssh:// URL"
            )
        return UpstreamError(f"{url} can't be fetched: {said or f'git ended with status {done.status}'}")


def _listed(text: bytes) -> Iterator[Entry]:
    """What `ls-tree -z -l` has printed: mode, type, id and size before a tab, and the path."""
    rows = text.split(b"\0")
    if len(rows) > MOST_ENTRIES:
        raise InvalidFile(f"the repository holds more than {MOST_ENTRIES} files, which no bundle does")
    for row in rows:
        about, tab, path = row.partition(b"\t")
        if not tab:
            continue
        mode, _, id, size = about.decode().split()
        kind = _MODES.get(mode, "special")
        # A path that is no UTF-8 is seen as one with surrogates, and refused by `layout`.
        shown = path.decode(errors="surrogateescape")
        bytes_ = int(size) if size.isdecimal() else 0
        yield Entry(path=shown, kind=kind, size=bytes_, executable=mode == "100755", id=id)


def _last_line(text: str) -> str:
    """What git says last, without its own prefix; of a connection by ssh what that says, which git does not repeat."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    last = told[-1] if told else ""
    if "Could not read from remote repository" in last and (place := lines.index(last)):
        last = lines[place - 1]
    return last.removeprefix("fatal:").removeprefix("error:").strip()[:300]
