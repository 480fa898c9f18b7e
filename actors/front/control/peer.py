"""One connection of the control channel: a JSON-RPC peer (`io.peer`) that answers the hub's methods, and ACP's.

Subscriptions are actors, which end with the connection. A client that reads slowly slows down its own subscriptions
only, which then fall behind and send `lagged`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Never

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.control.errors import told_to
from ....protocol.decoding import decode_json
from ....protocol.errors import CallboardError, Saturated, ShuttingDown
from ....protocol.jsonrpc import METHOD_NOT_FOUND, UNREADABLE, ErrorData, Notification, Request
from ....protocol.problems import did_you_mean
from ...io import peer
from ...io.outbox import Gone
from .cluster import RELAYED

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from ..access.access_control import AccessControl
    from .hub import Hub

MOST_SUBSCRIPTIONS = 1024

log = logging.getLogger("callboard.control")


async def _always() -> None:
    """Of a transport that has a single client, which is its own."""


class Follow(msgspec.Struct, frozen=True):
    """What a method returns that goes on after its answer: the answer, and what to do then, as an actor.

    Attributes:
        id: of the subscription.
        after: called once when it is over, whether or not it ever came to `body`.
    """

    result: Any
    body: Callable[[], Awaitable[None]]
    id: str
    after: Callable[[], None] | None = None


class Method(msgspec.Struct, frozen=True):
    """A method.

    Attributes:
        params: struct of its parameters.
        result: struct of its result.
        call: called with the connection and the parameters; returns the result, something to await for
            it, or `Follow`.
        long: the result may be long: it is made when there is room for it, and of those that are awaited only a few are
            made for one key at a time.
        notification: it has no answer.
    """

    params: Any
    result: Any
    call: Callable[[Any, Any], Any]
    long: bool = False
    notification: bool = False


class Peer(peer.Peer):
    """See the module.

    Args:
        me: the connection's actor; all that goes on for it is below it.
        hub: what it is a front end of.
        caller: the other side.
        send: sends one frame, and returns when the transport has taken it; raises `Gone`.
        methods: makes those that this connection answers beside the hub's (ACP).
        access: authorises each method, and audits it.
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
        methods: Callable[[Peer], Mapping[str, Method]] | None = None,
        access: AccessControl | None = None,
        room: Callable[[], Awaitable[None]] = _always,
        turn: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        super().__init__(me, send)
        self.room = room
        self.turn = turn or contextlib.nullcontext()
        self.hub = hub
        self.caller = caller
        self._access = access
        self._subscriptions: dict[str, Ref[Never, None]] = {}
        self._methods = {} if methods is None else methods(self)

    # --- what comes ---------------------------------------------------------------------------------------

    async def begin(self, request: Request, send: peer.Send) -> Any:  # noqa: ARG002 - all goes one way here
        """See `io.peer.Peer`."""
        name = request.method
        method = self._method(name)
        if method is None or method.notification:
            raise peer.Refusal(METHOD_NOT_FOUND, self._unknown(name))
        if self._access is not None:
            self._access.authorize_method(self.caller, name)
        if method.long:
            await self.room()
        cluster = self.hub.cluster
        if cluster is not None and name in RELAYED and cluster.has(run := _run_of(request)):
            info = self.hub.get(self.caller, run)
            if info.status in ("running", "waiting") or not name.startswith("_actor/"):  # else it has no actors
                return await cluster.ask(run, name, request.params)
        return method.call(self, decode_json(request.params, method.params))

    def block(self, request: Request) -> AbstractAsyncContextManager[None]:
        """See `io.peer.Peer`: few long answers are made for a key at a time."""
        method = self._method(request.method)
        return self.turn if method is not None and method.long else contextlib.nullcontext()

    def _method(self, name: str) -> Method | None:
        return self._methods.get(name) or self.hub.methods.get(name)

    def _unknown(self, name: str) -> str:
        near = did_you_mean(name[:100], [*self.hub.methods, *self._methods])
        return f"there is no method {name[:100]!r}" + (f"; {near}" if near else "")

    def notified(self, message: Notification) -> None:
        """See `io.peer.Peer`."""
        method = self._method(message.method)
        if method is not None and method.notification:
            try:
                params = decode_json(message.params, method.params)
            except UNREADABLE:
                return
            method.call(self, params)

    def told(self, request: Request, error: Exception) -> ErrorData:
        """See `io.peer.Peer`."""
        if self._access is not None and isinstance(error, CallboardError):
            self._access.audit_method(self.caller, request.method, _target_of(request), error)
        if isinstance(error, CallboardError):
            error = told_to(self.caller, error)
        return super().told(request, error)

    async def succeeded(self, request: Request, result: Any, send: peer.Send) -> None:
        """See `io.peer.Peer`; what goes on after its answer begins."""
        if self._access is not None:
            self._access.audit_method(self.caller, request.method, _target_of(request))
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
        try:
            await follow.body()
        except Gone:
            pass
        except Exception:  # reported; the client sees that nothing comes any more, and asks again
            log.exception("%s crashed", me.path)
        finally:
            self._subscriptions.pop(follow.id, None)

    def close(self) -> None:
        """See `io.peer.Peer`."""
        if self._closed:
            return
        super().close()
        for ref in self._subscriptions.values():
            ref.cancel()
        self._subscriptions.clear()


class _Target(msgspec.Struct):
    run: Any = None
    path: Any = None
    question: Any = None
    session: Any = None
    server: Any = None
    target: Any = None


def _run_of(request: Request) -> str:
    """The run that it is about; "" for none, or all."""
    about = decode_json(request.params, _Target)
    path = about.path.strip("/").partition("/")[0] if isinstance(about.path, str) else ""
    return about.run if isinstance(about.run, str) else path


def _target_of(request: Request) -> str | None:
    try:
        about = decode_json(request.params, _Target)
    except UNREADABLE:
        return None
    found = next((value for value in msgspec.structs.astuple(about) if isinstance(value, str) and value), None)
    return None if found is None else found[:200]
