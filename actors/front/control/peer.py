"""Control channel connection: a JSON-RPC peer (`io.peer`) that serves the methods of the hub and of ACP.

Methods are data: `hub.Method` names the structs of a method and its handler. The hub holds a table of them, and each
connection calls them. Each subscription is an actor below the connection's actor, and ends with the connection. A
client that reads slowly delays only its own subscriptions, which fall behind and send `lagged`.

Three limits bound the memory that a client can cause. `room` delays long answers until the client reads. `turn` allows
one API key only a few long answers at a time. `max_frame` bounds each frame.

Many websocket libraries close a connection with 1009 when a frame exceeds 1 MiB. A client that reconnects and resumes
would get the same frame again, forever. So the server shortens long frames and marks them (`shortened`). `_meta.cut` of
the params or the result maps the JSON pointer of each shortened value to its original length: characters of a text, or
items of a list. `_result/part` returns the complete result in parts.

Texts and lists are shortened together, in steps, until the frame fits. So a frame with many medium texts keeps a piece
of each. Model output does not get this long, because it is split where it is emitted (`split_text`).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Never

import msgspec

from ....protocol.control import method_structs
from ....protocol.control.caller import Caller
from ....protocol.control.errors import error_for_client
from ....protocol.control.method_structs import MOST_CUT
from ....protocol.decoding import decode_json
from ....protocol.errors import CallboardError, Conflict, Saturated, ShuttingDown, UsageError
from ....protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    UNREADABLE,
    ErrorData,
    Id,
    Json,
    Notification,
    Request,
    encode_failure,
)
from ....protocol.problems import did_you_mean
from ...io import peer
from ...io.outbox import PeerClosed
from .cluster import RELAYED

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from ..access.access_control import AccessControl
    from .hub import Hub, Method


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


MOST_SUBSCRIPTIONS = 1024


PARTED = frozenset(
    {
        *(
            "_run/list",
            "_run/get",
            "_run/events",
            "_run/output",
            "_run/graph",
            "_run/calls",
            "_run/call",
            "_run/changes",
        ),
        *(
            "_run/rows",
            "_run/steps",
            "_actor/tree",
            "_actor/inspect",
            "_question/list",
            "_session/list",
            "_session/get",
        ),
        *("_session/export", "_chat/get", "_chat/list", "_target/list", "_mcp/status", "_usage/read"),
    }
)
"""Methods whose result `_result/part` returns in parts. They have no side effects, so each part may call them again."""

PART_LENGTH = 100_000
"""Characters of a part. JSON escapes take at most six bytes each."""

LONGEST_ERROR = 20_000
"""Characters of a message that remain when an error does not fit into a frame."""

HEAD = 1024
"""Upper bound, in bytes, of the id and the rest of an error frame."""

log = logging.getLogger("callboard.control")


async def _always() -> None:
    """Report room at once: the default for a transport with a single client."""


class ControlPeer(peer.Peer):
    """Peer of one client.

    Args:
        me: the connection's actor; all its tasks and subscriptions are below it.
        hub: the hub to serve.
        caller: the authenticated client.
        send: sends one frame and returns when the transport has accepted it; raises `PeerClosed`.
        methods: returns the methods that this connection serves in addition to the hub's (ACP).
        access: authorises and audits each method.
        room: waits until the transport has room for a frame; raises `PeerClosed`. The peer waits before it computes a
            long answer, so a client that does not read also stops the computation, not only the sending.
        turn: block that bounds the number of concurrent long answers.
        max_frame: limit in bytes of a frame to the client; longer ones are shortened. 0: no limit.

    Attributes:
        me, hub, caller, room, turn, max_frame: see the arguments.
    """

    def __init__(
        self,
        me: Actor,
        hub: Hub,
        caller: Caller,
        send: Callable[[bytes], Awaitable[None]],
        *,
        methods: Callable[[ControlPeer], Mapping[str, Method]] | None = None,
        access: AccessControl | None = None,
        room: Callable[[], Awaitable[None]] = _always,
        turn: AbstractAsyncContextManager[None] | None = None,
        max_frame: int = 0,
    ) -> None:
        super().__init__(me, send)
        self.room = room
        self.turn = turn or contextlib.nullcontext()
        self.hub = hub
        self.max_frame = max_frame
        self.caller = caller
        self._access = access
        self._subscriptions: dict[str, Ref[Never, None]] = {}
        self._methods = {} if methods is None else methods(self)

    # --- received -----------------------------------------------------------------------------------------

    async def begin(self, request: Request, send: peer.Send) -> Any:  # noqa: ARG002 - one transport for all answers
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
            # A finished run has no actors, so this process can answer for it.
            if info.status in ("running", "waiting") or not name.startswith("_actor/"):
                return await cluster.ask(run, name, request.params)
        return method.call(self, decode_json(request.params, method.params))

    def block(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Return the block that limits concurrent long answers of one API key."""
        method = self._method(request.method)
        return self.turn if method is not None and method.long else contextlib.nullcontext()

    def encoded_result(self, id: Id, result: Any) -> bytes:
        frame = super().encoded_result(id, result)
        if not self.max_frame or len(frame) <= self.max_frame:
            return frame
        return super().encoded_result(id, shortened(msgspec.json.decode(frame)["result"], self.max_frame))

    def encoded_notification(self, method: str, params: Any) -> bytes:
        frame = super().encoded_notification(method, params)
        if not self.max_frame or len(frame) <= self.max_frame:
            return frame
        return super().encoded_notification(method, shortened(msgspec.json.decode(frame)["params"], self.max_frame))

    def encoded_request(self, id: Id, method: str, params: Any) -> bytes:
        frame = super().encoded_request(id, method, params)
        if not self.max_frame or len(frame) <= self.max_frame:
            return frame
        return super().encoded_request(id, method, shortened(msgspec.json.decode(frame)["params"], self.max_frame))

    async def part(self, method: str, params: dict[str, Any], start: int, etag: str | None) -> method_structs.Part:
        """Return one part of a method's result. Each call computes the whole result again.

        Raises:
            UsageError: the method's result is never split, or `start` is beyond its end.
            Conflict: the result differs from the one that `etag` identifies.
        """
        if method not in PARTED:
            raise UsageError(f"`method` is {method[:100]!r}, whose result can't be read in parts")
        result = await self.begin(Request(0, method, msgspec.Raw(msgspec.json.encode(params))), self.send)
        if inspect.iscoroutine(result):
            result = await result
        data = bytes(decode_json(super().encoded_result(0, result), _Whole).result)
        if self._access is not None:
            # On the whole result: a part could end within a path, which would then stay unmasked.
            data = self._access.paths.for_caller(self.caller, data)
        text = data.decode()
        whole = hashlib.sha256(text.encode()).hexdigest()[:32]
        if etag is not None and etag != whole:
            raise Conflict(f"the result of {method} has changed since its first part was read; start again at 0")
        if start > len(text):
            raise UsageError(f"`from` is {start}, and the result has {len(text)} characters")
        end = start + PART_LENGTH
        return method_structs.Part(
            part=text[start:end], next=end if end < len(text) else None, length=len(text), etag=whole
        )

    def _method(self, name: str) -> Method | None:
        # The connection's own methods take precedence over the hub's.
        return self._methods.get(name) or self.hub.methods.get(name)

    def _unknown(self, name: str) -> str:
        near = did_you_mean(name[:100], [*self.hub.methods, *self._methods])
        return f"there is no method {name[:100]!r}" + (f"; {near}" if near else "")

    def notified(self, message: Notification) -> None:
        """Handle a notification; one that cannot be decoded is ignored, as JSON-RPC forbids an answer."""
        method = self._method(message.method)
        if method is not None and method.notification:
            try:
                params = decode_json(message.params, method.params)
            except UNREADABLE:
                return
            method.call(self, params)

    def error_for(self, request: Request, error: Exception) -> ErrorData:
        """Audit a failed request and return its error data: only what the caller may see, cut to `max_frame` bytes."""
        if self._access is not None and isinstance(error, CallboardError):
            self._access.audit_method(self.caller, request.method, _target_of(request), error)
        if isinstance(error, CallboardError):
            error = error_for_client(self.caller, error)
        found = super().error_for(request, error)
        if self.max_frame and len(encode_failure(0, found.code, found.message, found.data)) + HEAD > self.max_frame:
            message, more = found.message[:LONGEST_ERROR], len(found.message) - LONGEST_ERROR
            code = found.data.get("code") if isinstance(found.data, dict) else None
            text = f"{message}... ({more} more characters)" if more > 0 else message
            found = ErrorData(found.code, text, {"code": code} if code else None)
        return found

    async def succeeded(self, request: Request, result: Any, send: peer.Send) -> None:
        """Send the result and, for `Follow`, start its subscription."""
        if self._access is not None:
            self._access.audit_method(self.caller, request.method, _target_of(request))
        if not isinstance(result, Follow):
            await super().succeeded(request, result, send)
            return
        try:
            await super().succeeded(request, result.result, send)
        except BaseException:  # the client has disconnected or the server ends: `body` never starts
            if result.after is not None:
                result.after()
            raise
        self._follow(result)

    # --- subscriptions ------------------------------------------------------------------------------------

    def new_subscription(self) -> str:
        """Return a new subscription id.

        Raises:
            Saturated: the connection has `MOST_SUBSCRIPTIONS` already.
        """
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise Saturated(f"this connection has {MOST_SUBSCRIPTIONS} subscriptions, the maximum; end one first")
        self._count += 1
        return f"s{self._count}"

    def unsubscribe(self, id: str) -> bool:
        """End a subscription; returns False if the id is unknown."""
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
        # Registered before the first checkpoint, so that `unsubscribe` and `close` find it.
        self._subscriptions[follow.id] = ref
        if after is not None:
            ref.on_end(lambda _: after())

    async def _followed(self, me: Actor, follow: Follow) -> None:
        try:
            await follow.body()
        except PeerClosed:
            pass
        except Exception:  # logged: a bug in one subscription must not end the connection
            log.exception("%s crashed", me.path)
        finally:
            self._subscriptions.pop(follow.id, None)

    def close(self) -> None:
        """Close the peer and cancel its subscriptions."""
        if self._closed:
            return
        super().close()
        for ref in self._subscriptions.values():
            ref.cancel()
        self._subscriptions.clear()


class _Whole(msgspec.Struct):
    result: msgspec.Raw


class _Target(msgspec.Struct):
    run: Any = None
    path: Any = None
    question: Any = None
    session: Any = None
    server: Any = None
    target: Any = None


def _run_of(request: Request) -> str:
    """Return the id of the run that a request concerns; "" for none or all."""
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


MAX_FRAME = 1024 * 1024
"""Default limit of a frame in bytes: the default of common websocket libraries."""

SMALLEST, LARGEST = 64 * 1024, 100 * 1024 * 1024
"""Bounds of the limit that a client may set."""

_FRAME_HEAD = 2048
"""Bytes reserved for the rest of a frame."""

_STEPS = ((100_000, 10_000), (20_000, 1_000), (4_000, 300), (1_000, 100), (200, 30), (40, 5))
"""Maximum characters of each text, and items of each list or object, per step."""


def shortened(value: Json, most: int) -> dict[str, Json]:
    """Return `value` as an object with `_meta.cut`, short enough for a frame of `most` bytes.

    If `value` is no object, or does not fit even after the last step, the result contains nothing of it. `_meta.cut`
    then has one entry: the length of `value`, under the key "".

    Args:
        value: params or a result, as JSON values.
    """
    for text, items in _STEPS:
        cut: dict[str, int] = {}
        short = _cut(value, text, items, "", cut)
        if isinstance(short, dict):
            marked: dict[str, Json] = {**short, "_meta": {"cut": dict(list(cut.items())[:MOST_CUT])}}
            if len(msgspec.json.encode(marked)) <= most - _FRAME_HEAD:
                return marked
    return {"_meta": {"cut": {"": len(value)}}}


def _cut(value: Json, text: int, items: int, where: str, cut: dict[str, int]) -> Json:
    if isinstance(value, str):
        if len(value) <= text:
            return value
        cut[where] = len(value)
        return value[:text]
    if isinstance(value, list):
        if len(value) > items:
            cut[where] = len(value)
        return [_cut(each, text, items, f"{where}/{number}", cut) for number, each in enumerate(value[:items])]
    if isinstance(value, dict):
        if len(value) > items:
            cut[where] = len(value)
        return {
            key: _cut(each, text, items, f"{where}/{key.replace('~', '~0').replace('/', '~1')}", cut)
            for key, each in list(value.items())[:items]
        }
    return value
