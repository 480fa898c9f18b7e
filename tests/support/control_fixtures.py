"""Fixtures of the tests of the control channel and of ACP: a hub, a server, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.websocket import WebSocketOptions
from support.agent_runs import AgentRunner
from support.control_frames import Frames, held_against_the_schema
from support.control_hub import ASKS, Client, Served, hub_of
from support.fake_models import FakeModels
from support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def frames() -> Iterator[Frames]:
    """Every frame of every connection is as the schema says."""
    with held_against_the_schema() as frames:
        yield frames


@pytest.fixture
async def root(tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[callboard.Root]:
    """A patient root, whose default model is the scripted one."""
    async with callboard.Root(config_dir=fake_model.config_dir(tmp_path / "config"), patient=True) as root:
        yield root


@pytest.fixture
def agent_runner(root: callboard.Root, fake_model: FakeModels) -> AgentRunner:
    """Writes agents; `asks` asks one question."""
    agent_runner = AgentRunner(root.config_dir, fake_model, root)
    agent_runner.agent(ASKS, "asks")
    return agent_runner


@pytest.fixture
async def hub(root: callboard.Root, tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub with a small ring, so that readers fall behind soon."""
    async with hub_of(root, tmp_path / "state", ring_events=16) as hub:
        yield hub


@pytest.fixture
async def served(root: callboard.Root, hub: Hub, nursery: trio.Nursery) -> Served:
    """A websocket server on that hub.

    It waits as long as the tests do: on a loaded machine, twenty handshakes and pongs in one event loop take longer
    than the server waits otherwise, and trio-websocket does not notice that a server hangs up during a handshake.
    """
    patient = WebSocketOptions(max_frame=64 * 1024, handshake_within=PATIENCE, pong_within=PATIENCE)
    served = Served(root, hub, patient)
    await nursery.start(served.serve)
    return served


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    """A client of it."""
    async with served.connect() as websocket:
        yield Client(websocket)
