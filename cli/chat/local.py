"""The server's half of a chat in this process: a root, its hub, and one peer of the control channel."""

from __future__ import annotations

import trio

from ...actors.front.chat.methods import ChatMethods, Chats
from ...actors.front.control.opening import open_hub
from ...actors.front.control.peer import Peer
from ...actors.front.control.runs.live_run import HubOptions
from ...actors.runs.root import Root, played
from ...protocol.control.caller import LOCAL
from ...supervisors import Actor
from .bridge import ScreenEnd, TrioEnd

MOST = 4_000
"""Frames that may wait for the screen; who has more to tell waits."""


async def serve(root: Root, ours: TrioEnd, screen: ScreenEnd) -> None:
    """Answers the screen until cancelled; then all that goes on for it is ended."""

    async def send(frame: bytes) -> None:
        screen.put(frame)

    async def room() -> None:
        while screen.waiting > MOST:  # noqa: ASYNC110 - another thread takes them in, and has no event of ours
            await trio.sleep(0.01)

    options = HubOptions(keep_runs=root.settings.api.keep_runs, keep_requests=True)  # see there: a person looks on
    async with open_hub(root, options=options) as hub:
        chats = Chats(hub)

        async def body(me: Actor) -> None:
            peer = Peer(me, hub, LOCAL, send, room=room, methods=lambda peer: ChatMethods(peer, chats).methods)
            try:
                async for frame in ours:
                    await peer.receive(frame)
            finally:
                peer.close()

        await played(root, body, name="chat")
