"""What is said to one client. The transports (`stdio`, `http`) carry it.

Two eras, told apart request by request. From 2026-07-28 on a request stands alone: its `_meta` says the version and
what the client can do, so a session is nothing but the requests that are under way. Before, the client begins with
`initialize`, and the session remembers what that said.

`receive` answers at once, or returns a `Leg`: one request's part of a run, which the transport plays in a task of its
own (`play`), with a way to send what belongs to it: progress, and questions in the older era. In the newer one a
question is the leg's result, and the next leg brings the answer. A client that cancels a request cancels its run.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import trio

from ....protocol.errors import ShuttingDown, UsageError
from ....protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Failure,
    Id,
    Notification,
    Request,
    Result,
    encode_failure,
    encode_notification,
    encode_request,
    encode_result,
)
from ....protocol.mcp.model import (
    COMPLETE,
    HANDSHAKE,
    INPUT_REQUIRED,
    META_CAPABILITIES,
    META_SERVER,
    META_VERSION,
    MODERN,
    UNSUPPORTED_VERSION,
    Cancelled,
)
from ....protocol.problems import did_you_mean
from ....protocol.version import VERSION
from .call import Call, tool_result
from .elicitation import form, takes_forms
from .offers import Offer
from .service import Service

Json = Any

log = logging.getLogger("callboard.mcp_server")


class Send(Protocol):
    """Sends a message that belongs to a request; never waits. What is `droppable` may be lost on a slow client."""

    def __call__(self, message: bytes, /, *, droppable: bool = False) -> None: ...


SERVER = {"name": "callboard", "version": VERSION}
ABILITIES: dict[str, Json] = {"tools": {}}
INSTRUCTIONS = "Each tool runs an agent to its end and returns its answer. Tell it what to do as `prompt`."
CACHE_MS = 60_000
"""How long a client may keep the list of tools, which stays as it is until we are started again."""

TOGETHER = 0.02
"""Seconds that a first question waits for others of the same moment: clients bound how often they are asked."""

MAX_LEGS = 1_000
"""Requests of one client that may be under way."""


class Refused(Exception):
    """A request that can't be answered; the error's code and data go over the wire."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Leg(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request of the client's, looking after a call.

    Attributes:
        id: of the request.
        call: the run.
        version: the revision it speaks.
        token: under which it wants to hear of progress; None if it does not.
        scope: cancelled when the client cancels the request.
    """

    id: Id
    call: Call
    version: str
    token: int | str | None
    scope: trio.CancelScope


class Session:
    """See the module."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._version = ""
        self._asks = False
        self._legs: dict[Id, Leg] = {}
        self._questions: dict[Id, tuple[Call, str]] = {}
        self._ids = itertools.count(1)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._legs

    def close(self) -> None:
        """The client has gone: cancel what it waits for."""
        for leg in list(self._legs.values()):
            leg.scope.cancel()

    # --- messages -------------------------------------------------------------------------------------------

    def receive(self, request: Request) -> bytes | Leg:
        """The answer to a request, or the leg that will have it.

        Raises:
            Refused: it can't be answered.
        """
        params = params_of(request)
        if version_named(params) is not None:
            return self._modern(request, params)
        if request.method == "initialize":
            return encode_result(request.id, self._initialize(params))
        if request.method == "ping":
            return encode_result(request.id, {})
        if not self._version:
            raise Refused(
                INVALID_PARAMS,
                f"{request.method} comes too early: begin with `initialize`, or say the protocol's version "
                f"({MODERN}) as `{META_VERSION}` in `params._meta`",
            )
        if request.method == "tools/list":
            return encode_result(request.id, {"tools": self._tools()})
        if request.method == "tools/call":
            return self._call(request, params, self._version, asks=self._asks)
        raise _unknown(request)

    def notified(self, notification: Notification) -> None:
        """The client says something; of interest is only that it cancels."""
        if notification.method != "notifications/cancelled":
            return
        try:
            cancelled = msgspec.json.decode(notification.params, type=Cancelled)
        except (ValueError, RecursionError):
            return
        leg = self._legs.get(cancelled.request_id)
        if leg is not None:
            leg.scope.cancel()

    def answered(self, message: Result | Failure) -> None:
        """The client's answer to a question of ours. One that we no longer wait for is dropped."""
        call, question = self._questions.pop(message.id, (None, "")) if message.id is not None else (None, "")
        if call is None:
            return
        result = _decoded(message.result) if isinstance(message, Result) else None
        call.answer(question, result if isinstance(result, dict) else {})

    async def play(self, leg: Leg, send: Send) -> bytes | None:
        """See a leg to its end: the answer to its request; None if the client cancelled it."""

        def on_progress(step: int, note: str) -> None:
            said = {"progressToken": leg.token, "progress": step, "message": note}
            send(encode_notification("notifications/progress", said), droppable=True)

        call = leg.call
        with leg.scope:
            try:
                if leg.token is not None:
                    call.on_progress = on_progress
                if leg.version == MODERN:
                    return encode_result(leg.id, await self._result_or_questions(call))
                await self._ask_until_the_end(leg, send)
                return encode_result(leg.id, call.to_wire())
            except trio.Cancelled:
                call.cancel()
                raise
            except Exception as error:  # our own fault, or a result that is no text: nobody should wait for ever
                log.exception("%s could not be answered", call.offer.name)
                call.cancel()
                return encode_failure(leg.id, INTERNAL_ERROR, f"the server failed: {error!r}")
            finally:
                call.on_progress = None
                del self._legs[leg.id]
        return None

    # --- the newer era --------------------------------------------------------------------------------------

    def _modern(self, request: Request, params: Mapping[str, Json]) -> bytes | Leg:
        meta = params["_meta"]
        if not isinstance(meta.get(META_CAPABILITIES), dict):
            raise Refused(INVALID_PARAMS, f"`params._meta` lacks `{META_CAPABILITIES}`, an object")
        version = version_named(params)
        if version != MODERN:
            spoken = {"supported": [MODERN], "requested": str(version)}
            raise Refused(UNSUPPORTED_VERSION, f"version {version} is not spoken here; {MODERN} is", spoken)
        if request.method == "tools/call":
            return self._call(request, params, MODERN, asks=takes_forms(meta[META_CAPABILITIES]))
        cached = {"ttlMs": CACHE_MS, "cacheScope": "private"}
        if request.method == "server/discover":
            known = {"supportedVersions": [MODERN], "capabilities": ABILITIES, "instructions": INSTRUCTIONS}
            return encode_result(request.id, _complete({**known, **cached}))
        if request.method == "tools/list":
            return encode_result(request.id, _complete({"tools": self._tools(), **cached}))
        raise _unknown(request)

    async def _result_or_questions(self, call: Call) -> dict[str, Json]:
        while not call.ended and not call.questions:
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

    # --- the older one --------------------------------------------------------------------------------------

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

    async def _ask_until_the_end(self, leg: Leg, send: Send) -> None:
        """Put the run's questions to the client as they come up, and take back what the run no longer asks."""
        call, patience = leg.call, self._service.options.question_timeout
        asked: dict[str, tuple[str, float]] = {}
        try:
            while not call.ended:
                for question in list(call.questions.values()):
                    if question.id not in asked:
                        id = f"callboard-{next(self._ids)}"
                        asked[question.id] = id, trio.current_time() + patience
                        self._questions[id] = call, question.id
                        send(encode_request(id, "elicitation/create", form(question, leg.version)))
                for question_id in [each for each in asked if each not in call.questions]:
                    self._take_back(asked.pop(question_id)[0], send)
                with trio.move_on_at(min((until for _, until in asked.values()), default=float("inf"))) as wait:
                    await call.news()
                if wait.cancelled_caught:
                    for question_id, (_, until) in asked.items():
                        if until <= trio.current_time():
                            call.expire(question_id, patience)
        finally:
            for id, _ in asked.values():
                self._take_back(id, send)

    def _take_back(self, id: str, send: Send) -> None:
        """The answer to this request of ours is not needed any more, if it has not come."""
        if self._questions.pop(id, None) is not None:
            send(encode_notification("notifications/cancelled", {"requestId": id, "reason": "no longer asked"}))

    # --- both -----------------------------------------------------------------------------------------------

    def _tools(self) -> list[dict[str, Json]]:
        return [offer.tool for offer in self._service.offers.values()]

    def _call(self, request: Request, params: Mapping[str, Json], version: str, *, asks: bool) -> bytes | Leg:
        if request.id in self._legs:
            raise Refused(INVALID_REQUEST, f"another request with the id {request.id!r} is under way")
        if len(self._legs) >= MAX_LEGS:
            raise Refused(INVALID_REQUEST, f"{MAX_LEGS} requests are under way, which is the most")
        offer = self._offer(params.get("name"))
        state, arguments = params.get("requestState"), params.get("arguments")
        if version == MODERN and state is not None:
            call = self._resumed(state, offer, params.get("inputResponses"))
        else:
            if not isinstance(arguments, dict | None):
                raise Refused(INVALID_PARAMS, "`arguments` must be an object")
            try:
                call = self._service.begin(offer, arguments or {}, asks=asks)
            except (UsageError, ShuttingDown) as error:  # the model's mistake, which it can mend
                refusal = tool_result(str(error), failed=True)
                return encode_result(request.id, _complete(refusal) if version == MODERN else refusal)
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        leg = Leg(
            id=request.id,
            call=call,
            version=version,
            token=token if isinstance(token, int | str) else None,
            scope=trio.CancelScope(),
        )
        self._legs[leg.id] = leg
        return leg

    def _offer(self, name: Json) -> Offer:
        offers = self._service.offers
        if not isinstance(name, str) or name not in offers:
            hint = did_you_mean(str(name)[:100], offers) or f"there are: {', '.join(offers)}"
            raise Refused(INVALID_PARAMS, f"Unknown tool: '{str(name)[:100]}'; {hint}")
        return offers[name]

    def _resumed(self, state: Json, offer: Offer, responses: Json) -> Call:
        call = self._service.resume(state, offer.name) if isinstance(state, str) else None
        if call is None:
            raise Refused(
                INVALID_PARAMS,
                f"no call of '{offer.name}' waits under this `requestState`: it was used before, or given up after "
                f"{self._service.options.question_timeout:g} s; call again without it",
            )
        for question_id, result in (responses if isinstance(responses, dict) else {}).items():
            call.answer(question_id, result if isinstance(result, dict) else {})
        return call


def params_of(request: Request) -> dict[str, Json]:
    """The parameters of a request.

    Raises:
        Refused: they are no object, or can't be read.
    """
    params = _decoded(request.params)
    if not isinstance(params, dict):
        raise Refused(INVALID_PARAMS, "`params` must be an object")
    return params


def _decoded(text: msgspec.Raw) -> Json:
    """The value of a JSON text, of which only the beginning and the end were looked at; None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def version_named(params: Mapping[str, Json]) -> Json:
    """The version that a request of the newer era names; None for one of the older."""
    meta = params.get("_meta")
    return meta.get(META_VERSION) if isinstance(meta, dict) else None


def refusal(id: Id | None, refused: Refused) -> bytes:
    """The answer to a request that was refused."""
    return encode_failure(id, refused.code, str(refused), refused.data)


def _complete(result: Mapping[str, Json]) -> dict[str, Json]:
    """A result as the newer era wants it."""
    return {"resultType": COMPLETE, **result, "_meta": {META_SERVER: SERVER}}


def _unknown(request: Request) -> Refused:
    return Refused(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
