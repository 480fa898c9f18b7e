"""OAuth token: its lifetime, its private file, and its renewal by one actor for all callers.

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

**Renewal.** One actor per token, so that any number of callers causes only one refresh:

    caller                              actor of the token, below /oauth-tokens
    Renew(refused)            ->
                              <-      a lease on a token that is valid for a while, or an error

A caller with a fresh token does not ask the actor (`TokenKeeper`). Others ask, and the actor answers one after another:
the first request causes a refresh, and the rest find a fresh token. A cancelled caller does not affect the refresh,
because it runs in the actor's task. It is shielded there, with a time limit: many refresh tokens are valid once, and
after losing the replacement a user has to sign in again.

Other processes may hold the same token. So it is refreshed under the lock of its file, after reading the file again. It
is read again after a refusal, because a process on another machine may share the directory without the lock. It is also
read regularly, to notice that the user has signed in or out.

    fresh token                         no request, no read
    token near its end                  refresh; if that fails, the old one while it is valid
    the server refused it (401)         refresh, unless the file has another one, or this one was just refreshed
    no refresh token, or it is refused  `SignInNeeded`, until the file changes
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.decoding import json_decoder
from ....protocol.errors import CallboardError, ConfigError, OAuthRefused, SignInNeeded, UpstreamError
from ....protocol.events import Warned
from ....protocol.json_values import UNREADABLE
from ....protocol.kernel.messages import Message
from ....supervisors.supervisor import ChildSpec, Supervisor
from ..atomic_write import write_whole
from ..directories import private_directory
from .authorization import AuthServer

if TYPE_CHECKING:
    from ....supervisors import Ref
    from ....supervisors.actor import Actor
    from ....supervisors.root import Root
    from .endpoint import TokenEndpoint


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
        """Expiry in seconds since 1970; None if the server did not state a lifetime."""
        return None if self.lifetime is None else self.received + self.lifetime

    def remaining(self, now: float) -> float:
        """Return the remaining seconds at the calendar time `now`; never more than the whole lifetime."""
        if self.lifetime is None:
            return math.inf
        return min(self.lifetime, self.received + self.lifetime - now)

    @property
    def early(self) -> float:
        """Number of seconds before its expiry at which the token is refreshed."""
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
        """Seconds until the token expires, by the clock that ends it sooner."""
        return min(self._end - trio.current_time(), self.token.remaining(self._clock()))

    @property
    def fresh(self) -> bool:
        """True if the token is far enough from its expiry that it need not be refreshed yet."""
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
        """Return the token in the bytes of a token file; raises as `read`."""
        try:
            kept = _decode(data)
        except UNREADABLE as error:
            raise self._bad("the file is damaged") from error
        if kept.version != 1:
            raise self._bad(f"the file has version {kept.version}, which this version of Callboard does not know")
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
                        f"another process has held the lock {self._lock_path} for more than {LOCK_WITHIN:g} s"
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
            raise PermissionError(
                errno.EPERM, "the directory is a symbolic link, or belongs to another user", str(self.folder)
            )
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
            raise self._bad("the file is a symbolic link" if link else error.strerror or str(error)) from error
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise self._bad("the path is not a regular file")
            if found.st_uid != os.geteuid():
                raise self._bad("the file belongs to another user")
            if found.st_mode & 0o077:
                raise self._bad(
                    f"other users may read or write the file (mode {stat.S_IMODE(found.st_mode):o}, expected 600)"
                )
            if found.st_size > MOST_BYTES:
                raise self._bad(f"the file is longer than {MOST_BYTES} bytes")
            return os.read(handle, MOST_BYTES)
        except OSError as error:
            raise self._bad(error.strerror or str(error)) from error
        finally:
            os.close(handle)

    def _bad(self, why: str) -> ConfigError:
        return ConfigError(f"the token in {self.path} can't be used: {why}; remove the file and sign in again")


# --- renewal


LOOK = 30.0
"""Seconds after which the file is read again."""

PAUSE = 1.0
"""Seconds after a failed refresh without another attempt."""

JUST_NOW = 30.0
"""Seconds after a refresh in which a refused token is not refreshed again."""

REFRESH_WITHIN = 20.0
"""Time limit of a refresh in seconds; shutdown waits for it."""

DEAD = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token"})
"""Error codes of an invalid refresh token: the standard's, GitHub's, Slack's."""

BOUND = 1 << 30
"""Mailbox limit of the actor: each message belongs to a waiting caller."""


class Renew(Message, frozen=True, tag="Renew"):
    """Request for a token that is valid for a while, and is not the one with the mark `refused`."""

    refused: str = ""


async def keep_token(me: Actor[Renew], endpoint: TokenEndpoint, file: TokenFile, who: str, remedy: str) -> None:
    """Run the actor that renews one token for all callers."""
    held = _Held(me, endpoint, file, who, remedy)
    async for message in me:
        request = me.take_request()
        if not request.waits:
            continue
        try:
            lease = await held.renew(message.refused)
        except CallboardError as error:
            if request.waits:
                request.fail(error)
        else:
            if request.waits:
                request.reply(lease)


class _Held:
    """State of the actor."""

    def __init__(self, me: Actor[Renew], endpoint: TokenEndpoint, file: TokenFile, who: str, remedy: str) -> None:
        self._me = me
        self._endpoint = endpoint
        self._file = file
        self._who = who
        self._remedy = remedy
        self._lease: TokenLease | None = None
        self._data: bytes | None = None  # content of the file at the last read or write
        self._look_at = -math.inf
        self._bad = ""  # mark of a token that was refused before its end
        self._refreshed = -math.inf
        self._again = -math.inf
        self._failed: UpstreamError | ConfigError | None = None
        self._refused: tuple[str, str] = ("", "")  # an invalid refresh token, and the server's text

    async def renew(self, refused: str) -> TokenLease:
        """Return a lease on a token that is valid for a while and is not `refused`."""
        now = trio.current_time()
        if refused and (self._lease is None or refused == self._lease.token.mark):
            if now < self._refreshed + JUST_NOW:
                raise self._needed("the server refuses the token, although it was renewed just now")
            self._bad = refused
        if self._serving is not None and now < self._look_at:
            return self._serving
        await self._check_file()
        if self._serving is not None:
            return self._serving
        held = self._lease
        try:
            return await self._other()
        except (UpstreamError, ConfigError):
            if held is None or held is not self._lease or held.remaining <= 0 or held.token.mark == self._bad:
                raise
            return held

    async def _other(self) -> TokenLease:
        """Return a token after a refresh, unless one has just failed."""
        self._must_hold()
        if self._failed is not None and trio.current_time() < self._again:
            raise _again(self._failed)
        try:
            return await self._refresh()
        except SignInNeeded:
            raise
        except (UpstreamError, ConfigError) as error:
            self._failed, self._again = error, trio.current_time() + PAUSE
            raise

    @property
    def _serving(self) -> TokenLease | None:
        """Token, if it need not be refreshed. A just refreshed one counts even if its life is short."""
        lease = self._lease
        if lease is None or lease.token.mark == self._bad:
            return None
        return lease if lease.fresh or trio.current_time() < self._refreshed + PAUSE else None

    def _must_hold(self) -> TokenLease:
        lease = self._lease
        if lease is None:
            raise self._needed("not signed in")
        if not lease.token.refresh_token:
            raise self._needed("the token has expired or was refused, and there is no refresh token")
        token, words = self._refused
        if token == lease.token.refresh_token:
            raise self._needed(words)
        return lease

    def _needed(self, why: str) -> SignInNeeded:
        return SignInNeeded(f"{self._who}: {why}; sign in: {self._remedy}")

    async def _check_file(self) -> None:
        """Load the token if the content of the file has changed."""
        data = await trio.to_thread.run_sync(self._file.data)
        if data != self._data:
            token = None if data is None else self._file.token_in(data, self._endpoint.server)
            self._lease = None if token is None else TokenLease(token, self._endpoint.clock)
            self._data = data
        self._look_at = trio.current_time() + LOOK

    async def _refresh(self) -> TokenLease:
        async with self._file.locked():
            await self._check_file()
            lease = self._serving
            if lease is not None:
                return lease  # another process has refreshed it
            token = self._must_hold().token
            with self._me.root.shield(REFRESH_WITHIN):
                try:
                    fresh = await self._endpoint.refresh(token)
                except OAuthRefused as error:
                    return await self._was_refused(token, error)
                lease = self._lease = TokenLease(fresh, self._endpoint.clock)
                self._refreshed, self._failed = trio.current_time(), None
                await self._keep(fresh)
        if lease is None:
            raise UpstreamError(f"{self._who}: refreshing the token took longer than {REFRESH_WITHIN:g} s")
        return lease

    async def _was_refused(self, token: OAuthToken, error: OAuthRefused) -> TokenLease:
        await self._check_file()
        if self._serving is not None:
            return self._serving
        if error.error not in DEAD:
            raise OAuthRefused(f"{self._who}: {error}", error=error.error) from error
        self._refused = (token.refresh_token, str(error))
        raise self._needed(str(error)) from error

    async def _keep(self, token: OAuthToken) -> None:
        try:
            self._data = await trio.to_thread.run_sync(self._file.write, token, self._endpoint.server)
        except ConfigError as error:  # the token is valid anyway, for the life of this process
            self._me.emit(Warned(code="token_not_kept", message=f"{self._who}: {error}"))


def _again(error: UpstreamError | ConfigError) -> CallboardError:
    """Copy the error for another caller, so that each has its own traceback."""
    if isinstance(error, UpstreamError):
        return UpstreamError(str(error), status=error.status, retry_after=error.retry_after)
    if isinstance(error, OAuthRefused):
        return OAuthRefused(str(error), error=error.error)
    return type(error)(str(error))


class TokenKeeper:
    """Client of the actor that stores and renews one token, for all callers in the process."""

    def __init__(self, start: Callable[[TokenKeeper], Awaitable[Ref[Renew]]], name: str) -> None:
        self.name = name
        self._start = start
        self.ref: Ref[Renew] | None = None
        self._lease: TokenLease | None = None
        self._ask_at = -math.inf

    async def token(self) -> OAuthToken:
        """Return a token that is valid for a while. No checkpoint if one is cached.

        Raises:
            SignInNeeded: a user has to sign in.
            OAuthRefused: the server refuses the client.
            UpstreamError: it can't be reached, or fails temporarily.
            ConfigError: the file, or an address, is unusable.
        """
        lease = self._lease
        if lease is not None and lease.fresh and trio.current_time() < self._ask_at:
            return lease.token
        return await self._renewed("")

    async def other_than(self, refused: OAuthToken) -> OAuthToken:
        """Return another token after a server answered 401 to this one; raises as `token`."""
        return await self._renewed(refused.mark)

    async def _renewed(self, refused: str) -> OAuthToken:
        if self._lease is not None and self._lease.token.mark == refused:
            self._lease = None
        ref = self.ref or await self._start(self)
        lease: TokenLease = await ref.ask(Renew(refused))
        self._lease, self._ask_at = lease, trio.current_time() + LOOK
        return lease.token


class Keepers:
    """Token keepers of a process; their actors are started at first use, below `/oauth-tokens`.

    Args:
        root: root of the process.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._supervisor = Supervisor(intensity=10)
        self._running: Ref | None = None
        self._opening = trio.Lock()
        self._keepers: dict[str, TokenKeeper] = {}

    def keeper(self, endpoint: TokenEndpoint, file: TokenFile, *, who: str, remedy: str) -> TokenKeeper:
        """Return the keeper of the token in this file; always the same one for a file, a server and its client.

        Args:
            who: name of the token's purpose in errors.
            remedy: command with which a user signs in.
        """
        key = f"{file.path.stem}-{endpoint.server.mark[:8]}"
        found = self._keepers.get(key)
        if found is None:

            async def start(keeper: TokenKeeper) -> Ref[Renew]:
                spec = ChildSpec(
                    name=keeper.name,
                    body=keep_token,
                    args=(endpoint, file, who, remedy),
                    bound=BOUND,
                    stop_within=REFRESH_WITHIN,
                )
                return await self._started(keeper, spec)

            found = self._keepers[key] = TokenKeeper(start, key)
        return found

    async def _started(self, keeper: TokenKeeper, spec: ChildSpec) -> Ref[Renew]:
        async with self._opening:
            if keeper.ref is None:
                if self._running is None:
                    self._running = await self._root.start(self._supervisor, name="oauth-tokens", link=False)
                keeper.ref = await self._supervisor.start_child(spec)
        return keeper.ref
