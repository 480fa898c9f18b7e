"""ACP with the client that has started us, over our stdin and stdout: one line is one message."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ....protocol.control.caller import LOCAL
from ...io.stdio import over_pipes, private_stdio
from ...runs.root import Root, played
from ..control.opening import open_hub
from ..control.peer import Peer
from .agent import AcpAgent

if TYPE_CHECKING:
    from ....supervisors import Actor


async def serve_acp(root: Root, agent: str | None = None, *, pipes: tuple[int, int] | None = None) -> None:
    """Serve until the client closes our stdin, or the root stops. All runs are this client's, and end with it.

    Args:
        agent: whose sessions are made, where the client names no agent.
        pipes: two descriptors in place of stdin and stdout, which are closed at the end.
    """

    async def body(me: Actor) -> None:
        async with open_hub(root) as hub, over_pipes(me, source, sink) as (messages, outbox):
            peer = Peer(me, hub, LOCAL, outbox.put, methods=lambda peer: AcpAgent(peer, agent).methods)
            try:
                async for line in messages:
                    await peer.receive(line)
            finally:
                peer.close()

    with private_stdio() if pipes is None else nullcontext(pipes) as (source, sink):
        await played(root, body, name="control")
