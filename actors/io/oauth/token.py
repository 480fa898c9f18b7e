"""OAuth token, its lifetime, and its private file.

The server gives the lifetime of a token (`expires_in`) relative to its answer. So its clock does not matter: the
lifetime is counted from the request, by local clocks. In a process that is the monotonic clock (`TokenLease`), on disk
the calendar's. Suspension may stop the first, and a user may set the second. The clock that ends the token sooner
counts, and a calendar that was set back never extends the whole lifetime. A 401 reveals an end that neither clock
shows.

On disk there is one file per token, and a lock between processes:

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
import math
import os
import re
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from ....protocol.decoding import json_decoder
from ....protocol.errors import ConfigError, UpstreamError
from ....protocol.json_values import UNREADABLE
from ..atomic_write import write_whole
from ..directories import private_directory
from .authorization import AuthServer

EARLY = 60.0
"""Seconds before its end at which a token is refreshed, at most a tenth of its lifetime: for the way to the server, and
for clocks of slightly different speed.
"""

LONGEST_LIFETIME = 10 * 365 * 86400.0
"""Maximum lifetime in seconds; longer or invalid ones are cut to ten years."""


class OAuthToken(msgspec.Struct, frozen=True, kw_only=True):
    """Token response of a server.

    Attributes:
        access_token: credential of requests.
        refresh_token: credential for the next token; empty if there is none.
        scopes: granted scopes if the server named them; otherwise the requested ones.
        lifetime: seconds; None if the server gave none.
        received: time of the request, in seconds since 1970.
    """

    access_token: str
    refresh_token: str = ""
    scopes: tuple[str, ...] = ()
    lifetime: float | None = None
    received: float = 0.0

    def __repr__(self) -> str:
        """Return a representation without the token."""
        return f"OAuthToken({self.mark}, lifetime={self.lifetime})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Omit the token from rich tracebacks."""
        return [("mark", self.mark), ("lifetime", self.lifetime)]

    @property
    def mark(self) -> str:
        """Fingerprint of the token for messages and comparisons."""
        return hashlib.sha256(self.access_token.encode()).hexdigest()[:16]

    @property
    def expires(self) -> float | None:
        """End in seconds since 1970; None if unknown."""
        return None if self.lifetime is None else self.received + self.lifetime

    def remaining(self, now: float) -> float:
        """Return the remaining seconds at the calendar time `now`; never more than the whole lifetime."""
        if self.lifetime is None:
            return math.inf
        return min(self.lifetime, self.received + self.lifetime - now)

    @property
    def early(self) -> float:
        """Seconds before its end at which it is refreshed."""
        return 0.0 if self.lifetime is None else min(EARLY, self.lifetime / 10)


class TokenLease:
    """Token in a process, with its end by both clocks.

    Args:
        clock: calendar time in seconds since 1970.
    """

    def __init__(self, token: OAuthToken, clock: Callable[[], float]) -> None:
        self.token = token
        self._clock = clock
        self._end = trio.current_time() + token.remaining(clock())

    @property
    def remaining(self) -> float:
        """Remaining seconds."""
        return min(self._end - trio.current_time(), self.token.remaining(self._clock()))

    @property
    def fresh(self) -> bool:
        """True if it need not be refreshed yet."""
        return self.remaining > self.token.early


MOST_BYTES = 64 * 1024
"""Maximum bytes of a file."""

LOCK_WITHIN = 60.0
"""Seconds to wait for another process, which may be refreshing the token."""

RETRY_EVERY = 0.05
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
        # Without the fields: a token must not get into tracebacks and logs.
        return "_StoredToken()"


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
            raise ConfigError(f"the token can't be stored in {self.path}: {error.strerror or error}") from error
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
            # Polled, because a thread that blocks in `flock` cannot be cancelled.
            while not self._lock(handle):
                if trio.current_time() >= end:
                    raise UpstreamError(
                        f"another process keeps {self._lock_path} locked for more than {LOCK_WITHIN:g} s"
                    )
                await trio.sleep(RETRY_EVERY)
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
        # `lstat`: in a shared directory, another user may have put a link there first.
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "its directory is a link, or belongs to another user", str(self.folder))
        if found.st_mode & 0o077:
            self.folder.chmod(0o700)

    def _bytes(self) -> bytes | None:
        try:
            # O_NONBLOCK: a named pipe must not block here. All checks use the open descriptor, so that the file cannot
            # be exchanged between a check and the read.
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
            if found.st_size > MOST_BYTES:
                raise self._bad(f"it is longer than {MOST_BYTES} bytes")
            return os.read(handle, MOST_BYTES)
        except OSError as error:
            raise self._bad(error.strerror or str(error)) from error
        finally:
            os.close(handle)

    def _bad(self, why: str) -> ConfigError:
        return ConfigError(f"the token in {self.path} can't be used: {why}; remove the file and sign in again")
