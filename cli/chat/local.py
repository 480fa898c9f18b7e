"""Server half of a chat in this process: a root, its hub, and one control channel peer.

With `--ui` the hub belongs to a server on a free local port. So the page and other terminals see the same chats and
runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ...actors.front.chat.chat import Chats
from ...actors.front.chat.methods import ChatMethods
from ...actors.front.control.methods import open_hub
from ...actors.front.control.peer import ControlPeer
from ...actors.front.control.runs.live_run import HubOptions
from ...actors.runs.loading import durable_by
from ...actors.runs.root import played
from ...protocol.control.caller import LOCAL
from ...supervisors import Actor
from .bridge import ScreenEnd, TrioEnd

if TYPE_CHECKING:
    from ...actors.front.server.serving import ListeningServer
    from ...actors.runs.root import Root

BY = "chat"

MOST = 4_000
"""Maximum number of frames that wait for the screen; then senders wait."""


@asynccontextmanager
async def open_local_chats(
    root: Root, tell: Callable[[ListeningServer], None] | None = None, *, durable: bool | None = None
) -> AsyncIterator[Chats]:
    """Yield the chats of a hub in this process.

    Args:
        tell: callback for the server's address; if given, the hub is served for the page and for other terminals.
        durable: whether runs are durable; None for the settings.

    Raises:
        ConfigError: the settings forbid it.
        ShuttingDown: a signal came before the server listened.
    """
    if tell is None:
        options = HubOptions(
            keep_runs=root.settings.api.keep_runs,
            keep_requests=True,  # requests are stored because the user can inspect them in the chat
            durable=durable_by(durable, root.settings),
            by=BY,
        )
        async with open_hub(root, options=options) as hub:
            yield Chats(hub)
        return
    from ..actions.serve import serve_in_background

    async with serve_in_background(root, by=BY, keep_requests=True, durable=durable) as (served, server):
        tell(served)
        yield server.chats


async def serve(root: Root, chats: Chats, ours: TrioEnd, screen: ScreenEnd) -> None:
    """Serve the screen's requests until cancelled; then end the peer's activities."""

    async def send(frame: bytes) -> None:
        screen.put(frame)

    async def room() -> None:
        while screen.waiting > MOST:  # noqa: ASYNC110 - the consumer is another thread
            await trio.sleep(0.01)

    async def body(me: Actor) -> None:
        peer = ControlPeer(me, chats.hub, LOCAL, send, room=room, methods=lambda peer: ChatMethods(peer, chats).methods)
        try:
            async for frame in ours:
                await peer.receive(frame)
        finally:
            peer.close()

    await played(root, body, name="chat")
