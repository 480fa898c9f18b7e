"""Token on disk: one private file per token, and a lock between processes.

    oauth/claude-4f1d….json         the token, and the fingerprint of its server and client
    oauth/claude-4f1d….json.lock    empty; the holder of its `flock` may refresh the token

The kernel releases the lock of a dead process, so none is ever stale. The file is replaced atomically, so that a reader
needs no lock. Files that other users could have written or read are refused: a symlink, a file of another user, one
that is open to the group.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from ....protocol.decoding import json_decoder
from ....protocol.errors import ConfigError, UpstreamError
from ....protocol.json_values import UNREADABLE
from ..directories import private_directory
from ..whole_file import write_whole
from .server import AuthServer
from .token import OAuthToken

MOST = 64 * 1024
"""Maximum bytes of a file."""

LOCK_WITHIN = 60.0
"""Seconds to wait for another process, which may be refreshing the token."""

LOOK_EVERY = 0.05
"""Seconds between two attempts to lock."""


class _StoredToken(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Content of the file. `server` is `AuthServer.mark`."""

    version: int = 1
    server: str
    access_token: str
    refresh_token: str = ""
    scopes: tuple[str, ...] = ()
    lifetime: float | None = None
    received: float

    def __repr__(self) -> str:
        return "_Kept()"


_decode = json_decoder(_StoredToken).decode


class TokenFile:
    """File of one token.

    Args:
        folder: private directory, created on demand.
        name: purpose of the token; any text.

    Methods without `async` block.
    """

    def __init__(self, folder: Path, name: str) -> None:
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:48]
        self.folder = folder
        self.path: Path = (
            folder / f"{readable}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.json"
        )

    def read(self, server: AuthServer) -> OAuthToken | None:
        """Return the token; None if there is none, or if it is for another server or another client.

        Raises:
            ConfigError: the file is unusable or unsafe; the text says why and what to do.
        """
        data = self._bytes()
        return None if data is None else self.token_in(data, server)

    def data(self) -> bytes | None:
        """Return the content of the file for comparisons; None if there is none. Raises as `read`."""
        return self._bytes()

    def token_in(self, data: bytes, server: AuthServer) -> OAuthToken | None:
        """Return the token in such content; raises as `read`."""
        try:
            kept = _decode(data)
        except UNREADABLE as error:
            raise self._bad("it is damaged") from error
        if kept.version != 1:
            raise self._bad(f"it is of version {kept.version}, which this program does not know")
        if kept.server != server.mark:
            return None
        return OAuthToken(
            access_token=kept.access_token,
            refresh_token=kept.refresh_token,
            scopes=kept.scopes,
            lifetime=None if kept.lifetime is None else max(0.0, kept.lifetime),
            received=kept.received,
        )

    def write(self, token: OAuthToken, server: AuthServer) -> bytes:
        """Store a token; return the new content of the file.

        Raises:
            ConfigError: it could not be written, and is unchanged.
        """
        kept = _StoredToken(server=server.mark, **msgspec.structs.asdict(token))
        data = msgspec.json.encode(kept)
        try:
            self._make_folder()
            write_whole(self.path, data, private=True, durable=True)  # durable: the old token is worthless now
        except OSError as error:
            raise ConfigError(f"the token can't be kept in {self.path}: {error.strerror or error}") from error
        return data

    def remove(self) -> bool:
        """Delete the file; return True if there was one.

        Raises:
            ConfigError: it could not be deleted.
        """
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"the token in {self.path} can't be removed: {error.strerror or error}") from error
        return True

    async def put(self, token: OAuthToken, server: AuthServer) -> None:
        """Store a token under the lock, so that no other process is refreshing it. Raises as `write`.

        Raises:
            UpstreamError: another process holds the lock for too long.
        """
        async with self.locked():
            await trio.to_thread.run_sync(self.write, token, server)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock between processes for the duration of the block.

        Raises:
            ConfigError: locking is not possible.
            UpstreamError: another process holds it for too long.
        """
        handle = await trio.to_thread.run_sync(self._open_lock)
        try:
            end = trio.current_time() + LOCK_WITHIN
            while not self._lock(handle):
                if trio.current_time() >= end:
                    raise UpstreamError(
                        f"another process keeps {self._lock_path} locked for more than {LOCK_WITHIN:g} s"
                    )
                await trio.sleep(LOOK_EVERY)
            yield
        finally:
            os.close(handle)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    def _open_lock(self) -> int:
        try:
            self._make_folder()
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._lock_path} can't be opened: {error.strerror or error}") from error

    def _lock(self, handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # file systems without locks
            raise ConfigError(f"{self._lock_path} can't be locked: {error.strerror or error}") from error
        return True

    def _make_folder(self) -> None:
        private_directory(self.folder)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "its directory is a link, or belongs to another user", str(self.folder))
        if found.st_mode & 0o077:
            self.folder.chmod(0o700)

    def _bytes(self) -> bytes | None:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            link = error.errno == errno.ELOOP
            raise self._bad("it is a link" if link else error.strerror or str(error)) from error
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise self._bad("it is no file")
            if found.st_uid != os.geteuid():
                raise self._bad("it belongs to another user")
            if found.st_mode & 0o077:
                raise self._bad(f"others may read or write it (mode {stat.S_IMODE(found.st_mode):o}, not 600)")
            if found.st_size > MOST:
                raise self._bad(f"it is longer than {MOST} bytes")
            return os.read(handle, MOST)
        except OSError as error:
            raise self._bad(error.strerror or str(error)) from error
        finally:
            os.close(handle)

    def _bad(self, why: str) -> ConfigError:
        return ConfigError(f"the token in {self.path} can't be used: {why}; remove the file and sign in again")
