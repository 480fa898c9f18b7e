"""The server's half of a chat in this process: a root, its hub, and one peer of the control channel.

With `--ui` the hub is that of a server on a free port of this machine, so that the page and other terminals see the
same chats and runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ...actors.front.chat.chats import Chats
from ...actors.front.chat.methods import ChatMethods
from ...actors.front.control.opening import open_hub
from ...actors.front.control.peer import Peer
from ...actors.front.control.runs.live_run import HubOptions
from ...actors.runs.loading import durable_by
from ...actors.runs.root import played
from ...protocol.control.caller import LOCAL
from ...supervisors import Actor
from .bridge import ScreenEnd, TrioEnd

if TYPE_CHECKING:
    from ... import Root
    from ...actors.front.server.serving import Served

BY = "chat"

MOST = 4_000
"""Frames that may wait for the screen; who has more to tell waits."""


@asynccontextmanager
async def chats_here(
    root: Root, tell: Callable[[Served], None] | None = None, *, durable: bool | None = None
) -> AsyncIterator[Chats]:
    """The chats of a hub in this process, for the length of the block.

    Args:
        tell: the hub is served beside, for the page and for other terminals; this is told where.
        durable: whether its runs are kept; None for what the settings say.

    Raises:
        ConfigError: the settings forbid that.
        ShuttingDown: a signal came before the server listened.
    """
    if tell is None:
        options = HubOptions(
            keep_runs=root.settings.api.keep_runs,
            keep_requests=True,  # see there: a person looks on
            durable=durable_by(durable, root.settings),
            by=BY,
        )
        async with open_hub(root, options=options) as hub:
            yield Chats(hub)
        return
    from ..serving import serve_beside

    async with serve_beside(root, by=BY, keep_requests=True, durable=durable) as (served, server):
        tell(served)
        yield server.chats


async def serve(root: Root, chats: Chats, ours: TrioEnd, screen: ScreenEnd) -> None:
    """Answers the screen until cancelled; then all that goes on for it is ended."""

    async def send(frame: bytes) -> None:
        screen.put(frame)

    async def room() -> None:
        while screen.waiting > MOST:  # noqa: ASYNC110 - another thread takes them in, and has no event of ours
            await trio.sleep(0.01)

    async def body(me: Actor) -> None:
        peer = Peer(me, chats.hub, LOCAL, send, room=room, methods=lambda peer: ChatMethods(peer, chats).methods)
        try:
            async for frame in ours:
                await peer.receive(frame)
        finally:
            peer.close()

    await played(root, body, name="chat")
