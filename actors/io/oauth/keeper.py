"""Token renewal: one actor per token, so that any number of callers causes only one refresh.

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

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from ....protocol.errors import CallboardError, ConfigError, OAuthRefused, SignInNeeded, UpstreamError
from ....protocol.events import Warned
from ....protocol.kernel.messages import Message
from ....supervisors.supervisor import ChildSpec, Supervisor
from .token import OAuthToken, TokenLease

if TYPE_CHECKING:
    from ....supervisors import Ref
    from ....supervisors.actor import Actor
    from ....supervisors.root import Root
    from .endpoint import TokenEndpoint
    from .token import TokenFile

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
    """Body of the token's actor."""
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
                raise self._needed("the token was just renewed, and is refused all the same")
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
            raise self._needed("the token is good no more, and cannot be refreshed")
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
            raise UpstreamError(f"{self._who}: the refresh of the token took longer than {REFRESH_WITHIN:g} s")
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
    """Client of one token's actor."""

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
