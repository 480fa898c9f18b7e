"""A stage whose agents are served."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner, at_work
from support.mcp_guest import SOON, Client, Serve

from callboard.actors.front.mcp_server.service import ServiceOptions, read_agents
from callboard.actors.front.mcp_server.serving import serve_stdio


@pytest.fixture
def serve(agent_runner: AgentRunner) -> Serve:
    """`serve(...)`, the options of `ServiceOptions`, is a context: a client of a server that offers the stage's
    agents."""

    @asynccontextmanager
    async def served(**options: Any) -> AsyncIterator[Client]:
        offers, _ = read_agents(agent_runner.root)
        there, here = os.pipe(), os.pipe()
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await serve_stdio(
                    agent_runner.root, offers, pipes=(there[0], here[1]), options=ServiceOptions(**options)
                )

            nursery.start_soon(run)
            async with trio.lowlevel.FdStream(here[0]) as reading, trio.lowlevel.FdStream(there[1]) as writing:
                yield Client(reading, writing)
            nursery.cancel_scope.deadline = trio.current_time() + SOON
        assert not nursery.cancel_scope.cancelled_caught, "the server did not end"
        assert at_work(agent_runner.root) == []

    return served


@pytest.fixture(params=["modern", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    """The test must hold in both eras."""
    return str(request.param)
