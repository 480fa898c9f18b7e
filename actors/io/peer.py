"""JSON-RPC 2.0 in both directions on one connection, independent of the transport.

    class Ours(Peer):
        async def begin(self, request): ...     # the result of a request, or a coroutine for it

    peer = Ours(me, outbox.put)
    async for frame in frames:
        await peer.receive(frame)
    result = await peer.request("elicitation/create", params)

A transport passes each incoming frame to `receive`, and provides a function that sends one. Quick requests are answered
immediately, slow ones by an actor of their own, which ends with the connection, or when the client cancels the request.
Nothing is queued here: senders wait until the transport has accepted the frame. An invalid frame is answered as the
specification says, by its id if it has one, and breaks nothing.

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
from .outbox import PeerClosed
from .secret_redaction import without_secrets

LONGEST_ID = 256
"""Maximum characters of a request id."""

log = logging.getLogger("callboard.control")


class Refusal(Exception):
    """Error response to a request: JSON-RPC's code, a text, and data."""

    def __init__(self, code: int, message: str, data: jsonrpc.Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Reused(Refusal):
    """The id of a request equals that of another pending one."""


Send: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends one frame, and returns when the transport has accepted it; raises `PeerClosed`."""


class Peer:
    """JSON-RPC peer. Subclasses implement `begin` and override the differences from the control channel.

    Args:
        me: actor of the connection; all activities for it are below it.
        send: sends frames that do not belong to a request with its own `send`.

    Attributes:
        me, send: the arguments.
        cancelling: name of the notification that cancels a request, in both directions.
        most: maximum number of concurrent incoming requests.
        batches: True accepts several messages in one frame.
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
    def is_closed(self) -> bool:
        """True if the connection has ended, so that requests to the client get no answer."""
        return self._closed

    # --- for subclasses -------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True if no request is pending, in either direction."""
        return not self._under_way and not self._asked

    async def begin(self, request: jsonrpc.Request, send: Send) -> Any:
        """Return the result of a request, or a coroutine for it, which an actor of its own runs.

        Args:
            send: sends frames to the requester.

        Raises:
            Exception: sent to the client as `error_for` maps it.
        """
        raise NotImplementedError

    def notified(self, message: jsonrpc.Notification) -> None:
        """Handle a notification; must be quick."""

    def block(self, request: jsonrpc.Request) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - for subclasses
        """Return a context manager around producing and sending a deferred answer."""
        return contextlib.nullcontext()

    def error_for(self, request: jsonrpc.Request, error: Exception) -> jsonrpc.ErrorData:
        """Return the JSON-RPC error for an exception."""
        name = request.method
        if isinstance(error, Refusal):
            return jsonrpc.ErrorData(error.code, str(error), error.data)
        if isinstance(error, CallboardError):
            return error_data(error)
        if isinstance(error, jsonrpc.UNREADABLE):
            return jsonrpc.ErrorData(jsonrpc.INVALID_PARAMS, f"{name}: {error}", {"code": "usage"})
        # A bug: its traceback goes to the log, and nothing of it to the client.
        log.error("%s crashed", name, exc_info=error)
        return jsonrpc.ErrorData(
            jsonrpc.INTERNAL_ERROR, f"{name} failed with an internal error; see the server's log", {"code": "error"}
        )

    async def succeeded(self, request: jsonrpc.Request, result: Any, send: Send) -> None:
        await send(self.encoded_result(request.id, result))

    def encoded_result(self, id: jsonrpc.Id, result: Any) -> bytes:
        """Encode the result of a request as a JSON-RPC response."""
        return jsonrpc.encode_result(id, result)

    def encoded_notification(self, method: str, params: Any) -> bytes:
        """Encode an outgoing notification as JSON-RPC."""
        return jsonrpc.encode_notification(method, params)

    def encoded_request(self, id: jsonrpc.Id, method: str, params: Any) -> bytes:
        """Encode an outgoing request as JSON-RPC."""
        return jsonrpc.encode_request(id, method, params)

    async def taken_back(self, id: jsonrpc.Id) -> None:
        """Send the reply to a request that the client has cancelled."""
        await self.send(jsonrpc.encode_failure(id, REQUEST_CANCELLED, "the request was cancelled"))

    # --- incoming ------------------------------------------------------------------------------------------

    async def receive(self, frame: bytes) -> None:
        """Process one frame; return as soon as the next one may come.

        Raises:
            PeerClosed: the client has disconnected, so the answer could not be sent.
        """
        batch = frame.lstrip()[:1] == b"["
        try:
            if batch and self.batches:
                for each in jsonrpc.decode_all(frame):
                    await self.take(each)
                return
            message = jsonrpc.decode(frame)
        except msgspec.ValidationError as error:
            why = (
                "JSON-RPC batches are not supported; send one object per frame"
                if batch and not self.batches
                else str(error)
            )
            await self._not_understood(frame, why)
        except msgspec.DecodeError as error:
            await self.send(jsonrpc.encode_failure(None, jsonrpc.PARSE_ERROR, f"the message is not JSON: {error}"))
        except jsonrpc.UNREADABLE as error:
            await self._not_understood(frame, str(error))
        else:
            if isinstance(message, jsonrpc.Notification) and _ided(frame).id is None:
                await self._not_understood(
                    frame,
                    ("the `id` of a request must be a number or a string, not null; leave `id` out in a notification"),
                )
            else:
                await self.take(message)

    async def take(self, message: jsonrpc.Message, send: Send | None = None) -> Ref[Never, None] | None:
        """Process a decoded message as `receive` does.

        Args:
            send: sends frames that belong to this request.

        Returns:
            The actor that answers the request; None if it is already done.
        """
        if isinstance(message, jsonrpc.Request):
            return await self._requested(message, send or self.send)
        if isinstance(message, jsonrpc.Notification):
            await self._notified(message)
        else:
            self._settled(message)
        return None

    async def _not_understood(self, frame: bytes, why: str) -> None:
        """Refuse a frame; with its id if it has one, so that the request ends."""
        head = _ided(frame)
        id = head.id if isinstance(head.id, int | str) and not isinstance(head.id, bool) else None
        if head.method is msgspec.UNSET and id in self._asked:  # an answer to a pending request, but unreadable
            self._settled(
                jsonrpc.ErrorResponse(
                    id, jsonrpc.ErrorData(jsonrpc.INVALID_REQUEST, f"the response is not valid: {why}")
                )
            )
            return
        if isinstance(id, str) and len(id) > LONGEST_ID:
            id = None
        await self.send(jsonrpc.encode_failure(id, jsonrpc.INVALID_REQUEST, f"the message is not JSON-RPC: {why}"))

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
            raise Refusal(jsonrpc.INVALID_REQUEST, f"the `id` of the request is longer than {LONGEST_ID} characters")
        if request.id in self._under_way:
            text = f"a request with the id {request.id!r} is still running on this connection"
            raise Reused(jsonrpc.INVALID_REQUEST, text, {"code": "usage", "id": request.id})
        if len(self._under_way) >= self.most:
            text = f"{self.most} requests of this connection are running, which is the limit; wait for a response"
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

    # --- deferred requests ---------------------------------------------------------------------------------

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
        except PeerClosed:
            return
        finally:
            work.close()  # it may never have started
            if self._under_way.get(id) is ref:
                del self._under_way[id]

    async def _failed(self, request: jsonrpc.Request, error: Exception, send: Send) -> None:
        if isinstance(error, PeerClosed):
            raise error
        told = without_secrets(self.error_for(request, error))
        # Both requests came on one connection: with its id the error would end the pending one.
        id = None if isinstance(error, Reused) and send == self.send else request.id
        await send(jsonrpc.encode_failure(id, told.code, told.message, told.data))

    # --- outgoing ------------------------------------------------------------------------------------------

    async def notify(self, method: str, params: jsonrpc.Json) -> None:
        """Send a notification.

        Raises:
            PeerClosed: the client has disconnected.
        """
        await self.send(self.encoded_notification(method, params))

    async def request(self, method: str, params: jsonrpc.Json, send: Send | None = None) -> jsonrpc.Json:
        """Call a method of the client and return its result. If cancelled, it notifies the client.

        Args:
            send: sends frames to the client; default: the connection's.

        Raises:
            Refused: the client answers with an error, or has disconnected.
        """
        if self._closed:
            raise Refused("the client has disconnected")
        self._count += 1
        id = f"c{self._count}"
        asked = self._asked[id] = _Asked()
        send = send or self.send
        try:
            await send(self.encoded_request(id, method, params))
            await asked.settled.wait()
        except PeerClosed:
            raise Refused("the client has disconnected") from None
        except trio.Cancelled:  # another front end has answered: withdraw the question
            if not self._closed:
                self.withdraw(jsonrpc.encode_notification(self.cancelling, {"requestId": id}), send)
            raise
        finally:
            del self._asked[id]
        answer = asked.answer
        if isinstance(answer, jsonrpc.ErrorResponse):
            raise Refused(answer.error.message, number=answer.error.code, data=answer.error.data)
        if answer is None:
            raise Refused("the client has disconnected")
        return msgspec.json.decode(answer.result)

    def withdraw(self, frame: bytes, send: Send) -> None:
        """Send the cancellation of an outgoing request. Must not wait: its task is cancelled."""
        with contextlib.suppress(ShuttingDown):
            self.me.spawn(self._sent, frame, send, name="withdrawal", link=False)

    async def _sent(self, _: Actor, frame: bytes, send: Send) -> None:
        with contextlib.suppress(PeerClosed):
            await send(frame)

    def _settled(self, answer: jsonrpc.Result | jsonrpc.ErrorResponse) -> None:
        asked = None if answer.id is None else self._asked.get(answer.id)
        if asked is not None:
            asked.answer = answer
            asked.settled.set()

    def close(self) -> None:
        """End the requests and tasks that belong to the connection."""
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
        self.answer: jsonrpc.Result | jsonrpc.ErrorResponse | None = None


class _Ided(msgspec.Struct):
    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET


def _ided(frame: bytes) -> _Ided:
    """Return the id of an invalid message, as far as it can be read."""
    try:
        return decode_json(frame, _Ided)
    except jsonrpc.UNREADABLE:
        return _Ided()


class _CancelRequest(msgspec.Struct, rename="camel"):
    request_id: jsonrpc.Id
