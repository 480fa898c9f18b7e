"""Keeps a token good: one actor for each, so that however many callers find it old, there is one refresh.

    caller                              actor of the token, below /oauth-tokens
      Renew(refused)            ->
                                <-      a lease on a token that is good for a while, or an error

A caller that holds a fresh token does not ask the actor (`Keeper`). The others ask, and it answers one after another:
the first question makes it refresh the token, and the rest find a fresh one. A caller that is cancelled leaves the
refresh alone, since it runs in the actor's task. It is shielded there, within bounds: servers give out a refresh token
that is good once, and one that is used up with nothing in its place is a person's work.

Other processes may hold the same token. So it is refreshed under the lock of its file, after another look there; again
after a refusal, since a process on another machine may share the directory without the lock; and once in a while, to
see that a person has signed in anew, or out.

    fresh token                         no question, no look
    token near its end                  refresh; where that fails, the old one as long as it is good
    the server refused it (401)         refresh, unless another one is here already, or this one is a moment old
    no refresh token, or it is refused  `SignInNeeded`, until the file says something else
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
from .token import Lease, Token

if TYPE_CHECKING:
    from ....supervisors import Ref
    from ....supervisors.actor import Actor
    from ....supervisors.root import Root
    from .endpoint import TokenEndpoint
    from .token_file import TokenFile

LOOK = 30.0
"""Seconds after which the file is looked at again."""

PAUSE = 1.0
"""Seconds after a refresh that failed in which there is no other one."""

JUST_NOW = 30.0
"""Seconds: a token that was refreshed within them and is refused all the same is not refreshed again."""

REFRESH_WITHIN = 20.0
"""Seconds for a refresh, in which the end of the program waits for it."""

DEAD = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token"})
"""Words for a refresh token that is good no more: the standard's, GitHub's, Slack's."""

BOUND = 1 << 30
"""Mail of an actor: each message belongs to a caller who waits."""


class Renew(Message, frozen=True):
    """I need a token that is good for a while, and another one than that with the mark `refused`."""

    refused: str = ""


async def keep_token(me: Actor[Renew], endpoint: TokenEndpoint, file: TokenFile, who: str, remedy: str) -> None:
    """The actor."""
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
    """What the actor knows."""

    def __init__(self, me: Actor[Renew], endpoint: TokenEndpoint, file: TokenFile, who: str, remedy: str) -> None:
        self._me = me
        self._endpoint = endpoint
        self._file = file
        self._who = who
        self._remedy = remedy
        self._lease: Lease | None = None
        self._data: bytes | None = None  # of the file, when it was last read or written
        self._look_at = -math.inf
        self._bad = ""  # mark of a token that was refused before its end
        self._refreshed = -math.inf
        self._again = -math.inf
        self._failed: UpstreamError | ConfigError | None = None
        self._refused: tuple[str, str] = ("", "")  # a refresh token that is good no more, and the server's words

    async def renew(self, refused: str) -> Lease:
        """A lease on a token that is good for a while; `refused` is not."""
        now = trio.current_time()
        if refused and (self._lease is None or refused == self._lease.token.mark):
            if now < self._refreshed + JUST_NOW:
                raise self._needed("the token was just renewed, and is refused all the same")
            self._bad = refused
        if self._serving is not None and now < self._look_at:
            return self._serving
        await self._look()
        if self._serving is not None:
            return self._serving
        held = self._lease
        try:
            return await self._other()
        except (UpstreamError, ConfigError):
            if held is None or held is not self._lease or held.left <= 0 or held.token.mark == self._bad:
                raise
            return held

    async def _other(self) -> Lease:
        """A token after a refresh, unless one has just failed."""
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
    def _serving(self) -> Lease | None:
        """The token, if it need not be refreshed; one of a moment is not refreshed for each who waits."""
        lease = self._lease
        if lease is None or lease.token.mark == self._bad:
            return None
        return lease if lease.fresh or trio.current_time() < self._refreshed + PAUSE else None

    def _must_hold(self) -> Lease:
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

    async def _look(self) -> None:
        """See whether the file holds something else than when it was last looked at."""
        data = await trio.to_thread.run_sync(self._file.data)
        if data != self._data:
            token = None if data is None else self._file.token_in(data, self._endpoint.server)
            self._lease = None if token is None else Lease(token, self._endpoint.clock)
            self._data = data
        self._look_at = trio.current_time() + LOOK

    async def _refresh(self) -> Lease:
        async with self._file.locked():
            await self._look()
            lease = self._serving
            if lease is not None:
                return lease  # another process has refreshed it
            token = self._must_hold().token
            with self._me.root.shield(REFRESH_WITHIN):
                try:
                    fresh = await self._endpoint.refresh(token)
                except OAuthRefused as error:
                    return await self._was_refused(token, error)
                lease = self._lease = Lease(fresh, self._endpoint.clock)
                self._refreshed, self._failed = trio.current_time(), None
                await self._keep(fresh)
        if lease is None:
            raise UpstreamError(f"{self._who}: the refresh of the token took longer than {REFRESH_WITHIN:g} s")
        return lease

    async def _was_refused(self, token: Token, error: OAuthRefused) -> Lease:
        await self._look()
        if self._serving is not None:
            return self._serving
        if error.error not in DEAD:
            raise OAuthRefused(f"{self._who}: {error}", error=error.error) from error
        self._refused = (token.refresh_token, str(error))
        raise self._needed(str(error)) from error

    async def _keep(self, token: Token) -> None:
        try:
            self._data = await trio.to_thread.run_sync(self._file.write, token, self._endpoint.server)
        except ConfigError as error:  # the token is good all the same, as long as this process lives
            self._me.emit(Warned(code="token_not_kept", message=f"{self._who}: {error}"))


def _again(error: UpstreamError | ConfigError) -> CallboardError:
    """The same error for another caller; each has its own traceback."""
    if isinstance(error, UpstreamError):
        return UpstreamError(str(error), status=error.status, retry_after=error.retry_after)
    if isinstance(error, OAuthRefused):
        return OAuthRefused(str(error), error=error.error)
    return type(error)(str(error))


class Keeper:
    """A caller's side of one token."""

    def __init__(self, start: Callable[[Keeper], Awaitable[Ref[Renew]]], name: str) -> None:
        self.name = name
        self._start = start
        self.ref: Ref[Renew] | None = None
        self._lease: Lease | None = None
        self._ask_at = -math.inf

    async def token(self) -> Token:
        """A token that is good for a while. No checkpoint if one is at hand.

        Raises:
            SignInNeeded: only a person can get one.
            OAuthRefused: the server takes us no more, as it says.
            UpstreamError: it can't be reached, or fails in a way that may pass.
            ConfigError: the file, or an address, can't be used.
        """
        lease = self._lease
        if lease is not None and lease.fresh and trio.current_time() < self._ask_at:
            return lease.token
        return await self._renewed("")

    async def other_than(self, refused: Token) -> Token:
        """Another token, since a server answered 401 to this one; raises as `token`."""
        return await self._renewed(refused.mark)

    async def _renewed(self, refused: str) -> Token:
        if self._lease is not None and self._lease.token.mark == refused:
            self._lease = None
        ref = self.ref or await self._start(self)
        lease: Lease = await ref.ask(Renew(refused))
        self._lease, self._ask_at = lease, trio.current_time() + LOOK
        return lease.token


class Keepers:
    """The keepers of a process; their actors are started at first use, below `/oauth-tokens`.

    Args:
        root: of the process.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._supervisor = Supervisor(intensity=10)
        self._running: Ref | None = None
        self._opening = trio.Lock()
        self._keepers: dict[str, Keeper] = {}

    def keeper(self, endpoint: TokenEndpoint, file: TokenFile, *, who: str, remedy: str) -> Keeper:
        """The keeper of the token in this file; always the same one for a file, a server and a client of it.

        Args:
            who: what the token is for, as errors call it.
            remedy: how a person signs in: a command.
        """
        key = f"{file.path.stem}-{endpoint.server.mark[:8]}"
        found = self._keepers.get(key)
        if found is None:

            async def start(keeper: Keeper) -> Ref[Renew]:
                spec = ChildSpec(
                    name=keeper.name,
                    body=keep_token,
                    args=(endpoint, file, who, remedy),
                    bound=BOUND,
                    stop_within=REFRESH_WITHIN,
                )
                return await self._started(keeper, spec)

            found = self._keepers[key] = Keeper(start, key)
        return found

    async def _started(self, keeper: Keeper, spec: ChildSpec) -> Ref[Renew]:
        async with self._opening:
            if keeper.ref is None:
                if self._running is None:
                    self._running = await self._root.start(self._supervisor, name="oauth-tokens", link=False)
                keeper.ref = await self._supervisor.start_child(spec)
        return keeper.ref
