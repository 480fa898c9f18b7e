"""One connection: JSON-RPC 2.0 in both directions, whatever carries the frames.

A transport gives each frame it gets to `receive`, and a function that sends one. Quick methods are answered on the
spot, those that take their time by an actor of their own, subscriptions are actors as well; all of them end with the
connection. Nothing is queued here: who sends waits until the transport has taken it. So a client that reads slowly
slows down its own subscriptions, which then fall behind and are told so, and nobody else's.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.control.errors import REQUEST_CANCELLED, SATURATED, Refused, error_data
from ....protocol.errors import CallboardError, Saturated, ShuttingDown
from ....protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNREADABLE,
    ErrorData,
    Failure,
    Id,
    Json,
    Notification,
    Request,
    Result,
    decode,
    encode_failure,
    encode_notification,
    encode_request,
    encode_result,
)
from ....protocol.problems import did_you_mean
from ...io.outbox import Gone

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from .gate import Gate
    from .hub import Hub
    from .methods import Method

MOST_UNDER_WAY = 256
"""Requests of one client that are answered at the same time."""

MOST_SUBSCRIPTIONS = 1024

LONGEST_ID = 256
"""Characters."""

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


class Peer:
    """See the module.

    Args:
        me: the connection's actor; all that goes on for it is below it.
        hub: what it is a front end of.
        caller: who is on the other side.
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
        self.me = me
        self.room = room
        self.turn = turn or contextlib.nullcontext()
        self.hub = hub
        self.caller = caller
        self._send = send
        self._acp = acp
        self._gate = gate
        self._under_way: dict[Id, Ref[None]] = {}
        self._subscriptions: dict[str, Ref[None]] = {}
        self._asked: dict[Id, _Asked] = {}
        self._count = 0
        self._closed = False
        if acp is not None:
            acp.attach(self)

    # --- what comes ---------------------------------------------------------------------------------------

    async def receive(self, frame: bytes) -> None:
        """Take one frame; returns as soon as the next one may come.

        Raises:
            Gone: the answer could not be sent.
        """
        try:
            message = decode(frame)
        except msgspec.ValidationError as error:
            batch = frame.lstrip()[:1] == b"["
            why = "a batch is not taken; send one object per frame" if batch else str(error)
            await self._not_understood(frame, why)
        except msgspec.DecodeError as error:
            await self._send(encode_failure(None, PARSE_ERROR, f"this is no JSON: {error}"))
        except UNREADABLE as error:
            await self._not_understood(frame, str(error))
        else:
            if isinstance(message, Request):
                await self._requested(message)
            elif isinstance(message, Notification):
                if _ided(frame).id is None:
                    await self._not_understood(
                        frame, "an `id` is a number or a text, not null; a notification has none"
                    )
                else:
                    await self._notified(message)
            else:
                self._settled(message)

    async def _not_understood(self, frame: bytes, why: str) -> None:
        """Refuse it, by its id if it has one: whoever waits for an answer gets it."""
        head = _ided(frame)
        id = head.id if isinstance(head.id, int | str) and not isinstance(head.id, bool) else None
        if head.method is msgspec.UNSET and id in self._asked:  # an answer to us, but none that can be read
            self._settled(Failure(id, ErrorData(INVALID_REQUEST, f"the client's answer is none: {why}")))
            return
        if isinstance(id, str) and len(id) > LONGEST_ID:
            id = None
        await self._send(encode_failure(id, INVALID_REQUEST, f"this is no JSON-RPC message: {why}"))

    async def _requested(self, request: Request) -> None:
        id, name = request.id, request.method
        refused = self._refuse(request)
        if refused is not None:
            await self._send(encode_failure(id, refused.code, refused.message, refused.data))
            return
        by_acp = self._acp is not None and name in self._acp.methods
        method = self._method(name)
        if method is None and not by_acp:
            await self._send(encode_failure(id, METHOD_NOT_FOUND, self._unknown(name)))
            return
        long = method is not None and method.long
        try:
            if self._gate is not None:
                self._gate.allow(self.caller, name)
            if long:
                await self.room()
            if by_acp:
                assert self._acp is not None
                result: Any = self._acp.call(name, request.params)
            else:
                assert method is not None
                result = method.call(self, msgspec.json.decode(request.params, type=method.params))
            if inspect.iscoroutine(result):
                self._begin(request, result, long=long)
                return
        except Exception as error:  # noqa: BLE001 - each is told to the client, and a bug to the log
            await self._failed(request, error)
            return
        await self._succeeded(request, result)

    def _refuse(self, request: Request) -> ErrorData | None:
        if isinstance(request.id, str) and len(request.id) > LONGEST_ID:
            return ErrorData(INVALID_REQUEST, f"the id is longer than {LONGEST_ID} characters")
        if request.id in self._under_way:
            return ErrorData(INVALID_REQUEST, f"a request with the id {request.id!r} is under way already")
        if len(self._under_way) >= MOST_UNDER_WAY:
            text = f"{MOST_UNDER_WAY} requests of this connection are under way; wait for an answer"
            return ErrorData(SATURATED, text, {"code": "saturated"})
        return None

    def _method(self, name: str) -> Method | None:
        return self.hub.methods.get(name)

    def _unknown(self, name: str) -> str:
        known = [*self.hub.methods, *(self._acp.methods if self._acp is not None else ())]
        near = did_you_mean(name[:100], known)
        return f"there is no method {name[:100]!r}" + (f"; {near}" if near else "")

    async def _notified(self, message: Notification) -> None:
        if message.method == "$/cancel_request":
            try:
                id = msgspec.json.decode(message.params, type=_CancelRequest).request_id
            except UNREADABLE:
                return
            ref = self._under_way.pop(id, None)
            if ref is not None:
                ref.cancel()
                await self._send(encode_failure(id, REQUEST_CANCELLED, "the request was cancelled"))
        elif self._acp is not None:
            self._acp.notified(message.method, message.params)

    # --- requests that take their time, and subscriptions -------------------------------------------------

    def _begin(self, request: Request, work: Coroutine[Any, Any, Json], *, long: bool) -> None:
        name = request.method.replace("/", ".").strip("_$")
        try:
            self._under_way[request.id] = self.me.spawn(self._answer, request, work, long, name=name, link=False)
        except ShuttingDown:
            work.close()
            raise

    async def _answer(self, me: Actor, request: Request, work: Coroutine[Any, Any, Json], long: bool) -> None:
        """Body of a request's actor."""
        id = request.id
        ref = me.ref
        try:
            async with self.turn if long else contextlib.nullcontext():
                try:
                    result = await work
                except Exception as error:  # noqa: BLE001 - each is told to the client, and a bug to the log
                    if self._under_way.pop(id, None) is not None:
                        await self._failed(request, error)
                    return
                if self._under_way.pop(id, None) is not None:
                    await self._succeeded(request, result)
        except Gone:
            return
        finally:
            work.close()  # it may never have had its turn
            if self._under_way.get(id) is ref:
                del self._under_way[id]

    async def _succeeded(self, request: Request, result: Json) -> None:
        if self._gate is not None:
            self._gate.audited(self.caller, request.method, _target_of(request))
        if not isinstance(result, Follow):
            await self._send(encode_result(request.id, result))
            return
        try:
            await self._send(encode_result(request.id, result.result))
        except BaseException:  # the client is gone, or we are: nobody will follow
            if result.after is not None:
                result.after()
            raise
        self._follow(result)

    async def _failed(self, request: Request, error: Exception) -> None:
        id, name = request.id, request.method
        if isinstance(error, Gone):
            raise error
        if isinstance(error, CallboardError):
            told = error_data(error)
            if self._gate is not None:
                self._gate.audited(self.caller, name, _target_of(request), error)
        elif isinstance(error, UNREADABLE):
            told = ErrorData(INVALID_PARAMS, f"{name}: {error}", {"code": "usage"})
        else:  # a bug of ours: with its traceback in the log, and nothing of it on the wire
            log.error("%s crashed", name, exc_info=error)
            told = ErrorData(INTERNAL_ERROR, f"{name} crashed; the server's log says more", {"code": "error"})
        await self._send(encode_failure(id, told.code, told.message, told.data))

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

    # --- what goes ----------------------------------------------------------------------------------------

    async def notify(self, method: str, params: Json) -> None:
        """Tell the client something.

        Raises:
            Gone: it is not there any more.
        """
        await self._send(encode_notification(method, params))

    async def send(self, frame: bytes) -> None:
        """Send a frame as it is."""
        await self._send(frame)

    async def request(self, method: str, params: Json) -> Json:
        """Ask the client; its result.

        Raises:
            Refused: it answers with an error, or the connection has gone.
        """
        if self._closed:
            raise Refused("the client is gone")
        self._count += 1
        id = f"c{self._count}"
        asked = self._asked[id] = _Asked()
        try:
            await self._send(encode_request(id, method, params))
            await asked.settled.wait()
        except Gone:
            raise Refused("the client is gone") from None
        except trio.Cancelled:  # somebody else has answered: it need not show the question any more
            if not self._closed:
                with contextlib.suppress(ShuttingDown):
                    self.me.spawn(self._withdraw, id, name="withdrawal", link=False)
            raise
        finally:
            del self._asked[id]
        answer = asked.answer
        if isinstance(answer, Failure):
            raise Refused(answer.error.message, number=answer.error.code, data=answer.error.data)
        if answer is None:
            raise Refused("the client is gone")
        return msgspec.json.decode(answer.result)

    async def _withdraw(self, _: Actor, id: str) -> None:
        """Body of the actor that takes a question back."""
        with contextlib.suppress(Gone):
            await self.notify("$/cancel_request", {"requestId": id})

    def _settled(self, answer: Result | Failure) -> None:
        asked = None if answer.id is None else self._asked.get(answer.id)
        if asked is not None:
            asked.answer = answer
            asked.settled.set()

    def close(self) -> None:
        """The connection is gone: end all that goes on for it."""
        if self._closed:
            return
        self._closed = True
        for asked in self._asked.values():
            asked.settled.set()
        for ref in (*self._under_way.values(), *self._subscriptions.values()):
            ref.cancel()
        self._under_way.clear()
        self._subscriptions.clear()
        if self._acp is not None:
            self._acp.close()


class _Asked:
    __slots__ = ("answer", "settled")

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.answer: Result | Failure | None = None


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


class _Ided(msgspec.Struct):
    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET


def _ided(frame: bytes) -> _Ided:
    """The id of what is no message; nothing, if not even that can be read."""
    try:
        return msgspec.json.decode(frame, type=_Ided)
    except UNREADABLE:
        return _Ided()


class _CancelRequest(msgspec.Struct, rename="camel"):
    request_id: Id
