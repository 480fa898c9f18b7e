"""Callboard's MCP client: bare (`connect`), and as agents have it, leased from the pool for each call."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from _mcp import CLOCKS, SERVER, TEXT, Clock, above_raw, wall
from _serve import serve

from callboard.actors.work.mcp.client.connect import OfferedCapabilities, connect
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.actors.work.mcp.pool.servers import McpServers, ServerScope
from callboard.protocol.mcp.config import McpConfig, Server
from callboard.protocol.mcp.model import HANDSHAKE
from callboard.supervisors import Actor, Root

Echo = Callable[[], Awaitable[object]]
Case = Callable[[Echo, int, Clock], Awaitable[float]]
ENTRY = Server(name="echo", type="stdio", command=SERVER[0], args=tuple(SERVER[1:]))


async def in_a_row(echo: Echo, n: int, now: Clock) -> float:
    began = now()
    for _ in range(n):
        await echo()
    return (now() - began) / n


async def together(echo: Echo, n: int, now: Clock) -> float:
    async with trio.open_nursery() as nursery:
        began = now()
        for _ in range(n):
            nursery.start_soon(echo)
    return (now() - began) / n


def warm(case: Case, remembered: str = "") -> Callable[[int, Clock], float]:
    """The case with calls of a connection."""

    async def main(n: int, now: Clock) -> float:
        async with Root() as root:
            abilities = OfferedCapabilities()
            async with connect(
                root.actor, ENTRY, environ=os.environ, abilities=abilities, remembered=remembered
            ) as client:
                caller = CallOrigin(me=root.actor)

                async def echo() -> None:
                    result = await client.call_tool("echo", {"text": TEXT}, caller)
                    assert result["content"][0]["text"] == TEXT

                await echo()
                return await case(echo, n, now)
        raise AssertionError("unreachable: a root swallows no errors")

    return lambda n, now: trio.run(main, n, now)


def pooled(case: Callable[[ServerScope, Actor, int], Awaitable[float]]) -> Callable[[int], float]:
    """The case with servers as agents have them: `echo0` to `echo7`."""

    async def main(n: int) -> float:
        with tempfile.TemporaryDirectory() as cache:
            environ = {**os.environ, "XDG_RUNTIME_DIR": cache}
            entries = [
                Server(name=f"echo{number}", type="stdio", command=ENTRY.command, args=(*ENTRY.args, str(number)))
                for number in range(8)
            ]
            config = McpConfig(servers={entry.name: entry for entry in entries})
            async with Root() as root:
                servers = McpServers(
                    root, config, environ=environ, cache=Path(cache), secrets={}, abilities=OfferedCapabilities()
                )
                with servers.scope(run="run", agent="/agent") as scope:
                    return await case(scope, root.actor, n)
        raise AssertionError("unreachable: a root swallows no errors")

    return lambda n: trio.run(main, n)


async def leased_calls(scope: ServerScope, me: Actor, n: int) -> float:
    caller = CallOrigin(me=me)

    async def echo() -> None:
        await scope.call("echo0", "echo", {"text": TEXT}, caller)

    await echo()
    return await in_a_row(echo, n, CLOCKS["cpu"]) * 1e6


async def lease(scope: ServerScope, me: Actor, n: int) -> float:
    async def lease() -> None:
        async with scope.client("echo0", me):
            pass

    await lease()
    return await in_a_row(lease, n, CLOCKS["cpu"]) * 1e6


async def start(scope: ServerScope, me: Actor, n: int) -> float:
    began = wall()
    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(scope.call, f"echo{number}", "echo", {"text": TEXT}, CallOrigin(me=me))
    return (wall() - began) * 1e3


CALL, LEGACY, TOGETHER = warm(in_a_row), warm(in_a_row, HANDSHAKE[0]), warm(together)

if __name__ == "__main__":
    serve(
        {
            "call": lambda n: CALL(n, CLOCKS["cpu"]) * 1e6,
            "call_wall": lambda n: CALL(n, CLOCKS["wall"]) * 1e6,
            "overhead": above_raw(CALL, "cpu"),
            "overhead_wall": above_raw(CALL, "wall"),
            "overhead_legacy": above_raw(LEGACY, "cpu"),
            "at_once": lambda n: TOGETHER(n, CLOCKS["cpu"]) * 1e6,
            "pooled": pooled(leased_calls),
            "lease": pooled(lease),
            "start": pooled(start),
        }
    )
