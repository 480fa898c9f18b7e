"""ACP with the client that has started us, over our stdin and stdout: one line is one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ....protocol.control.caller import LOCAL
from ....protocol.jsonrpc import PARSE_ERROR, encode_failure
from ..control.hub import open_hub
from ..control.peer import Peer
from ..mcp_server.stdio import FLUSH_WITHIN, MAX_LINE, Outbox, lines, private_stdio
from .side import Side

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...runs.root import Root
    from ..control.hub import Hub


async def serve_acp(root: Root, agent: str | None = None) -> None:
    """Serve until the client closes our stdin, or the root stops. All runs are this client's, and end with it.

    Args:
        agent: whose sessions are made, where the client names no agent.
    """
    with private_stdio() as (source, sink):
        await serve_acp_pipes(root, source, sink, agent)


async def serve_acp_pipes(root: Root, source: int, sink: int, agent: str | None = None) -> None:
    """As `serve_acp`, over two descriptors, which are closed at the end."""

    async def body(me: Actor) -> None:
        async with open_hub(me, root) as hub:
            await _serve(me, Side(agent), hub, source, sink)

    ref = root.kernel.spawn(body, name="control", link=False, stop_within=root.kernel.stop_within)
    end = await ref.wait()
    if end.error is not None:
        raise end.error


async def _serve(me: Actor, side: Side, hub: Hub, source: int, sink: int) -> None:
    async with trio.lowlevel.FdStream(source) as reading, trio.lowlevel.FdStream(sink) as writing:
        outbox = Outbox(writing)

        async def send(frame: bytes) -> None:
            outbox.put(frame)
            await outbox.room()

        with trio.CancelScope() as scope:
            me.spawn(outbox.empty, scope, name="writer")
            peer = Peer(me, hub, LOCAL, send, acp=side)
            try:
                async for line in lines(reading):
                    if line is None:
                        text = f"a message has at most {MAX_LINE} bytes"
                        await send(encode_failure(None, PARSE_ERROR, text))
                    elif line.strip():
                        await peer.receive(line)
            finally:
                peer.close()
            with trio.move_on_after(FLUSH_WITHIN):
                await outbox.emptied()
