"""Other people's servers in our pool: shared, remembered, and started again when they die."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
from interop.environments import LEGACY, MODERN, command, needs, npm
from support.mcp_processes import McpProcesses
from support.waiting import PATIENCE

from callboard.actors.work.mcp.pool.servers import ServerScope
from callboard.protocol.mcp.model import HANDSHAKE
from callboard.protocol.mcp.model import MODERN as NEWEST
from callboard.supervisors import Actor, Root

pytestmark = needs("modern", "legacy", "node")

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "time": ("get_current_time", {"timezone": "UTC"}),
    "sqlite": ("list_tables", {}),
    "everything": ("echo", {"message": "hello"}),
    "filesystem": ("list_allowed_directories", {}),
    "memory": ("read_graph", {}),
}


async def called(mcp_processes: McpProcesses, scope: ServerScope, name: str) -> None:
    """Have a server do something."""
    tool, arguments = CALLS[name]
    assert await mcp_processes.call(scope, name, tool, **arguments)


async def of_each(names: Iterable[str], work: Callable[[str], Awaitable[object]]) -> None:
    """All at once: they take seconds to start."""
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(work, name)


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    """Five servers on three SDKs."""
    with trio.fail_after(PATIENCE):
        async with Root() as root:
            mcp_processes = McpProcesses(root, tmp_path)
            mcp_processes.build(
                command("time", MODERN / "mcp-server-time"),
                command("sqlite", LEGACY / "mcp-server-sqlite", "--db-path", tmp_path / "test.db"),
                npm("everything"),
                npm("filesystem", tmp_path),
                npm("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}),
            )
            yield mcp_processes
    assert not root.tasks


async def test_twenty_agents_share_five_servers(mcp_processes: McpProcesses) -> None:
    ready = [0]
    together = trio.Event()

    async def agent(me: Actor) -> None:
        with mcp_processes.scope(me.path) as scope:
            await of_each(CALLS, lambda name: called(mcp_processes, scope, name))
            ready[0] += 1
            if ready[0] == 20:
                assert [status.state for status in mcp_processes.servers.status()] == ["leased"] * 5
                together.set()
            await together.wait()

    for ref in [mcp_processes.root.spawn(agent, name=f"agent{number}") for number in range(20)]:
        await ref.wait()
    assert mcp_processes.servers.statistics().spawned == 5


@pytest.mark.soak
async def test_what_they_offer_and_speak_is_remembered(mcp_processes: McpProcesses) -> None:
    with mcp_processes.scope() as scope:
        await of_each(CALLS, lambda name: scope.catalog(name, mcp_processes.root.actor))
    servers = mcp_processes.build(*mcp_processes.config.servers.values())  # as the next process would
    with mcp_processes.scope() as scope:
        found = {name: await scope.catalog(name, mcp_processes.root.actor) for name in servers.config.names}
        assert servers.statistics().spawned == 0
        for name, (tool, _) in CALLS.items():
            assert tool in {each.name for each in found[name].tools}
            assert found[name].version == (NEWEST if name == "time" else HANDSHAKE[0])
        await of_each(CALLS, lambda name: called(mcp_processes, scope, name))
        assert servers.statistics().spawned == 5


async def test_one_that_is_killed_comes_back_and_the_others_stay(mcp_processes: McpProcesses) -> None:
    with mcp_processes.scope() as scope:
        await of_each(CALLS, lambda name: called(mcp_processes, scope, name))
        pids = {status.name: status.pid for status in mcp_processes.servers.status()}
        killed = pids.pop("memory")
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        with trio.fail_after(PATIENCE):
            while mcp_processes.servers.statistics().lost == 0:
                await trio.sleep(0.01)
        assert await mcp_processes.call(scope, "memory", "read_graph")
        after = {status.name: status.pid for status in mcp_processes.servers.status()}
        assert after.pop("memory") != killed
        assert after == pids
