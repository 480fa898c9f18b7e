"""The files of an agent, carried to whoever plays it: a bundle is known by what is in it, and the same everywhere.

A gateway packs the agent's directory, or that of the file which was named; of an agent of the configuration directory
all agents that lie there, as it may call them. Hidden files, and those that look like keys, stay where they are, and so
do settings and tools, which are each machine's own. A worker unpacks a bundle once, below the cache directory, and
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
from ....supervisors.cluster.telling import put_blob
from ....supervisors.journal.row import hash_of
from ...io import temporary
from ...io.directories import cache_dir, private_directory
from ...runs.as_begun import began_in, relocated
from ...work.library import AGENTS

if TYPE_CHECKING:
    import psycopg

    from ....protocol.agent import Agent
    from ....protocol.journal import Began
    from ....protocol.requests import RunRequest
    from ...runs.durable import Taken

MOST = 8 * 1024 * 1024
"""Bytes of a bundle."""

LEFT_OUT = {"node_modules", "__pycache__", "venv"}
"""Directories that are nobody's agent, beside hidden ones."""

SECRET = (".env", ".pem", ".key", ".age")
"""Endings of files that stay where they are, beside hidden ones."""


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A bundle: files by their path in it, each with whether it may be executed."""

    files: dict[str, tuple[bool, bytes]]


class Bundled(msgspec.Struct, frozen=True):
    """How who plays it finds an agent.

    Attributes:
        target: a path in the bundle; without one, a name that all know.
        hash: of the bundle, None for none; data: all of it, b"" if it is in the cluster already.
    """

    target: str
    hash: bytes | None = None
    data: bytes = b""

    def put(self, db: psycopg.Connection[Any]) -> None:
        """See that the cluster has it."""
        if self.hash is not None and self.data:
            put_blob(db, self.hash, self.data)


class BundleLost(CallboardError):
    """The files of a run are not in the cluster."""

    code = "bundle_lost"


def pack(target: Path, config_dir: Path) -> tuple[bytes, str]:
    """The bundle of an agent's directory or file, and the path of its target in it. Blocks.

    Of an agent of the configuration directory all agents there are in it, as it may call them.

    Raises:
        UsageError: it is too large, can't be read, or lies in a directory that is not for agents.
    """
    target = target.absolute()
    home = target if target.is_dir() else target.parent
    if home in (Path.home(), Path(home.anchor)):
        raise UsageError(
            f"all of {home} would be sent to a worker with {target.name}: put it into a directory of its own"
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
                    f"{home} has more than {MOST // 2**20} MiB, too much to be sent to a worker: "
                    "put the agent into a directory of its own"
                )
            name = str(PurePosixPath(home.name, path.relative_to(home)))
            files[name] = bool(path.stat().st_mode & stat.S_IXUSR), data
    except OSError as error:
        raise UsageError(f"{home} can't be read: {error.strerror or error}") from error
    inner = PurePosixPath(home.name, target.relative_to(home))
    return msgspec.msgpack.Encoder(order="sorted").encode(Packed(files)), str(inner)


def bundled(target: Path, config_dir: Path, environ: Mapping[str, str]) -> Bundled:
    """What is to be sent of an agent's directory or file. Blocks. Raises as `pack` does.

    One that has come in a bundle goes on with all of it, as what it calls may be anywhere in there.
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
    """The request, with a target where this machine has it.

    Args:
        request: its target is a path in the bundle.
        read: gets the bundle.

    Raises:
        BundleLost: it is not there.
    """
    place = _bundles(environ) / hash.hex()
    if not place.is_dir():
        data = await read()
        if data is None or hash_of(data) != hash:
            raise BundleLost("the files of the agent are not in the cluster any more")
        await trio.to_thread.run_sync(_unpack, data, place)
    assert isinstance(request.target, str)
    return msgspec.structs.replace(request, target=str(place / request.target))


def moved(past: Taken, asked: str | Agent, here: str | Agent) -> Taken:
    """A run of another machine, with its files where this one has them.

    Args:
        asked: its target in the bundle; here: where that is.
    """
    old, new = _homes(past.began, asked, here)
    return msgspec.structs.replace(past, past=relocated(past.past, old, new))


def first_row_here(began: Began, asked: str | Agent, here: str | Agent) -> Began:
    """The first row of a run of another machine, with its files where this one has them; see `moved`."""
    return began_in(began, *_homes(began, asked, here))


def _homes(began: Began, asked: str | Agent, here: str | Agent) -> tuple[str, str]:
    """Where the bundle of a run lay when it began, and where it lies here."""
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
                raise BundleLost(f"the bundle has a file {name!r}, which would be outside of it")
            path = new / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o700 if executable else 0o600)
        try:
            new.rename(place)
        except OSError:
            if not place.is_dir():  # if it is, another worker of this machine was faster
                raise
