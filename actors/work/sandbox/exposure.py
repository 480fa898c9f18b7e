"""Files that a process could read and hosts that it could reach, derived from its policy without starting a process.

Labels (`work/labels`) need to know which data may be in the output of a process, and where its input may go. The
command line does not show that: any program can read a file or open a connection. The sandbox decides both, so its
rules are the answer. Whatever they do not rule out counts as possible.

`reads` names one path that makes the output private: a path outside of the workspace that is neither installed software
nor a toolchain, or a file in the workspace with the name of a secret. The search stops at the first match. With the
default rules that is a directory in the user's home, found in a millisecond. Only where all of that is hidden is the
workspace itself searched. That result is reused for a hundred times as long as the search took.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import trio

from .backends import backend, is_known
from .hosts import is_unbounded
from .launch import on_path, our_programs
from .policy import is_below, real
from .protected_paths import USED_FOR, is_env_file, no_secrets, secret_files

if TYPE_CHECKING:
    from .grants import Grants
    from .policy import SandboxPlace

Reaches: TypeAlias = Literal["nothing", "listed", "anything"]

SYSTEM = frozenset(
    ("bin", "boot", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "snap", "sys", "usr")
)
"""Directories of the root that hold installed software and settings of the machine. Files in them that only some users
can read still count as private."""

REPLACED = frozenset(("dev", "proc", "run", "tmp"))
"""Directories of the root that bubblewrap replaces with private ones."""

SECRET_NAME = re.compile(
    r".*\.(pem|key|p12|pfx|jks|keystore|kdbx|asc|gpg|tfstate)|id_(rsa|dsa|ed25519|ecdsa)|credentials?(\.\w+)?|"
    r"secrets?(\.\w+)?|passwords?(\.\w+)?|tokens?(\.(txt|json|ya?ml|csv))?|service[-_]account.*\.json|kubeconfig|"
    r"\.(netrc|npmrc|pypirc|git-credentials|htpasswd|pgpass|dockercfg)",
    re.IGNORECASE,
)
"""Names of files that hold keys, passwords, or tokens, in addition to files of variables (`is_env_file`).
"""

SECRET_DIRECTORIES = frozenset((".ssh", ".gnupg", ".aws", ".kube", ".azure", "secrets", ".secrets", "private_keys"))
"""Names of directories in which every file counts as a secret."""

_EXAMPLE = re.compile(r".*[._-](example|sample|template|tmpl|dist)([._-].*)?", re.IGNORECASE)

INSTALLED = ("node_modules", "site-packages", "dist-packages")
"""Directories of packages from an index. Their content is public, test keys and certificates included."""

FOUND_FOR = 5.0
"""Seconds for which an answer about the machine outside of the workspace is reused."""

_SEARCHES: dict[tuple[str, tuple[str, ...], bool], tuple[float, str]] = {}
"""Per search of a workspace: the time until which its result is used, and the result."""

KEPT = 100
"""Cached search results at most."""


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """Private data that a process can read, and hosts that it can reach.

    Attributes:
        reads: a private path that the process can read; "" if there is none.
        reaches: hosts that it can connect to. `listed`: through the proxy, which asks about each host that the user has
            not named.
    """

    reads: str = ""
    reaches: Reaches = "nothing"


UNBOUNDED = Exposure(reads="all files of the user", reaches="anything")
"""Exposure of a process without a sandbox."""


async def exposure_of(
    place: SandboxPlace,
    grants: Grants | None,
    name: str,
    roots: Sequence[str],
    known: dict[tuple[object, ...], tuple[float, str]],
    *,
    ours: bool = False,
) -> Exposure:
    """Return the exposure of processes with these sandbox rules; `UNBOUNDED` if no sandbox applies or works.

    Args:
        grants: grants of the run; None for an MCP server, whose list of hosts can't be extended at run time.
        name: name of the tool, the script, or the server.
        roots: the directories of the workspace, without links.
        known: earlier results of the run, to which this one is added: until when each is used, and the private path.
        ours: the program comes with Callboard, and may reach any host.
    """
    way = backend() if is_known() else await trio.to_thread.run_sync(backend)
    # without a backend the user may allow a start without a sandbox
    if place.profile in ("open", "off") or way.kind == "none":
        return UNBOUNDED
    reaches = _reaches(place, grants, name, has_lists=way.kind == "bubblewrap", ours=ours)
    key = (place.rules.hide, place.rules.show, place.rules.write, way.kind, tuple(roots))
    until, reads = known.get(key, (0.0, ""))
    if time.monotonic() >= until:
        own_root = way.kind == "bubblewrap"
        reads = await trio.to_thread.run_sync(lambda: private_path(place, roots, own_root=own_root))
        known[key] = time.monotonic() + FOUND_FOR, reads
    return Exposure(reads=reads, reaches=reaches)


def _reaches(place: SandboxPlace, grants: Grants | None, name: str, *, has_lists: bool, ours: bool) -> Reaches:
    network = place.network
    if network == "on" or (ours and isinstance(network, tuple)):
        return "anything"
    if grants is not None and grants.is_unbounded(name):
        return "anything"
    if not isinstance(network, tuple):
        return "nothing"
    if is_unbounded(network):
        return "anything"
    if grants is None and not network:
        return "nothing"
    return "listed" if has_lists else "nothing"


def private_path(place: SandboxPlace, roots: Sequence[str], *, own_root: bool) -> str:
    """Return a private path that processes with these rules can read, "" for none. Reads directories.

    Args:
        own_root: the process has a private `/tmp`, `/proc`, and `/run`.
    """
    home = Path(place.home)
    rules = place.rules
    hidden = (
        *secret_files(home, Path(place.config_dir), os.environ),
        *real(place.seen(path) for path in rules.hide),
    )
    public = (
        *roots,
        *no_secrets(home),
        *real(place.seen(path) for path in rules.show),
        *real([place.config_dir, *([place.caches] if place.caches else [])]),
        *our_programs(),
        *on_path(os.environ, place.home),
    )
    # writable paths exist in the sandbox even below hidden ones
    for path in real([*(place.seen(each) for each in rules.write), *place.named]):
        if not any(is_below(path, each) for each in public) and _holds_something(path):
            return path
    skipped = SYSTEM | (REPLACED if own_root else frozenset(("sys",)))
    found = _outside("/", hidden, public, skipped) or _outside(os.path.realpath(home), hidden, public, frozenset())
    if found:
        return found
    if found := _not_for_all("/etc", hidden):
        return found
    return next((found for root in roots if (found := secret_below(root, hidden, env_files=not own_root))), "")


def secret_below(directory: str, hidden: Sequence[str] = (), *, env_files: bool = True) -> str:
    """Return a path below a directory whose name indicates a secret; "" for none. Blocks for the search.

    That may be a file, a directory of secrets that is not empty, or `.git` if git tracks such a file. Directories of
    installed packages do not count.

    Args:
        hidden: paths that do not count.
        env_files: files of variables count as well.
    """
    key = directory, tuple(hidden), env_files
    until, found = _SEARCHES.get(key, (0.0, ""))
    # A cached secret that has been removed must not taint further results.
    if found and not os.path.lexists(found):
        until = 0.0
    began = time.monotonic()
    if began >= until:
        found = next(_secrets(directory, hidden, env_files=env_files), "") or _tracked(directory, hidden)
        now = time.monotonic()
        if len(_SEARCHES) >= KEPT:
            _SEARCHES.pop(next(iter(_SEARCHES)), None)
        _SEARCHES[key] = now + USED_FOR * (now - began), found
    return found


def is_secret_name(name: str, *, env_files: bool = True) -> bool:
    """Return True if the name of a file indicates a secret."""
    if env_files and is_env_file(name):
        return True
    return SECRET_NAME.fullmatch(name) is not None and _EXAMPLE.fullmatch(name) is None


def holds_secret(names: Sequence[str]) -> bool:
    """Return True if the last part of a path is the name of a secret, or any part a directory of secrets."""
    return not SECRET_DIRECTORIES.isdisjoint(names) or (bool(names) and is_secret_name(names[-1]))


def _secrets(directory: str, hidden: Sequence[str], *, env_files: bool) -> Iterator[str]:
    waiting = [directory]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                found = list(entries)
        except OSError:
            continue  # not listable by Callboard, nor by processes that it starts
        # A virtual environment holds installed packages, with their test keys and certificates.
        if place != directory and any(entry.name == "pyvenv.cfg" for entry in found):
            continue
        for entry in found:
            if any(is_below(entry.path, each) for each in hidden):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name in SECRET_DIRECTORIES and _holds_something(entry.path):
                    yield entry.path
                elif entry.name not in INSTALLED:
                    waiting.append(entry.path)
            elif is_secret_name(entry.name, env_files=env_files):
                yield entry.path


def _tracked(directory: str, hidden: Sequence[str]) -> str:
    """Return a secret that git has a copy of: `git show` prints it even if its file is hidden or removed."""
    try:
        index = Path(directory, ".git", "index").read_bytes()
    except OSError:
        return ""
    for match in re.finditer(rb"[\x20-\x7e\x80-\xff]+(?=\0)", index):
        path = os.fsdecode(match[0])
        name = path.rpartition("/")[2]
        if is_secret_name(name) and not any(is_below(f"{directory}/.git", each) for each in hidden):
            return f"{directory}/.git (which has {path})"
    return ""


def _outside(directory: str, hidden: Sequence[str], public: Sequence[str], skipped: frozenset[str]) -> str:
    """Return the first path in a directory that is neither hidden nor public."""
    if any(is_below(directory, each) for each in hidden):
        return ""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return ""
    for name in names:
        path = f"{directory.rstrip('/')}/{name}"
        if name in skipped or os.path.islink(path) or any(is_below(path, each) for each in (*hidden, *public)):
            continue
        if any(is_below(each, path) for each in (*hidden, *public)):
            if found := _outside(path, hidden, public, frozenset()):
                return found
        elif _holds_something(path):
            return path
    return ""


def _holds_something(path: str) -> bool:
    """Return True for a readable file that is not empty, or a readable directory with entries."""
    if not os.access(path, os.R_OK):
        return False
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except NotADirectoryError:
        return os.path.isfile(path) and os.path.getsize(path) > 0
    except OSError:
        return False


def _not_for_all(directory: str, hidden: Sequence[str]) -> str:
    """Return a system file that this user can read and not every user can: a password file, if this is root."""
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if any(is_below(entry.path, each) for each in hidden):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_size and not status.st_mode & 0o004 and os.access(entry.path, os.R_OK):
                            return entry.path
        except OSError:
            continue
    return ""
