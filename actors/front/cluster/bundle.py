"""Bundles: the files of an agent, identified by their content hash, which workers unpack.

A gateway packs the directory of the agent or of the named file. For an agent of the configuration directory, it packs
all agents there, because agents may call each other. Hidden files and files that look like keys stay behind, as do
settings and global tools, which belong to each machine. A worker unpacks a bundle once, below the cache directory, and
never changes it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.decoding import msgpack_decoder
from ....protocol.errors import CallboardError, UsageError
from ....supervisors.cluster.queries import put_blob
from ....supervisors.journal.row import hash_of
from ...io import temporary
from ...io.directories import cache_dir, private_directory
from ...runs.pinned_files import began_in, relocated
from ...work.library import AGENTS

if TYPE_CHECKING:
    import psycopg

    from ....protocol.agent import Agent
    from ....protocol.journal import Began
    from ....protocol.requests import RunRequest
    from ...runs.durable import TakenRun

MOST = 8 * 1024 * 1024
"""Maximum bytes of a bundle."""

LEFT_OUT = {"node_modules", "__pycache__", "venv"}
"""Directories that never contain agents; hidden ones are left out as well."""

SECRET = (".env", ".pem", ".key", ".age")
"""Suffixes of files that stay behind; hidden files do as well."""


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """Content of a bundle: files by their path in it, each with its executable flag."""

    files: dict[str, tuple[bool, bytes]]


class Bundled(msgspec.Struct, frozen=True):
    """Reference to the files of an agent in the database, for the worker that executes a run of it.

    Attributes:
        target: path in the bundle; without a bundle, the name of a built-in agent.
        hash: hash of the bundle; None without one.
        data: content of the bundle; b"" if the cluster already has it.
    """

    target: str
    hash: bytes | None = None
    data: bytes = b""

    def put(self, db: psycopg.Connection[Any]) -> None:
        """Store the bundle in the database unless it is already there."""
        if self.hash is not None and self.data:
            put_blob(db, self.hash, self.data)


class BundleLost(CallboardError):
    """Error for a run whose files are not in the cluster."""

    code = "bundle_lost"


def pack(target: Path, config_dir: Path) -> tuple[bytes, str]:
    """Return the bundle of an agent's directory or file, and the path of its target in it. Blocking.

    For an agent of the configuration directory, the bundle contains all agents there.

    Raises:
        UsageError: the bundle is too large or unreadable, or its directory is not meant for agents.
    """
    target = target.absolute()
    home = target if target.is_dir() else target.parent
    # A file directly in the home directory would upload everything else in it.
    if home in (Path.home(), Path(home.anchor)):
        raise UsageError(
            f"{target.name} is directly in {home}, so all of that directory would be sent to a worker; move "
            "the file into a directory of its own"
        )
    agents = config_dir.absolute() / "agents"
    if home != agents and home.is_relative_to(agents):
        home = agents
    files: dict[str, tuple[bool, bytes]] = {}
    size = 0
    try:
        for path in sorted(_files(home)):
            data = path.read_bytes()
            size += len(data)
            if size > MOST:
                raise UsageError(
                    f"{home} has more than {MOST // 2**20} MiB, too much to send to a worker: move the agent "
                    "into a directory of its own"
                )
            name = str(PurePosixPath(home.name, path.relative_to(home)))
            files[name] = bool(path.stat().st_mode & stat.S_IXUSR), data
    except OSError as error:
        raise UsageError(
            f"{error.filename or home} can't be read, so {home} can't be sent to a worker: {error.strerror or error}"
        ) from error
    inner = PurePosixPath(home.name, target.relative_to(home))
    # Sorted keys: equal files must have an equal hash on every machine.
    return msgspec.msgpack.Encoder(order="sorted").encode(Packed(files)), str(inner)


def bundled(target: Path, config_dir: Path, environ: Mapping[str, str]) -> Bundled:
    """Return the bundle for an agent's directory or file. Blocking. Raises as `pack` does.

    A built-in agent has no bundle: the result only names it. An agent that came in a bundle refers to that whole
    bundle, because it may call any agent in it; `data` is then empty.
    """
    target = target.absolute()
    if target.is_relative_to(AGENTS):
        return Bundled(target.relative_to(AGENTS).parts[0])
    place = _bundles(environ)
    if target.is_relative_to(place):
        hash, *inner = target.relative_to(place).parts
        return Bundled(str(PurePosixPath(*inner)), bytes.fromhex(hash))
    data, inside = pack(target, config_dir)
    return Bundled(inside, hash_of(data), data)


def _bundles(environ: Mapping[str, str]) -> Path:
    return cache_dir(environ).absolute() / "bundles"


def _files(home: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(home):
        names[:] = [name for name in names if name not in LEFT_OUT and not name.startswith(".")]
        for name in files:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink() and not name.endswith(SECRET) and not name.startswith("."):
                yield path


async def unpacked(
    request: RunRequest, hash: bytes, read: Callable[[], Awaitable[bytes | None]], environ: Mapping[str, str]
) -> RunRequest:
    """Return the request with the target's path on this machine; unpacks the bundle if needed.

    Args:
        request: its target is a path in the bundle.
        read: returns the bundle.

    Raises:
        BundleLost: the cluster does not have the bundle, or its content is damaged or names a path outside of it.
    """
    place = _bundles(environ) / hash.hex()
    if not place.is_dir():
        data = await read()
        if data is None or hash_of(data) != hash:
            raise BundleLost("the files of the agent are no longer stored in the cluster's database")
        await trio.to_thread.run_sync(_unpack, data, place)
    assert isinstance(request.target, str)
    return msgspec.structs.replace(request, target=str(place / request.target))


def moved(past: TakenRun, asked: str | Agent, here: str | Agent) -> TakenRun:
    """Return a run of another machine with the file paths of this one.

    Args:
        asked: path of its target in the bundle.
        here: path of its target on this machine.
    """
    old, new = _homes(past.began, asked, here)
    return msgspec.structs.replace(past, past=relocated(past.past, old, new))


def localize_first_row(began: Began, asked: str | Agent, here: str | Agent) -> Began:
    """Return the first row of a run of another machine with the file paths of this one; see `moved`."""
    return began_in(began, *_homes(began, asked, here))


def _homes(began: Began, asked: str | Agent, here: str | Agent) -> tuple[str, str]:
    """Return the directory of the unpacked bundle on the first machine, and on this one."""
    there = began.request.target
    assert isinstance(asked, str)
    assert isinstance(here, str)
    assert isinstance(there, str)
    old, new = (place.removesuffix(asked).rstrip(os.sep) for place in (there, here))
    return old, new


def _unpack(data: bytes, place: Path) -> None:
    private_directory(place.parent)
    with temporary.locked_directory(place.parent, ".new-") as new:
        for name, (executable, content) in msgpack_decoder(Packed).decode(data).files.items():
            inner = PurePosixPath(name)
            if inner.is_absolute() or ".." in inner.parts:
                raise BundleLost(f"the bundle contains a file {name!r}, whose path is outside of the bundle")
            path = new / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o700 if executable else 0o600)
        try:
            new.rename(place)
        except OSError:
            if not place.is_dir():  # otherwise another worker on this machine was faster
                raise
