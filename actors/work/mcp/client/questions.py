"""Answers a server's requests in the middle of a call, in either era.

`elicitation/create` is for a person, `sampling/createMessage` for a model, `roots/list` for us. Each question is a
child actor of the call it belongs to, so that it goes up from there with its path, and is gone when the call is. A
server of the old era does not say which call its request belongs to. If several are under way, it is asked on behalf of
the connection's owner and answered as for the oldest of them; but if they are of several runs, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Never, final

import msgspec

from .....protocol import jsonrpc
from .....protocol.errors import ActorFailed, CallboardError, McpError, ShuttingDown
from .....protocol.mcp.model import URL_ELICITATION_REQUIRED
from .....supervisors import Actor, End, Ref
from ..links.link import Caller, Host, Json
from .handshake import Abilities

AT_ONCE = 64
"""Questions of one server that are open at the same time."""


class Asked(msgspec.Struct, frozen=True):
    """One question: a request of the old era, or an entry of `inputRequests`."""

    method: str
    params: dict[str, Json] = {}


@final
class Questions:
    """Of one connection.

    Args:
        server: the server's name in mcp.json.
        me: the connection's owner.
        host: answers what belongs to no call.
    """

    def __init__(self, server: str, me: Actor, abilities: Abilities, host: Host | None) -> None:
        self.owner = me
        self._server = server
        self._own = Caller(me=me, host=host)
        self._abilities = abilities
        self._open: dict[jsonrpc.Id, Ref[Never, dict[str, Json]]] = {}
        self._of_call: dict[int, list[jsonrpc.Id]] = {}

    # --- the modern era: asked by an answer -------------------------------------------------------------------

    async def answers(self, asked: Mapping[str, Asked], caller: Caller | None) -> dict[str, Json]:
        """Have all of these answered, at the same time.

        Raises:
            McpError: one of them can't be, or there are too many.
        """
        if len(asked) > AT_ONCE:
            raise McpError(f"MCP server '{self._server}' asks {len(asked)} questions at once; {AT_ONCE} are answered")
        refs: dict[str, Ref[Never, dict[str, Json]]] = {}
        try:
            for key, question in asked.items():
                refs[key] = self._spawn(question, caller or self._own)
            return {key: await _answer(ref) for key, ref in refs.items()}
        finally:
            for ref in refs.values():
                ref.cancel()

    # --- the old era: asked by a request ----------------------------------------------------------------------

    def take(
        self, request: jsonrpc.Request, about: int | None, caller: Caller | None, respond: Callable[[bytes], None]
    ) -> None:
        """Have a request of the server's answered, on behalf of the call `about`, if that is known. Does not wait."""
        id = request.id
        if request.method == "ping":
            respond(jsonrpc.encode_result(id, {}))
            return
        try:
            if len(self._open) >= AT_ONCE or id in self._open:
                raise McpError(f"{len(self._open)} questions are open; no more are taken")
            ref = self._spawn(Asked(request.method, msgspec.json.decode(request.params)), caller or self._own)
        except (CallboardError, *jsonrpc.UNREADABLE) as error:
            respond(_failure(id, error))
            return

        def settle(end: End) -> None:
            if self._open.pop(id, None) is None:
                return  # the server took it back: it expects no answer
            if end.reason == "normal":
                respond(jsonrpc.encode_result(id, end.value))
            else:
                respond(_failure(id, end.error))

        self._open[id] = ref
        if about is not None:
            self._of_call.setdefault(about, []).append(id)
        ref.on_end(settle)

    def take_back(self, id: jsonrpc.Id) -> None:
        """The server no longer wants an answer to this request of its."""
        ref = self._open.pop(id, None)
        if ref is not None:
            ref.cancel()

    def call_over(self, call: int) -> None:
        """This call of ours has its answer, or was cancelled: its questions end with it."""
        for id in self._of_call.pop(call, ()) if self._of_call else ():
            if (ref := self._open.get(id)) is not None:
                ref.cancel()

    # --- both -------------------------------------------------------------------------------------------------

    def _spawn(self, asked: Asked, caller: Caller) -> Ref[Never, dict[str, Json]]:
        """Raises McpError if it can't be answered at all, else the actor that answers it."""
        able = self._abilities
        known = {"elicitation/create": able.elicitation, "sampling/createMessage": able.sampling, "roots/list": True}
        if not known.get(asked.method):
            raise McpError(f"'{asked.method}' is not offered", rpc_code=jsonrpc.METHOD_NOT_FOUND)
        try:
            return caller.me.spawn(self._play, asked, caller.host, name="question", link=False)
        except ShuttingDown as error:
            raise McpError("the call is over") from error

    async def _play(self, me: Actor, asked: Asked, host: Host | None) -> dict[str, Json]:
        if asked.method == "roots/list":
            return {"roots": [{"uri": uri} for uri in self._abilities.roots]}
        if asked.method == "elicitation/create":
            return {"action": "cancel"} if host is None else await host.elicit(me, self._server, asked.params)
        if host is None:
            raise McpError("there is no model to ask")
        return await host.sample(me, self._server, asked.params)


def pages(refusal: McpError) -> dict[str, Asked]:
    """The pages that a person has to open before what was refused can be asked for again, as questions."""
    data = refusal.data if refusal.rpc_code == URL_ELICITATION_REQUIRED else None
    listed = data.get("elicitations") if isinstance(data, dict) else None
    each = [page for page in listed if isinstance(page, dict)] if isinstance(listed, list) else []
    return {str(number): Asked("elicitation/create", {**page, "mode": "url"}) for number, page in enumerate(each)}


async def _answer(ref: Ref[Never, dict[str, Json]]) -> dict[str, Json]:
    try:
        return await ref.result()
    except ActorFailed as failed:
        if isinstance(failed.__cause__, CallboardError):
            raise failed.__cause__ from None
        raise


def _failure(id: jsonrpc.Id, error: BaseException | None) -> bytes:
    """The refusal of a server's request. Texts of foreign exceptions may hold secrets: servers don't get them."""
    if isinstance(error, McpError):
        return jsonrpc.encode_failure(id, error.rpc_code or jsonrpc.INTERNAL_ERROR, str(error), error.data)
    text = str(error) if isinstance(error, CallboardError) else "it can't be answered"
    return jsonrpc.encode_failure(id, jsonrpc.INTERNAL_ERROR, text)
