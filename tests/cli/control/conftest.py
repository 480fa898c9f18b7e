"""Fixtures of the control client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.scripted_control_server import SmallServer

from callboard.cli.control.client import ControlClient, open_client


@pytest.fixture
async def small(nursery: trio.Nursery) -> SmallServer:
    server = SmallServer()
    await nursery.start(server.serve)
    return server


@pytest.fixture
async def client(small: SmallServer) -> AsyncIterator[ControlClient]:
    async with open_client(small.server) as client:
        yield client


@pytest.fixture
def quick_clock(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    """A clock that jumps when nothing has come over loopback for a moment."""
    autojump_clock.autojump_threshold = 0.05
    return autojump_clock
