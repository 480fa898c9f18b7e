"""JSON-RPC methods as data: their structs and handlers, which the hub holds in a table and each connection calls.

A file of its own, because the hub does not import the connection (`peer`), and the connection serves a hub.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec


class Follow(msgspec.Struct, frozen=True):
    """Result of a method that continues after its answer: the answer, and the body of a subscription actor.

    Attributes:
        result: the answer.
        body: runs in the subscription's actor after the answer was sent.
        id: id of the subscription.
        after: called once at the end, even if `body` never started.
    """

    result: Any
    body: Callable[[], Awaitable[None]]
    id: str
    after: Callable[[], None] | None = None


class Method(msgspec.Struct, frozen=True):
    """JSON-RPC method with its structs and its handler.

    Attributes:
        params: struct of its parameters.
        result: struct of its result.
        call: called with the connection and the parameters; returns the result, an awaitable of the result, or
            `Follow`.
        long: true if the result may be long. The call then waits for room in the transport, and one API key runs only
            a few such awaitables at a time.
        notification: true if the method has no answer.
    """

    params: Any
    result: Any
    call: Callable[[Any, Any], Any]
    long: bool = False
    notification: bool = False
