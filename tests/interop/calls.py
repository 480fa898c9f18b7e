"""Ways to look at what a server says."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from support.waiting import PATIENCE

from callboard.actors.work.mcp.client.client import McpClient
from callboard.actors.work.mcp.client.connect import OfferedCapabilities, connect
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.actors.work.sandbox.run_sandbox import before_any_run
from callboard.protocol.mcp.config import Server
from callboard.supervisors import Actor

LEGACY = "2025-11-25"


@asynccontextmanager
async def reach(
    me: Actor, server: Server, era: str = "auto", *, roots: tuple[str, ...] = ("file:///srv/work",), **options: Any
) -> AsyncIterator[McpClient]:
    """A connection that can do everything, owned by an actor below `me`, which fails when the connection is lost.

    `legacy` never asks whether the server speaks the newest revision. Its process is held as a user's is.
    """
    held = before_any_run("workspace", Path("/nonexistent"), os.environ)
    options = {"place": held.of_server(server.name, server.words), **options}
    clients, found = trio.open_memory_channel[McpClient](1)

    async def own(owner: Actor) -> None:
        remembered = LEGACY if era == "legacy" else ""
        abilities = OfferedCapabilities(sampling=True, roots=roots)
        with clients:
            async with connect(
                owner, server, environ=os.environ, abilities=abilities, remembered=remembered, **options
            ) as client:
                clients.send_nowait(client)
                await trio.sleep_forever()

    with trio.fail_after(PATIENCE):
        owner = me.spawn(own, name="owner", link=False)
        try:
            yield await found.receive()
        except trio.EndOfChannel:
            raise (await owner.wait()).error or AssertionError("no client, and no error") from None
        finally:
            owner.cancel()
            with trio.move_on_after(10, shield=True):
                await owner.wait()


def text_of(result: Mapping[str, Any]) -> str:
    """The text of a tool's result, which must not be an error."""
    assert not result.get("isError"), result
    return words_of(result)


def words_of(result: Mapping[str, Any]) -> str:
    """The text of a tool's result, be it an error or not."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


async def give_up(client: McpClient, me: Actor, name: str, arguments: Mapping[str, Any]) -> None:
    """Call a tool that tells its progress, and be cancelled at the first of it."""
    with trio.CancelScope() as scope:
        await client.call_tool(name, arguments, CallOrigin(me=me, on_progress=lambda _: scope.cancel()))
    assert scope.cancelled_caught
