"""MCP protocol state and dispatch for one client. The transports (`serving`, `asgi`) carry its messages.

Two protocol eras are supported, and each request shows its era. From version 2026-07-28 on a request is self-contained:
its `_meta` names the version and the client's capabilities, so a session holds only its open requests. Older clients
begin with `initialize`, and the session stores the negotiated version.

A request either gets its result at once or starts a run, in an actor of its own. A `ReplyChannel` sends that request's
progress and, in the older era, its questions. In the newer era a question is returned as the request's result, and the
next request carries the answer. Cancelling a request cancels its run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import msgspec
import trio

from ....protocol.errors import CallboardError, ShuttingDown, UsageError
from ....protocol.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNREADABLE,
    Id,
    Request,
    encode_notification,
)
from ....protocol.kernel.questions import Question
from ....protocol.mcp.model import (
    COMPLETE,
    HANDSHAKE,
    INPUT_REQUIRED,
    META_CAPABILITIES,
    META_SERVER,
    META_VERSION,
    MODERN,
    UNSUPPORTED_VERSION,
)
from ....protocol.problems import did_you_mean
from ....protocol.version import VERSION
from ...io.peer import Peer, Refusal, Send
from ...io.secret_redaction import hidden
from .service import McpToolCall, OfferedAgent, Service, form, takes_forms, tool_result

Json = Any


class PutMessage(Protocol):
    """Send a message without waiting. A `droppable` one may be lost when the client is slow."""

    def __call__(self, message: bytes, /, *, droppable: bool = False) -> None: ...


@final
class ReplyChannel:
    """Return path to the client of one request. No message waits for a slow client (see the transports).

    Args:
        put: sends messages that precede the answer.
        answer: sends the answer; by default `put`.
    """

    def __init__(self, put: PutMessage, answer: Callable[[bytes], None] | None = None) -> None:
        self.put = put
        self._answer = answer or put

    async def __call__(self, frame: bytes) -> None:
        """Send the answer, as `peer.Send`."""
        self._answer(frame)


SERVER = {"name": "callboard", "version": VERSION}
ABILITIES: dict[str, Json] = {"tools": {}}
INSTRUCTIONS = "Each tool runs an agent to its end and returns its answer. Tell it what to do as `prompt`."
CACHE_MS = 60_000
"""Milliseconds for which a client may cache the tool list. The list does not change until the process restarts."""

TOGETHER = 0.02
"""Seconds to collect further questions after the first, because clients limit the rate of questions."""


@final
class McpSession(Peer):
    """MCP session of one client.

    Args:
        put: sends messages that belong to no request.
    """

    cancelling = "notifications/cancelled"
    most = 1_000
    batches = True

    def __init__(self, service: Service, put: PutMessage) -> None:
        super().__init__(service.me, ReplyChannel(put))
        self._service = service
        self._version = ""
        self._asks = False

    async def begin(self, request: Request, send: Send) -> Any:
        """Return the result of a request, or the coroutine of the run that will produce it.

        Raises:
            Refusal: an old client has not sent `initialize`, or the method or its parameters are invalid.
        """
        params = params_of(request)
        assert isinstance(send, ReplyChannel)
        if version_named(params) is not None:
            return self._modern(request, params, send)
        if request.method == "initialize":
            return self._initialize(params)
        if request.method == "ping":
            return {}
        if not self._version:
            raise Refusal(
                INVALID_PARAMS,
                (
                    f"{request.method} was sent too early: send `initialize` first, or name the protocol version "
                    f"({MODERN}) as `{META_VERSION}` in `params._meta`"
                ),
            )
        if request.method == "tools/list":
            return {"tools": self._tools()}
        if request.method == "tools/call":
            return self._call(params, self._version, send, asks=self._asks)
        raise _unknown(request)

    async def taken_back(self, id: Id) -> None:
        """Send nothing: by the specification a cancelled request has no answer."""

    def withdraw(self, frame: bytes, send: Send) -> None:
        assert isinstance(send, ReplyChannel)
        send.put(frame)

    async def _play(self, call: McpToolCall, version: str, token: Json, way: ReplyChannel) -> dict[str, Json]:

        def on_progress(step: int, note: str) -> None:
            said = {"progressToken": token, "progress": step, "message": note}
            way.put(encode_notification("notifications/progress", said), droppable=True)

        try:
            if isinstance(token, int | str):
                call.on_progress = on_progress
            if version == MODERN:
                return await self._result_or_questions(call)
            await self._ask_until_the_end(call, version, way)
            return call.to_wire()
        except BaseException:  # the client has cancelled, or our code has a bug: the run has no reader any more
            call.cancel()
            raise
        finally:
            call.on_progress = None

    # --- newer era: each request is self-contained ---------------------------------------------------------------

    def _modern(self, request: Request, params: Mapping[str, Json], way: ReplyChannel) -> Json:
        meta = params["_meta"]
        if not isinstance(meta.get(META_CAPABILITIES), dict):
            raise Refusal(INVALID_PARAMS, f"`params._meta` must have `{META_CAPABILITIES}`, an object")
        version = version_named(params)
        if version != MODERN:
            spoken = {"supported": [MODERN], "requested": str(version)}
            raise Refusal(UNSUPPORTED_VERSION, f"protocol version {version} is not supported; use {MODERN}", spoken)
        if request.method == "tools/call":
            return self._call(params, MODERN, way, asks=takes_forms(meta[META_CAPABILITIES]))
        cached = {"ttlMs": CACHE_MS, "cacheScope": "private"}
        if request.method == "server/discover":
            known = {"supportedVersions": [MODERN], "capabilities": ABILITIES, "instructions": INSTRUCTIONS}
            return _complete({**known, **cached})
        if request.method == "tools/list":
            return _complete({"tools": self._tools(), **cached})
        raise _unknown(request)

    async def _result_or_questions(self, call: McpToolCall) -> dict[str, Json]:
        while not call.ended and not call.questions:
            # A result with questions ends the request, so questions of the same moment are collected first.
            await call.news()
            await trio.sleep(TOGETHER if call.questions else 0)
        if call.ended:
            return _complete(call.to_wire())
        asked = {
            question.id: {"method": "elicitation/create", "params": form(question, MODERN)}
            for question in call.questions.values()
        }
        state = self._service.park(call)
        return {**_complete({}), "resultType": INPUT_REQUIRED, "inputRequests": asked, "requestState": state}

    # --- older era: `initialize` first ---------------------------------------------------------------------------

    def _initialize(self, params: Mapping[str, Json]) -> dict[str, Json]:
        wanted, abilities = params.get("protocolVersion"), params.get("capabilities")
        self._version = wanted if wanted in HANDSHAKE else HANDSHAKE[0]
        self._asks = isinstance(abilities, dict) and takes_forms(abilities)
        return {
            "protocolVersion": self._version,
            "capabilities": ABILITIES,
            "serverInfo": SERVER,
            "instructions": INSTRUCTIONS,
        }

    async def _ask_until_the_end(self, call: McpToolCall, version: str, way: ReplyChannel) -> None:
        """Send the run's questions to the client as they arise; withdraw closed ones."""
        asked: dict[str, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while not call.ended:
                for question in list(call.questions.values()):
                    if question.id not in asked:
                        scope = asked[question.id] = trio.CancelScope()
                        nursery.start_soon(self._ask, call, question, version, way, scope)
                for id in [id for id in asked if id not in call.questions]:
                    asked.pop(id).cancel()
                await call.news()
            nursery.cancel_scope.cancel()

    async def _ask(
        self, call: McpToolCall, question: Question, version: str, way: ReplyChannel, scope: trio.CancelScope
    ) -> None:
        patience = self._service.options.question_timeout
        answer: Json = None
        with scope:
            with trio.move_on_after(patience) as limit:
                try:
                    answer = await self.request("elicitation/create", form(question, version), ReplyChannel(way.put))
                except (CallboardError, *UNREADABLE):  # the client declines to ask, or its answer is unreadable
                    answer = None
            if limit.cancelled_caught:
                call.expire(question.id, patience)
            else:
                call.answer(question.id, answer if isinstance(answer, dict) else {})

    # --- both eras -----------------------------------------------------------------------------------------------

    def _tools(self) -> list[dict[str, Json]]:
        return [offer.tool for offer in self._service.offers.values()]

    def _call(self, params: Mapping[str, Json], version: str, way: ReplyChannel, *, asks: bool) -> Json:
        offer = self._offer(params.get("name"))
        state, arguments = params.get("requestState"), params.get("arguments")
        if version == MODERN and state is not None:
            call = self._resumed(state, offer, params.get("inputResponses"))
        else:
            if not isinstance(arguments, dict | None):
                raise Refusal(INVALID_PARAMS, "`arguments` must be an object")
            try:
                call = self._service.begin(offer, arguments or {}, asks=asks)
            # a mistake of the model, which it can correct: a failed result, not a protocol error
            except (UsageError, ShuttingDown) as error:
                refusal = tool_result(hidden(str(error)), failed=True)
                return _complete(refusal) if version == MODERN else refusal
        meta = params.get("_meta")
        return self._play(call, version, meta.get("progressToken") if isinstance(meta, dict) else None, way)

    def _offer(self, name: Json) -> OfferedAgent:
        offers = self._service.offers
        if not isinstance(name, str) or name not in offers:
            hint = did_you_mean(str(name)[:100], offers) or f"there are: {', '.join(offers)}"
            raise Refusal(INVALID_PARAMS, f"Unknown tool: '{str(name)[:100]}'; {hint}")
        return offers[name]

    def _resumed(self, state: Json, offer: OfferedAgent, responses: Json) -> McpToolCall:
        call = self._service.resume(state, offer.name) if isinstance(state, str) else None
        if call is None:
            raise Refusal(
                INVALID_PARAMS,
                (
                    f"no call of '{offer.name}' waits with this `requestState`: it was already continued, or "
                    f"expired after {self._service.options.question_timeout:g} s; call the tool again without it"
                ),
            )
        for question_id, result in (responses if isinstance(responses, dict) else {}).items():
            call.answer(question_id, result if isinstance(result, dict) else {})
        return call


def params_of(request: Request) -> dict[str, Json]:
    """Return the parameters of a request as a dict.

    Raises:
        Refusal: they are not an object, or unreadable.
    """
    params = _decoded(request.params)
    if not isinstance(params, dict):
        raise Refusal(INVALID_PARAMS, "`params` must be an object")
    return params


def _decoded(text: msgspec.Raw) -> Json:
    """Decode JSON whose syntax was only checked at both ends so far; return None if it is invalid."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def version_named(params: Mapping[str, Json]) -> Json:
    """Return the version that a request of the newer era names; None for an older request."""
    meta = params.get("_meta")
    return meta.get(META_VERSION) if isinstance(meta, dict) else None


def _complete(result: Mapping[str, Json]) -> dict[str, Json]:
    return {"resultType": COMPLETE, **result, "_meta": {META_SERVER: SERVER}}


def _unknown(request: Request) -> Refusal:
    return Refusal(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
