"""What only the process that plays a run can answer: its actors, and who steers them. A gateway asks it there.

Each question is a connection to the worker's control channel of its own: they are few, and workers come and go. The
worker trusts a gateway of its machine by the token that it has left in the database, and others by a key of
`api.auth.keys` of its config.yaml, which the gateway has in CALLBOARD_WORKER_KEY.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import trio
from trio_websocket import ConnectionClosed, HandshakeError, open_websocket_url

from ....protocol import jsonrpc
from ....protocol.control.errors import error_of
from ....supervisors.cluster.database import ClusterAway

if TYPE_CHECKING:
    from ....supervisors.cluster.workers import Reached

KEY = "CALLBOARD_WORKER_KEY"

WITHIN = 10.0
"""Seconds for an answer."""

LONGEST = 64 * 1024 * 1024
"""Bytes of it."""


async def ask(worker: Reached, key: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
    """What a worker answers.

    Raises:
        ClusterAway: it can't be reached, or does not let us in.
        CallboardError: it refuses, by the code it gave.
    """
    parts = urlsplit(worker.url)
    url = f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}/ws"
    headers = [(b"Authorization", f"Bearer {worker.token or key}".encode())]
    answer: jsonrpc.Result | jsonrpc.Failure | None = None
    why = f"it did not answer within {WITHIN:g} s"
    try:
        with trio.move_on_after(WITHIN):
            async with open_websocket_url(url, extra_headers=headers, max_message_size=LONGEST) as socket:
                await socket.send_message(jsonrpc.encode_request(1, method, params).decode())
                while answer is None:
                    frame = await socket.get_message()
                    message = jsonrpc.decode(frame.encode() if isinstance(frame, str) else frame)
                    if isinstance(message, jsonrpc.Result | jsonrpc.Failure):
                        answer = message
    except (HandshakeError, ConnectionClosed, OSError, ValueError) as error:
        why = str(error) or type(error).__name__
    except BaseExceptionGroup as group:
        known, other = group.split((HandshakeError, ConnectionClosed, OSError, ValueError))
        if other is not None or known is None:
            raise
        why = str(known.exceptions[0]) or type(known.exceptions[0]).__name__
    if answer is None:
        raise ClusterAway(f"the worker '{worker.name}', which plays the run, can't be reached at {worker.url}: {why}")
    if isinstance(answer, jsonrpc.Failure):
        raise error_of(answer.error)
    return answer.result
