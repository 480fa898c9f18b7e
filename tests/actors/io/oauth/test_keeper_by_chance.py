"""Whatever happens in whatever order, a refresh token is used once, and a token that is given out is good."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from support.auth_server import LocalAuthServer

from callboard.actors.io.oauth.endpoint import TokenEndpoint
from callboard.actors.io.oauth.token import Keepers, OAuthToken, TokenFile, TokenKeeper
from callboard.protocol.errors import SignInNeeded, UpstreamError
from callboard.supervisors import Root

from .conftest import Calendar, signed_in

JUMPS = (0.5, 29.0, 31.0, 600.0, 3500.0, 3600.0, 90_000.0)


class Story:
    """Agents of two processes that share a token, and what befalls them."""

    def __init__(
        self,
        rng: random.Random,
        server: LocalAuthServer,
        endpoint: TokenEndpoint,
        file: TokenFile,
        *keepers: TokenKeeper,
    ) -> None:
        self.rng = rng
        self.server = server
        self.endpoint = endpoint
        self.file = file
        self.keepers = keepers
        self.given = self.needed = 0
        self.failing = False

    async def agent(self, keeper: TokenKeeper, scope: trio.CancelScope) -> None:
        """One request of an agent, as the gateway makes it."""
        with scope:
            try:
                token = await keeper.token()
                if not self.is_good(token):
                    token = await keeper.other_than(token)
                self.given += 1
            except SignInNeeded:
                self.needed += 1
            except UpstreamError:
                assert self.failing

    def is_good(self, token: OAuthToken) -> bool:
        return self.server.is_good(token.access_token)

    async def crowd(self) -> None:
        """Some agents at once, of which some are cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(self.rng.randint(1, 12)):
                scope = trio.CancelScope()
                nursery.start_soon(self.agent, self.rng.choice(self.keepers), scope)
                if self.rng.random() < 0.2:
                    await trio.sleep(self.rng.choice((0.0, 0.001)))
                    scope.cancel()

    async def happens(self, clock: trio.testing.MockClock, calendar: Calendar) -> None:
        """Something."""
        server, rng = self.server, self.rng
        match rng.randrange(9):
            case 0:
                server.expire_all()
            case 1:
                server.revoke_all()
            case 2:
                self.file.remove()
            case 3:
                server.fails = 0
                await signed_in(server, self.endpoint, self.file)
            case 4:
                server.fails = rng.choice((0, 1, 1000))
                self.failing = self.failing or server.fails > 0
            case 5:
                calendar.shift = rng.choice((0.0, -7200.0, 7200.0))
            case 6:
                server.lifetime = rng.choice((None, 0.0, 5.0, 3600.0))
            case _:
                for keeper in self.keepers:  # a refresh whose answer comes too late has used the token all the same
                    await self.agent(keeper, trio.CancelScope())
                clock.jump(rng.choice(JUMPS))
                self.failing = True  # a request that was under way has taken too long


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_a_refresh_token_is_used_once(
    root: Root,
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    file: TokenFile,
    clock: trio.testing.MockClock,
    calendar: Calendar,
    seed: int,
) -> None:
    keepers = [Keepers(root).keeper(endpoint, file, who="x", remedy="y") for _ in range(2)]
    story = Story(random.Random(seed), server, endpoint, file, *keepers)
    await signed_in(server, endpoint, file)
    for _ in range(25):
        await story.crowd()
        await story.happens(clock, calendar)
    assert server.reused == 0
    assert story.given > 0
    server.fails, server.lifetime, calendar.shift = 0, 3600.0, 0.0
    clock.jump(100_000.0)
    await signed_in(server, endpoint, file)
    await story.crowd()
    for keeper in keepers:
        assert story.is_good(await keeper.token())
