"""A subscription is made anew for as long as it may be of use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from callboard.actors.work.mcp.client.client import AT_MOST, BACKOFF, Listening
from callboard.protocol.errors import HttpRefused, McpError, McpLost
from callboard.supervisors import Root

Listen = Callable[[int], Awaitable[None]]


class Client:
    """Listens as the test says, and notes when it was asked to."""

    def __init__(self, listen: Listen) -> None:
        self.link: Any = SimpleNamespace(lost=None)
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        self.asked: list[float] = []
        self._listen = listen

    async def listen(self, wanted: Mapping[str, Any]) -> None:
        assert wanted == {"toolsListChanged": True}
        self.asked.append(trio.current_time())
        await self._listen(len(self.asked))


@pytest.fixture
async def root(autojump_clock: trio.testing.MockClock) -> AsyncIterator[Root]:
    async with Root() as root:
        yield root


async def asked(root: Root, listen: Listen, seconds: float) -> list[float]:
    """The seconds between one request and the next."""
    client = Client(listen)
    Listening(client, root.actor, lambda _: None).begin()
    await trio.sleep(seconds)
    return [later - earlier for earlier, later in zip(client.asked, client.asked[1:], strict=False)]


async def test_one_that_lasted_is_made_anew_as_soon_as_the_first(
    root: Root, autojump_clock: trio.testing.MockClock
) -> None:
    async def listen(number: int) -> None:
        await trio.sleep(2 * AT_MOST if number == 5 else 0)

    pauses = await asked(root, listen, 16 + 2 * AT_MOST + 3)
    assert pauses == [1, 2, 4, 8, 2 * AT_MOST + BACKOFF.first, 2]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (McpLost("broken"), True),
        (HttpRefused("busy", 503), True),
        (HttpRefused("what is that?", 404), False),
        (McpError("no such method", rpc_code=-32601), False),
    ],
)
async def test_a_server_that_is_out_of_order_is_asked_again_and_one_that_refuses_is_not(
    root: Root, autojump_clock: trio.testing.MockClock, error: Exception, again: bool
) -> None:
    async def listen(_: int) -> None:
        raise error

    assert bool(await asked(root, listen, 2)) is again
