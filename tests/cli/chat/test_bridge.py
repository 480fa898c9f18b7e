"""Frames on their way to the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from support.waiting import PATIENCE, POLL

from callboard.cli.chat.bridge import ScreenEnd


def test_a_frame_that_fails_does_not_stop_the_next_ones() -> None:
    taken: list[bytes] = []
    failures: list[str] = []

    def receive(frame: bytes) -> None:
        taken.append(frame)
        if frame == b"bad":
            raise ValueError("bad")

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        end = ScreenEnd(receive)
        end.begin()
        for frame in (b"one", b"bad", b"two"):
            end.put(frame)
        await until(lambda: taken == [b"one", b"bad", b"two"])
        for frame in (b"bad", b"three"):
            end.put(frame)
        await until(lambda: taken == [b"one", b"bad", b"two", b"bad", b"three"])
        await until(lambda: failures == ["bad", "bad"])

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(POLL)

    asyncio.run(play())
