"""A stage for MCP: a root, the scripted server (see servers/scripted.py), and connections to it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.waiting import until

from callboard.actors.work.mcp.client.client import McpClient
from callboard.actors.work.mcp.client.connect import OfferedCapabilities, connect
from callboard.protocol.errors import McpError
from callboard.protocol.mcp.config import Server
from callboard.supervisors import Actor, Root

SCRIPTED = Path(__file__).parent / "servers" / "scripted.py"


class Host:
    """Answers servers with what the test says, and notes what they asked, and whose call it was."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.paths: list[str] = []
        self.answer: dict[str, Any] = {"action": "accept", "content": {"answer": "blue"}}
        self.hold: trio.Event | None = None
        self.cancelled = trio.Event()

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((server, dict(params)))
        self.paths.append(me.path)
        if self.hold is not None:
            try:
                await self.hold.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise
        return self.answer

    async def sample(self, me: Actor, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((server, dict(params)))
        if params["messages"][0]["content"]["text"] == "never":
            raise McpError("not by policy", rpc_code=-1)
        return {"role": "assistant", "content": {"type": "text", "text": "sampled"}, "model": "m"}


class Connector:
    """Connects to scripted servers. Each connection has an owner of its own, so its loss is not the test's end."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.host = Host()
        self.changes: list[str] = []
        self.logged: list[Any] = []
        self.owner: Actor

    def server(self, *flags: str, **options: Any) -> Server:
        """The entry of a scripted server with these flags."""
        program: dict[str, Any] = {"command": sys.executable, "args": ("-S", str(SCRIPTED), *flags), **options}
        return Server(name="play", type="stdio", **program)

    @asynccontextmanager
    async def connected(
        self, *flags: str, abilities: OfferedCapabilities | None = None, remembered: str = "", **options: Any
    ) -> AsyncIterator[McpClient]:
        """A client of such a server."""
        holder = await self.root.actor.start(_hold, name="owner", link=False)
        self.owner = holder._actor
        async with connect(
            self.owner,
            self.server(*flags, **options),
            environ=os.environ,
            abilities=abilities or OfferedCapabilities(sampling=True, roots=("file:///work",)),
            host=self.host,
            on_change=self.changes.append,
            on_log=self.logged.append,
            remembered=remembered,
        ) as client:
            yield client
        holder.cancel()
        await holder.wait()


async def _hold(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


@pytest.fixture
async def connector() -> AsyncIterator[Connector]:
    """See `Connector`. Nothing may be left at its end: no task, no process."""
    with trio.fail_after(60):
        async with Root() as root:
            yield Connector(root)
            await until(lambda: not root.processes.live)  # the guardian reports the end of a process after its owner's
    assert not root.tasks


@pytest.fixture(params=["--modern", "--legacy"])
def era(request: pytest.FixtureRequest) -> str:
    """Both eras: the test must hold in each."""
    return str(request.param)


def text_of(result: dict[str, Any]) -> Any:
    """The text of a result with one block."""
    return result["content"][0]["text"]


async def seen_by(client: McpClient) -> list[dict[str, Any]]:
    """The messages that the server has had so far."""
    seen: list[dict[str, Any]] = json.loads(text_of(await client.call_tool("seen", {})))
    return seen
