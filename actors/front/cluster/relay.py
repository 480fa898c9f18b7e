"""What only the process that plays a run can tell: its actors, who steers them, and texts while they come. A gateway
asks it there.

Each question is a connection to the worker's control channel of its own: they are few, and workers come and go. The
worker trusts a gateway of its machine by the token that it has left in the database, and others by a key of
`api.auth.keys` of its config.yaml, which the gateway has in CALLBOARD_WORKER_KEY.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import trio
from trio_websocket import ConnectionClosed, HandshakeError, open_websocket_url

from ....protocol import jsonrpc
from ....protocol.control.errors import error_of
from ....protocol.control.own import ActorsChanged, WatchingTree
from ....protocol.control.things import ActorInfo
from ....protocol.decoding import decode_json
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
    answers: list[msgspec.Raw] = []

    async def hear(message: jsonrpc.Result | jsonrpc.Notification) -> bool:
        if isinstance(message, jsonrpc.Result):
            answers.append(message.result)
        return bool(answers)

    with trio.move_on_after(WITHIN):
        await _talk(worker, key, method, params, hear)
    if not answers:
        raise _away(worker, f"it did not answer within {WITHIN:g} s")
    return answers[0]


async def follow(worker: Reached, key: str, run: str, after: int, take: Callable[[msgspec.Raw], None]) -> None:
    """Give the events of a run behind a number to `take` as they happen, pieces of texts included: to its end, or until
    the worker finds us too slow. Raises as `ask` does."""

    async def hear(message: jsonrpc.Result | jsonrpc.Notification) -> bool:
        if isinstance(message, jsonrpc.Result):
            return False
        if message.method == "_run/event":
            take(decode_json(message.params, _Told).event)
        return message.method != "_run/event"

    await _talk(worker, key, "_run/subscribe", msgspec.Raw(msgspec.json.encode({"run": run, "after": after})), hear)


class _Told(msgspec.Struct):
    event: msgspec.Raw


async def watch(
    worker: Reached,
    key: str,
    run: str | None,
    interval: float,
    take: Callable[[list[ActorInfo], list[str]], Awaitable[None]],
) -> None:
    """Give the actors of a worker, or of a run, to `take`, and each change: who is otherwise, and the paths of who is
    gone; until the worker ends. Raises as `ask` does."""

    async def hear(message: jsonrpc.Result | jsonrpc.Notification) -> bool:
        if isinstance(message, jsonrpc.Result):
            await take(decode_json(message.result, WatchingTree).actors, [])
        elif message.method == "_actor/changed":
            change = decode_json(message.params, ActorsChanged)
            await take(change.changed, change.gone)
        return False

    params = {"run": run, "interval": interval} if run is not None else {"interval": interval}
    await _talk(worker, key, "_actor/subscribe", msgspec.Raw(msgspec.json.encode(params)), hear)


async def _talk(
    worker: Reached,
    key: str,
    method: str,
    params: msgspec.Raw,
    hear: Callable[[jsonrpc.Result | jsonrpc.Notification], Awaitable[bool]],
) -> None:
    """Ask, and listen to the answer and to what comes after it, until `hear` has heard enough."""
    parts = urlsplit(worker.url)
    url = f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}/ws"
    headers = [(b"Authorization", f"Bearer {worker.token or key}".encode())]
    try:
        async with open_websocket_url(url, extra_headers=headers, max_message_size=LONGEST) as socket:
            await socket.send_message(jsonrpc.encode_request(1, method, params).decode())
            while True:
                frame = await socket.get_message()
                message = jsonrpc.decode(frame.encode() if isinstance(frame, str) else frame)
                if isinstance(message, jsonrpc.Failure):
                    raise error_of(message.error)
                if not isinstance(message, jsonrpc.Request) and await hear(message):
                    return
    except (HandshakeError, ConnectionClosed, OSError, ValueError) as error:
        raise _away(worker, str(error) or type(error).__name__) from error
    except BaseExceptionGroup as group:
        known, other = group.split((HandshakeError, ConnectionClosed, OSError, ValueError))
        if other is not None or known is None:
            raise
        raise _away(worker, str(known.exceptions[0])) from group


def _away(worker: Reached, why: str) -> ClusterAway:
    return ClusterAway(f"the worker '{worker.name}' can't be reached at {worker.url}: {why}")
