"""Frames on their way to the screen."""

from __future__ import annotations

import asyncio

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
        await asyncio.sleep(0.1)
        for frame in (b"bad", b"three"):
            end.put(frame)
        await asyncio.sleep(0.1)

    asyncio.run(play())
    assert taken == [b"one", b"bad", b"two", b"bad", b"three"]
    assert failures == ["bad", "bad"]
