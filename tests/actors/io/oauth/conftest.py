"""A local authorization server for each test, clocks that can be moved, and a token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing
from support.auth_server import LocalAuthServer, auth_server

from callboard.actors.io.oauth.authorization import authorization
from callboard.actors.io.oauth.endpoint import AuthHttp, TokenEndpoint
from callboard.actors.io.oauth.token import OAuthToken, TokenFile
from callboard.supervisors import Root


class Calendar:
    """The clock of the calendar; `shift` sets it."""

    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Runs as time does, and can jump."""
    return trio.testing.MockClock(rate=1.0)


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
async def server(nursery: trio.Nursery) -> LocalAuthServer:
    return await auth_server(nursery)


@pytest.fixture
def endpoint(server: LocalAuthServer, calendar: Calendar) -> TokenEndpoint:
    return TokenEndpoint(server.client(), AuthHttp({}), calendar)


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "state" / "oauth", "my claude")


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    async with Root() as root:
        yield root


async def signed_in(server: LocalAuthServer, endpoint: TokenEndpoint, file: TokenFile | None = None) -> OAuthToken:
    """The token of a person who has signed in."""
    request = authorization(endpoint.server, "http://127.0.0.1:1/callback")
    token = await endpoint.exchange(request, server.approve(request.url))
    if file is not None:
        await file.put(token, endpoint.server)
    return token
