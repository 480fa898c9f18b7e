"""JSON-RPC 2.0 in both directions on one connection, whatever carries the frames.

    class Ours(Peer):
        async def begin(self, request): ...     # the result of a request, or something to await for it

    peer = Ours(me, outbox.put)
    async for frame in frames:
        await peer.receive(frame)
    result = await peer.request("elicitation/create", params)

A transport gives each frame it gets to `receive`, and a function that sends one. Quick requests are answered on the
spot, those that take their time by an actor of their own, which ends with the connection, and when the other side takes
the request back. Nothing is queued here: who sends waits until the transport has taken it. A frame that is no message
is answered as the specification says, by its id if it has one, and breaks nothing.

The websocket, ACP over pipes and the MCP server are peers. The MCP client is not: see `work.mcp.links.stdio`.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Never, TypeAlias

import msgspec
import trio

from ...protocol import jsonrpc
from ...protocol.control.errors import REQUEST_CANCELLED, SATURATED, Refused, error_data
from ...protocol.decoding import decode_json
from ...protocol.errors import CallboardError, ShuttingDown
from ...supervisors import Actor, Ref
from .handed_out import without_secrets
from .outbox import Gone

LONGEST_ID = 256
"""Characters."""

log = logging.getLogger("callboard.control")


class Refusal(Exception):
    """What a request is answered with that is refused as such: JSON-RPC's number, a text, and data."""

    def __init__(self, code: int, message: str, data: jsonrpc.Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


Send: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends one frame, and returns when the transport has taken it; raises `Gone`."""


class Peer:
    """See the module. A subclass says what it answers (`begin`), and how it differs from the control channel.

    Args:
        me: the connection's actor; all that goes on for it is below it.
        send: where frames go that belong to no request which came with a way back of its own.

    Attributes:
        me, send: as given.
        cancelling: the notification that takes a request back, in both directions.
        most: requests of the other side that are answered at the same time.
        batches: whether several messages may come in one frame.
    """

    cancelling: ClassVar[str] = "$/cancel_request"
    most: ClassVar[int] = 256
    batches: ClassVar[bool] = False

    def __init__(self, me: Actor, send: Send) -> None:
        self.me = me
        self.send = send
        self._under_way: dict[jsonrpc.Id, Ref[Never, None]] = {}
        self._asked: dict[jsonrpc.Id, _Asked] = {}
        self._count = 0
        self._closed = False

    @property
    def is_gone(self) -> bool:
        """Whether the connection has gone, so that what is asked of the other side has no answer."""
        return self._closed

    # --- what a subclass says -------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request is under way, in either direction."""
        return not self._under_way and not self._asked

    async def begin(self, request: jsonrpc.Request, send: Send) -> Any:
        """The result of a request, or a coroutine that has it, played by an actor of its own.

        Args:
            send: the way back to who asks.

        Raises:
            Exception: told to the other side, see `told`.
        """
        raise NotImplementedError

    def notified(self, message: jsonrpc.Notification) -> None:
        """The other side tells something; must be quick."""

    def block(self, request: jsonrpc.Request) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - for subclasses
        """What the making and the sending of a later answer happen in."""
        return contextlib.nullcontext()

    def told(self, request: jsonrpc.Request, error: Exception) -> jsonrpc.ErrorData:
        """The JSON-RPC error for `error`."""
        name = request.method
        if isinstance(error, Refusal):
            return jsonrpc.ErrorData(error.code, str(error), error.data)
        if isinstance(error, CallboardError):
            return error_data(error)
        if isinstance(error, jsonrpc.UNREADABLE):
            return jsonrpc.ErrorData(jsonrpc.INVALID_PARAMS, f"{name}: {error}", {"code": "usage"})
        # A bug of ours: with its traceback in the log, and nothing of it on the wire.
        log.error("%s crashed", name, exc_info=error)
        return jsonrpc.ErrorData(
            jsonrpc.INTERNAL_ERROR, f"{name} crashed; the server's log says more", {"code": "error"}
        )

    async def succeeded(self, request: jsonrpc.Request, result: Any, send: Send) -> None:
        """Send a result."""
        await send(jsonrpc.encode_result(request.id, result))

    async def taken_back(self, id: jsonrpc.Id) -> None:
        """The other side has cancelled its request."""
        await self.send(jsonrpc.encode_failure(id, REQUEST_CANCELLED, "the request was cancelled"))

    # --- what comes ---------------------------------------------------------------------------------------

    async def receive(self, frame: bytes) -> None:
        """Take one frame; returns as soon as the next one may come.

        Raises:
            Gone: the answer could not be sent.
        """
        batch = frame.lstrip()[:1] == b"["
        try:
            if batch and self.batches:
                for each in jsonrpc.decode_all(frame):
                    await self.take(each)
                return
            message = jsonrpc.decode(frame)
        except msgspec.ValidationError as error:
            why = "a batch is not taken; send one object per frame" if batch and not self.batches else str(error)
            await self._not_understood(frame, why)
        except msgspec.DecodeError as error:
            await self.send(jsonrpc.encode_failure(None, jsonrpc.PARSE_ERROR, f"this is no JSON: {error}"))
        except jsonrpc.UNREADABLE as error:
            await self._not_understood(frame, str(error))
        else:
            if isinstance(message, jsonrpc.Notification) and _ided(frame).id is None:
                await self._not_understood(frame, "an `id` is a number or a text, not null; a notification has none")
            else:
                await self.take(message)

    async def take(self, message: jsonrpc.Message, send: Send | None = None) -> Ref[Never, None] | None:
        """As `receive`, for what is decoded already.

        Args:
            send: the way back for what belongs to this request.

        Returns:
            The actor that answers the request; None for what is over already.
        """
        if isinstance(message, jsonrpc.Request):
            return await self._requested(message, send or self.send)
        if isinstance(message, jsonrpc.Notification):
            await self._notified(message)
        else:
            self._settled(message)
        return None

    async def _not_understood(self, frame: bytes, why: str) -> None:
        """Refuse the frame; with its id if it has one, so that the request ends."""
        head = _ided(frame)
        id = head.id if isinstance(head.id, int | str) and not isinstance(head.id, bool) else None
        if head.method is msgspec.UNSET and id in self._asked:  # an answer to us, but none that can be read
            self._settled(jsonrpc.Failure(id, jsonrpc.ErrorData(jsonrpc.INVALID_REQUEST, f"the answer is none: {why}")))
            return
        if isinstance(id, str) and len(id) > LONGEST_ID:
            id = None
        await self.send(jsonrpc.encode_failure(id, jsonrpc.INVALID_REQUEST, f"this is no JSON-RPC message: {why}"))

    async def _requested(self, request: jsonrpc.Request, send: Send) -> Ref[Never, None] | None:
        try:
            self._check(request)
            result = await self.begin(request, send)
            if inspect.iscoroutine(result):
                return self._spawn(request, result, send)
        except Exception as error:  # noqa: BLE001 - the client gets each, the log gets bugs
            await self._failed(request, error, send)
            return None
        await self.succeeded(request, result, send)
        return None

    def _check(self, request: jsonrpc.Request) -> None:
        if isinstance(request.id, str) and len(request.id) > LONGEST_ID:
            raise Refusal(jsonrpc.INVALID_REQUEST, f"the id is longer than {LONGEST_ID} characters")
        if request.id in self._under_way:
            raise Refusal(jsonrpc.INVALID_REQUEST, f"a request with the id {request.id!r} is under way already")
        if len(self._under_way) >= self.most:
            text = f"{self.most} requests of this connection are under way; wait for an answer"
            raise Refusal(SATURATED, text, {"code": "saturated"})

    async def _notified(self, message: jsonrpc.Notification) -> None:
        if message.method != self.cancelling:
            self.notified(message)
            return
        try:
            id = decode_json(message.params, _CancelRequest).request_id
        except jsonrpc.UNREADABLE:
            return
        ref = self._under_way.pop(id, None)
        if ref is not None:
            ref.cancel()
            await self.taken_back(id)

    # --- requests that take their time --------------------------------------------------------------------

    def _spawn(self, request: jsonrpc.Request, work: Coroutine[Any, Any, jsonrpc.Json], send: Send) -> Ref[Never, None]:
        name = request.method.replace("/", ".").strip("_$")
        try:
            ref = self.me.spawn(self._answer, request, work, send, name=name, link=False)
        except ShuttingDown:
            work.close()
            raise
        self._under_way[request.id] = ref
        return ref

    async def _answer(
        self, me: Actor, request: jsonrpc.Request, work: Coroutine[Any, Any, jsonrpc.Json], send: Send
    ) -> None:
        id = request.id
        ref = me.ref
        try:
            async with self.block(request):
                answering = False
                try:
                    result = await work
                    answering = self._under_way.pop(id, None) is not None
                    if answering:
                        await self.succeeded(request, result, send)
                except Exception as error:  # noqa: BLE001 - the client gets each, the log gets bugs
                    if answering or self._under_way.pop(id, None) is not None:
                        await self._failed(request, error, send)
        except Gone:
            return
        finally:
            work.close()  # it may never have had its turn
            if self._under_way.get(id) is ref:
                del self._under_way[id]

    async def _failed(self, request: jsonrpc.Request, error: Exception, send: Send) -> None:
        if isinstance(error, Gone):
            raise error
        told = without_secrets(self.told(request, error))
        await send(jsonrpc.encode_failure(request.id, told.code, told.message, told.data))

    # --- what goes ----------------------------------------------------------------------------------------

    async def notify(self, method: str, params: jsonrpc.Json) -> None:
        """Tell the other side something.

        Raises:
            Gone: it is not there any more.
        """
        await self.send(jsonrpc.encode_notification(method, params))

    async def request(self, method: str, params: jsonrpc.Json, send: Send | None = None) -> jsonrpc.Json:
        """Call a method of the other side; its result. When cancelled, it notifies the other side.

        Args:
            send: the way to it, if not the connection's.

        Raises:
            Refused: it answers with an error, or the connection has gone.
        """
        if self._closed:
            raise Refused("the client is gone")
        self._count += 1
        id = f"c{self._count}"
        asked = self._asked[id] = _Asked()
        send = send or self.send
        try:
            await send(jsonrpc.encode_request(id, method, params))
            await asked.settled.wait()
        except Gone:
            raise Refused("the client is gone") from None
        except trio.Cancelled:  # another front end has answered: the client withdraws the question
            if not self._closed:
                self.withdraw(jsonrpc.encode_notification(self.cancelling, {"requestId": id}), send)
            raise
        finally:
            del self._asked[id]
        answer = asked.answer
        if isinstance(answer, jsonrpc.Failure):
            raise Refused(answer.error.message, number=answer.error.code, data=answer.error.data)
        if answer is None:
            raise Refused("the client is gone")
        return msgspec.json.decode(answer.result)

    def withdraw(self, frame: bytes, send: Send) -> None:
        """Send that a request of ours is taken back. Must not wait: who made it is cancelled."""
        with contextlib.suppress(ShuttingDown):
            self.me.spawn(self._sent, frame, send, name="withdrawal", link=False)

    async def _sent(self, _: Actor, frame: bytes, send: Send) -> None:
        with contextlib.suppress(Gone):
            await send(frame)

    def _settled(self, answer: jsonrpc.Result | jsonrpc.Failure) -> None:
        asked = None if answer.id is None else self._asked.get(answer.id)
        if asked is not None:
            asked.answer = answer
            asked.settled.set()

    def close(self) -> None:
        """The connection is gone: end all that goes on for it."""
        self._closed = True
        for asked in self._asked.values():
            asked.settled.set()
        for ref in self._under_way.values():
            ref.cancel()
        self._under_way.clear()


class _Asked:
    __slots__ = ("answer", "settled")

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.answer: jsonrpc.Result | jsonrpc.Failure | None = None


class _Ided(msgspec.Struct):
    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET


def _ided(frame: bytes) -> _Ided:
    """The id of what is no message; nothing, if not even that can be read."""
    try:
        return decode_json(frame, _Ided)
    except jsonrpc.UNREADABLE:
        return _Ided()


class _CancelRequest(msgspec.Struct, rename="camel"):
    request_id: jsonrpc.Id
