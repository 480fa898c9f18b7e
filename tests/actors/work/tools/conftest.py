"""Fixtures of the tests of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from callboard.supervisors import Actor, Root


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    """A kernel root, without signals."""
    async with Root() as kernel:
        yield kernel


@pytest.fixture
async def me(root: Root) -> AsyncIterator[Actor]:
    """An actor below the top: the root reads its own mail, so calls are played by one that does not."""
    begun: list[Actor] = []

    async def idle(me: Actor) -> None:
        begun.append(me)
        await trio.sleep_forever()

    ref = root.actor.spawn(idle, link=False)
    while not begun:
        await trio.lowlevel.checkpoint()
    yield begun[0]
    ref.cancel()
    await ref.wait()
