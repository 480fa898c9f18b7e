"""Requests that a server sends in the middle of a call, in either era.

`elicitation/create` goes to the user, `sampling/createMessage` to a model; `roots/list` is answered directly. Each
question is a child actor of the call that it belongs to. So it is escalated from there with its path, and ends with the
call. A server of the old era does not name the call that its request belongs to. If several calls are active, the
connection's owner asks, and the oldest call's host answers. If the calls are of several runs, or there is no call, only
the connection's own host answers. Without that host a question to the user counts as cancelled, and sampling fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Never, final

import msgspec

from .....protocol import jsonrpc
from .....protocol.errors import ActorFailed, CallboardError, McpError, ShuttingDown
from .....protocol.mcp.model import URL_ELICITATION_REQUIRED
from .....supervisors import Actor, End, Ref
from ..links.link import CallOrigin, Json, ServerRequestHandler
from .handshake import OfferedCapabilities

AT_ONCE = 64
"""Open questions of one server at most."""


class ServerQuestion(msgspec.Struct, frozen=True):
    """Request that a server sends during a call: of the old protocol era, or an entry of `inputRequests` of the new
    one.
    """

    method: str
    params: dict[str, Json] = {}


@final
class ServerQuestions:
    """Questions of one connection.

    Args:
        server: the server's name in mcp.json.
        me: the connection's owner.
        host: answers requests that belong to no call.
    """

    def __init__(
        self, server: str, me: Actor, abilities: OfferedCapabilities, host: ServerRequestHandler | None
    ) -> None:
        self.owner = me
        self._server = server
        self._own = CallOrigin(me=me, host=host)
        self._abilities = abilities
        self._open: dict[jsonrpc.Id, Ref[Never, dict[str, Json]]] = {}
        self._of_call: dict[int, list[jsonrpc.Id]] = {}

    # --- modern era: questions in a result --------------------------------------------------------------

    async def answers(self, asked: Mapping[str, ServerQuestion], caller: CallOrigin | None) -> dict[str, Json]:
        """Return the answers to these questions, which are asked concurrently.

        Raises:
            McpError: a method is not supported, the call has ended, or there are more than `AT_ONCE` questions.
            CallboardError: the host failed to answer.
        """
        if len(asked) > AT_ONCE:
            raise McpError(
                f"MCP server '{self._server}' asks {len(asked)} questions at once; at most {AT_ONCE} are allowed"
            )
        refs: dict[str, Ref[Never, dict[str, Json]]] = {}
        try:
            for key, question in asked.items():
                refs[key] = self._spawn(question, caller or self._own)
            return {key: await _answer(ref) for key, ref in refs.items()}
        finally:
            for ref in refs.values():
                ref.cancel()

    # --- old era: questions as requests -----------------------------------------------------------------

    def take(
        self, request: jsonrpc.Request, about: int | None, caller: CallOrigin | None, respond: Callable[[bytes], None]
    ) -> None:
        """Start to answer a request of the server, on behalf of the call `about`, if that is known. Does not wait.

        Args:
            respond: called with the encoded result or failure, unless the server cancels its request.
        """
        id = request.id
        if request.method == "ping":
            respond(jsonrpc.encode_result(id, {}))
            return
        try:
            # Two open questions with one id could not be answered separately.
            if len(self._open) >= AT_ONCE or id in self._open:
                raise McpError(f"{len(self._open)} questions are open, which is the limit; wait for an answer")
            ref = self._spawn(ServerQuestion(request.method, msgspec.json.decode(request.params)), caller or self._own)
        except (CallboardError, *jsonrpc.UNREADABLE) as error:
            respond(_failure(id, error))
            return

        def respond_at_end(end: End) -> None:
            if self._open.pop(id, None) is None:
                return  # the server has cancelled it and expects no answer
            if end.reason == "normal":
                respond(jsonrpc.encode_result(id, end.value))
            else:
                respond(_failure(id, end.error))

        self._open[id] = ref
        if about is not None:
            self._of_call.setdefault(about, []).append(id)
        ref.on_end(respond_at_end)

    def take_back(self, id: jsonrpc.Id) -> None:
        """End a question whose request the server has cancelled; it gets no response."""
        ref = self._open.pop(id, None)
        if ref is not None:
            ref.cancel()

    def call_over(self, call: int) -> None:
        """End the questions of a call that is answered or cancelled; the server gets a failure for each."""
        for id in self._of_call.pop(call, ()) if self._of_call else ():
            if (ref := self._open.get(id)) is not None:
                ref.cancel()

    # --- both -------------------------------------------------------------------------------------------------

    def _spawn(self, asked: ServerQuestion, caller: CallOrigin) -> Ref[Never, dict[str, Json]]:
        """Spawn the actor that answers a question.

        Raises:
            McpError: the question can't be answered at all.
        """
        able = self._abilities
        known = {"elicitation/create": able.elicitation, "sampling/createMessage": able.sampling, "roots/list": True}
        if not known.get(asked.method):
            raise McpError(f"the method '{asked.method}' is not supported", rpc_code=jsonrpc.METHOD_NOT_FOUND)
        try:
            return caller.me.spawn(self._play, asked, caller.host, name="question", link=False)
        except ShuttingDown as error:
            raise McpError("the tool call has ended") from error

    async def _play(self, me: Actor, asked: ServerQuestion, host: ServerRequestHandler | None) -> dict[str, Json]:
        if asked.method == "roots/list":
            return {"roots": [{"uri": uri} for uri in self._abilities.roots]}
        if asked.method == "elicitation/create":
            return {"action": "cancel"} if host is None else await host.elicit(me, self._server, asked.params)
        if host is None:
            raise McpError("no model is available for sampling")
        return await host.sample(me, self._server, asked.params)


def pages(refusal: McpError) -> dict[str, ServerQuestion]:
    """Return the pages that the user must open before a refused request can be repeated, as questions.

    Empty if the refusal does not demand that (code `URL_ELICITATION_REQUIRED`).
    """
    data = refusal.data if refusal.rpc_code == URL_ELICITATION_REQUIRED else None
    listed = data.get("elicitations") if isinstance(data, dict) else None
    each = [page for page in listed if isinstance(page, dict)] if isinstance(listed, list) else []
    return {
        str(number): ServerQuestion("elicitation/create", {**page, "mode": "url"}) for number, page in enumerate(each)
    }


async def _answer(ref: Ref[Never, dict[str, Json]]) -> dict[str, Json]:
    try:
        return await ref.result()
    except ActorFailed as failed:
        if isinstance(failed.__cause__, CallboardError):
            raise failed.__cause__ from None
        raise


def _failure(id: jsonrpc.Id, error: BaseException | None) -> bytes:
    """Return the refusal of a server's request. Texts of foreign exceptions may hold secrets, so they are replaced."""
    if isinstance(error, McpError):
        return jsonrpc.encode_failure(id, error.rpc_code or jsonrpc.INTERNAL_ERROR, str(error), error.data)
    text = str(error) if isinstance(error, CallboardError) else "the question can't be answered"
    return jsonrpc.encode_failure(id, jsonrpc.INTERNAL_ERROR, text)
