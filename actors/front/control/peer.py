"""One connection of the control channel: a JSON-RPC peer (`io.peer`) that answers the hub's methods, and ACP's.

Subscriptions are actors, which end with the connection. A client that reads slowly slows down its own subscriptions
only, which then fall behind and send `lagged`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Never, Protocol

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.errors import CallboardError, Saturated, ShuttingDown
from ....protocol.jsonrpc import METHOD_NOT_FOUND, UNREADABLE, ErrorData, Json, Notification, Request
from ....protocol.problems import did_you_mean
from ...io import peer
from ...io.outbox import Gone

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from .gate import Gate
    from .hub import Hub

MOST_SUBSCRIPTIONS = 1024

log = logging.getLogger("callboard.control")


async def _always() -> None:
    """Of a transport that has a single client, which is its own."""


class Follow:
    """What a method returns that goes on after its answer: the answer, and what to do then, as an actor.

    Args:
        after: called once when it is over, whether or not it ever came to `body`.
    """

    def __init__(
        self,
        result: Json,
        body: Callable[..., Awaitable[None]],
        *args: Any,
        id: str,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.result = result
        self.body = body
        self.args = args
        self.id = id
        self.after = after


class AcpSide(Protocol):
    """The Agent Client Protocol on a connection (`acp`)."""

    @property
    def methods(self) -> Collection[str]:
        """Names of the methods it answers."""

    def attach(self, peer: Peer) -> None:
        """The connection is there."""

    async def call(self, method: str, params: msgspec.Raw) -> Json:
        """Answer a request; runs as an actor of its own, is cancelled by `$/cancel_request` and with the connection.

        Raises:
            CallboardError: told to the client (see `protocol.control.errors`).
            msgspec.ValidationError: the parameters are not what they should be.
        """

    def notified(self, method: str, params: msgspec.Raw) -> None:
        """The client tells something; must be quick."""

    def close(self) -> None:
        """The connection is gone."""


class Peer(peer.Peer):
    """See the module.

    Args:
        me: the connection's actor; all that goes on for it is below it.
        hub: what it is a front end of.
        caller: the other side.
        send: sends one frame, and returns when the transport has taken it; raises `Gone`.
        acp: answers the methods of ACP.
        gate: asked before each method, and told after it.
        room: waits until the transport has room for a frame, and raises `Gone`. It is waited for before long answers
            are made, so that a client that does not read keeps us from making them, not only from sending them.
        turn: a block for making a long answer and sending it.

    Attributes:
        me, hub, caller, room, turn: as given.
    """

    def __init__(
        self,
        me: Actor,
        hub: Hub,
        caller: Caller,
        send: Callable[[bytes], Awaitable[None]],
        *,
        acp: AcpSide | None = None,
        gate: Gate | None = None,
        room: Callable[[], Awaitable[None]] = _always,
        turn: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        super().__init__(me, send)
        self.room = room
        self.turn = turn or contextlib.nullcontext()
        self.hub = hub
        self.caller = caller
        self._acp = acp
        self._gate = gate
        self._subscriptions: dict[str, Ref[Never, None]] = {}
        if acp is not None:
            acp.attach(self)

    # --- what comes ---------------------------------------------------------------------------------------

    async def begin(self, request: Request, send: peer.Send) -> Any:  # noqa: ARG002 - all goes one way here
        """See `io.peer.Peer`."""
        name = request.method
        by_acp = self._acp is not None and name in self._acp.methods
        method = self.hub.methods.get(name)
        if method is None and not by_acp:
            raise peer.Refusal(METHOD_NOT_FOUND, self._unknown(name))
        if self._gate is not None:
            self._gate.allow(self.caller, name)
        if method is not None and method.long:
            await self.room()
        if by_acp:
            assert self._acp is not None
            return self._acp.call(name, request.params)
        assert method is not None
        return method.call(self, msgspec.json.decode(request.params, type=method.params))

    def block(self, request: Request) -> AbstractAsyncContextManager[None]:
        """See `io.peer.Peer`: few long answers are made for a key at a time."""
        method = self.hub.methods.get(request.method)
        return self.turn if method is not None and method.long else contextlib.nullcontext()

    def _unknown(self, name: str) -> str:
        known = [*self.hub.methods, *(self._acp.methods if self._acp is not None else ())]
        near = did_you_mean(name[:100], known)
        return f"there is no method {name[:100]!r}" + (f"; {near}" if near else "")

    def notified(self, message: Notification) -> None:
        """See `io.peer.Peer`."""
        if self._acp is not None:
            self._acp.notified(message.method, message.params)

    def told(self, request: Request, error: Exception) -> ErrorData:
        """See `io.peer.Peer`."""
        if self._gate is not None and isinstance(error, CallboardError):
            self._gate.audited(self.caller, request.method, _target_of(request), error)
        return super().told(request, error)

    async def succeeded(self, request: Request, result: Any, send: peer.Send) -> None:
        """See `io.peer.Peer`; what goes on after its answer begins."""
        if self._gate is not None:
            self._gate.audited(self.caller, request.method, _target_of(request))
        if not isinstance(result, Follow):
            await super().succeeded(request, result, send)
            return
        try:
            await super().succeeded(request, result.result, send)
        except BaseException:  # the client is gone, or we are: none will follow
            if result.after is not None:
                result.after()
            raise
        self._follow(result)

    # --- subscriptions ------------------------------------------------------------------------------------

    def new_subscription(self) -> str:
        """An id for a subscription.

        Raises:
            Saturated: there are too many.
        """
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise Saturated(f"this connection has {MOST_SUBSCRIPTIONS} subscriptions, and that is as many as may be")
        self._count += 1
        return f"s{self._count}"

    def unsubscribe(self, id: str) -> bool:
        """End a subscription; False if there is none of this id."""
        ref = self._subscriptions.pop(id, None)
        if ref is None:
            return False
        ref.cancel()
        return True

    def _follow(self, follow: Follow) -> None:
        after = follow.after
        try:
            ref = self.me.spawn(self._followed, follow, name=f"subscription-{follow.id}", link=False)
        except ShuttingDown:  # the connection is about to be closed
            if after is not None:
                after()
            return
        self._subscriptions[follow.id] = ref
        if after is not None:
            ref.on_end(lambda _: after())

    async def _followed(self, me: Actor, follow: Follow) -> None:
        """Body of a subscription's actor."""
        try:
            await follow.body(*follow.args)
        except Gone:
            pass
        except Exception:  # reported; the client sees that nothing comes any more, and asks again
            log.exception("%s crashed", me.path)
        finally:
            self._subscriptions.pop(follow.id, None)

    async def send(self, frame: bytes) -> None:
        """Send a frame as it is."""
        await self._send(frame)

    def close(self) -> None:
        """See `io.peer.Peer`."""
        if self._closed:
            return
        super().close()
        for ref in self._subscriptions.values():
            ref.cancel()
        self._subscriptions.clear()
        if self._acp is not None:
            self._acp.close()


class _Target(msgspec.Struct):
    run: Any = None
    path: Any = None
    question: Any = None
    session: Any = None
    server: Any = None
    target: Any = None


def _target_of(request: Request) -> str | None:
    """What a request is about, for the audit log."""
    try:
        about = msgspec.json.decode(request.params, type=_Target)
    except UNREADABLE:
        return None
    found = next((value for value in msgspec.structs.astuple(about) if isinstance(value, str) and value), None)
    return None if found is None else found[:200]
