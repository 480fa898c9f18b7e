"""Server-sent events: a silent stream is kept alive, a client that left ends it, a HEAD gets its head."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.front.http.streams import EventStream, Say
from callboard.actors.io.http.sse import PING, PING_EVERY, event


async def forever() -> Any:
    """`receive` of a client that stays."""
    await trio.sleep_forever()


async def told(stream: EventStream, receive: Any = forever, method: str = "GET") -> list[tuple[float, bytes]]:
    """When which piece of the body was sent."""
    pieces: list[tuple[float, bytes]] = []
    began = trio.current_time()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            pieces.append((trio.current_time() - began, message["body"]))

    await stream({"type": "http", "method": method}, receive, send)
    return pieces


async def test_silence_is_broken_every_fifteen_seconds_and_only_silence(autojump_clock: MockClock) -> None:
    async def tell(say: Say) -> None:
        for seconds in (10, 10, 40):
            await trio.sleep(seconds)
            await say(event(b"{}", name="x", id=1))

    pieces = await told(EventStream(tell))
    pings = [at for at, piece in pieces if piece == PING]
    assert pings == pytest.approx([0, 20 + PING_EVERY, 20 + 2 * PING_EVERY])
    assert [piece for _, piece in pieces if piece not in (PING, b"")] == [b"id: 1\nevent: x\ndata: {}\n\n"] * 3


async def test_a_client_that_leaves_ends_what_is_told(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def tell(_: Say) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("told")

    async def leaves() -> Any:
        await trio.sleep(3)
        return {"type": "http.disconnect"}

    assert [at for at, _ in await told(EventStream(tell), leaves)] == [0]
    assert ended == ["told"]


async def test_a_head_is_told_nothing() -> None:
    async def tell(_: Say) -> None:
        raise AssertionError("nobody asked for it")

    assert [piece for _, piece in await told(EventStream(tell), method="HEAD")] == [b""]
