"""The protocol with one client. The transports (`serving`, `asgi`) carry it.

Two eras, told apart request by request. From 2026-07-28 on a request stands alone: its `_meta` says the version and
what the client can do, so a session is nothing but the requests that are under way. Before, the client begins with
`initialize`, and the session remembers what that said.

A request is answered at once, or is one part of a run, played by an actor of its own, with a way to send what belongs
to it: progress, and questions in the older era. In the newer one a question is the request's result, and the next
request brings the answer. A client that cancels a request cancels its run.
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
from ...io.handed_out import hidden
from ...io.peer import Peer, Refusal, Send
from .call import Call, tool_result
from .elicitation import form, takes_forms
from .offers import Offer
from .service import Service

Json = Any


class Put(Protocol):
    """Sends a message; never waits. What is `droppable` may be lost on a slow client."""

    def __call__(self, message: bytes, /, *, droppable: bool = False) -> None: ...


@final
class Way:
    """The way back to who makes a request. No message waits for a slow client, see the transports.

    Args:
        put: takes what is said before the answer.
        answer: takes the answer.
    """

    def __init__(self, put: Put, answer: Callable[[bytes], None] | None = None) -> None:
        self.put = put
        self._answer = answer or put

    async def __call__(self, frame: bytes) -> None:
        """As `peer.Send`: the answer."""
        self._answer(frame)


SERVER = {"name": "callboard", "version": VERSION}
ABILITIES: dict[str, Json] = {"tools": {}}
INSTRUCTIONS = "Each tool runs an agent to its end and returns its answer. Tell it what to do as `prompt`."
CACHE_MS = 60_000
"""How long a client may keep the list of tools, which stays as it is until we are started again."""

TOGETHER = 0.02
"""Seconds that a first question waits for others of the same moment: clients bound how often they are asked."""


@final
class Session(Peer):
    """See the module.

    Args:
        put: where messages go that belong to no request.
    """

    cancelling = "notifications/cancelled"
    most = 1_000
    batches = True

    def __init__(self, service: Service, put: Put) -> None:
        super().__init__(service.me, Way(put))
        self._service = service
        self._version = ""
        self._asks = False

    async def begin(self, request: Request, send: Send) -> Any:
        """See `Peer`: the result of a request, or the part of a run that will have it."""
        params = params_of(request)
        assert isinstance(send, Way)
        if version_named(params) is not None:
            return self._modern(request, params, send)
        if request.method == "initialize":
            return self._initialize(params)
        if request.method == "ping":
            return {}
        if not self._version:
            raise Refusal(
                INVALID_PARAMS,
                f"{request.method} comes too early: begin with `initialize`, or say the protocol's version "
                f"({MODERN}) as `{META_VERSION}` in `params._meta`",
            )
        if request.method == "tools/list":
            return {"tools": self._tools()}
        if request.method == "tools/call":
            return self._call(params, self._version, send, asks=self._asks)
        raise _unknown(request)

    async def taken_back(self, id: Id) -> None:
        """See `Peer`: what is cancelled has no answer, says the specification."""

    def withdraw(self, frame: bytes, send: Send) -> None:
        """See `Peer`."""
        assert isinstance(send, Way)
        send.put(frame)

    async def _play(self, call: Call, version: str, token: Json, way: Way) -> dict[str, Json]:

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
        except BaseException:  # the client has cancelled, or a bug of ours: the run is of no use any more
            call.cancel()
            raise
        finally:
            call.on_progress = None

    # --- the newer era --------------------------------------------------------------------------------------

    def _modern(self, request: Request, params: Mapping[str, Json], way: Way) -> Json:
        meta = params["_meta"]
        if not isinstance(meta.get(META_CAPABILITIES), dict):
            raise Refusal(INVALID_PARAMS, f"`params._meta` lacks `{META_CAPABILITIES}`, an object")
        version = version_named(params)
        if version != MODERN:
            spoken = {"supported": [MODERN], "requested": str(version)}
            raise Refusal(UNSUPPORTED_VERSION, f"version {version} is not spoken here; {MODERN} is", spoken)
        if request.method == "tools/call":
            return self._call(params, MODERN, way, asks=takes_forms(meta[META_CAPABILITIES]))
        cached = {"ttlMs": CACHE_MS, "cacheScope": "private"}
        if request.method == "server/discover":
            known = {"supportedVersions": [MODERN], "capabilities": ABILITIES, "instructions": INSTRUCTIONS}
            return _complete({**known, **cached})
        if request.method == "tools/list":
            return _complete({"tools": self._tools(), **cached})
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

    async def _ask_until_the_end(self, call: Call, version: str, way: Way) -> None:
        """Put the run's questions to the client as they come up, and take back what the run no longer asks."""
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

    async def _ask(self, call: Call, question: Question, version: str, way: Way, scope: trio.CancelScope) -> None:
        patience = self._service.options.question_timeout
        answer: Json = None
        with scope:
            with trio.move_on_after(patience) as limit:
                try:
                    answer = await self.request("elicitation/create", form(question, version), Way(way.put))
                except (CallboardError, *UNREADABLE):  # it refuses to ask, or says what can't be read
                    answer = None
            if limit.cancelled_caught:
                call.expire(question.id, patience)
            else:
                call.answer(question.id, answer if isinstance(answer, dict) else {})

    # --- both -----------------------------------------------------------------------------------------------

    def _tools(self) -> list[dict[str, Json]]:
        return [offer.tool for offer in self._service.offers.values()]

    def _call(self, params: Mapping[str, Json], version: str, way: Way, *, asks: bool) -> Json:
        offer = self._offer(params.get("name"))
        state, arguments = params.get("requestState"), params.get("arguments")
        if version == MODERN and state is not None:
            call = self._resumed(state, offer, params.get("inputResponses"))
        else:
            if not isinstance(arguments, dict | None):
                raise Refusal(INVALID_PARAMS, "`arguments` must be an object")
            try:
                call = self._service.begin(offer, arguments or {}, asks=asks)
            except (UsageError, ShuttingDown) as error:  # the model's mistake, which it can mend
                refusal = tool_result(hidden(str(error)), failed=True)
                return _complete(refusal) if version == MODERN else refusal
        meta = params.get("_meta")
        return self._play(call, version, meta.get("progressToken") if isinstance(meta, dict) else None, way)

    def _offer(self, name: Json) -> Offer:
        offers = self._service.offers
        if not isinstance(name, str) or name not in offers:
            hint = did_you_mean(str(name)[:100], offers) or f"there are: {', '.join(offers)}"
            raise Refusal(INVALID_PARAMS, f"Unknown tool: '{str(name)[:100]}'; {hint}")
        return offers[name]

    def _resumed(self, state: Json, offer: Offer, responses: Json) -> Call:
        call = self._service.resume(state, offer.name) if isinstance(state, str) else None
        if call is None:
            raise Refusal(
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
        Refusal: they are no object, or can't be read.
    """
    params = _decoded(request.params)
    if not isinstance(params, dict):
        raise Refusal(INVALID_PARAMS, "`params` must be an object")
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


def _complete(result: Mapping[str, Json]) -> dict[str, Json]:
    return {"resultType": COMPLETE, **result, "_meta": {META_SERVER: SERVER}}


def _unknown(request: Request) -> Refusal:
    return Refusal(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
