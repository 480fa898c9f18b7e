"""The MCP client: requests to a server, in either era of the protocol, over any link.

    result = await client.call_tool("add", {"a": 1, "b": 2}, Caller(me=me))

Any number of tasks call at the same time; up to `MAX_PENDING` of their requests are under way, the others wait in line.
A cancelled call is gone: the server learns it, its questions end, a late answer is dropped. In the modern era
every request carries what we are and can, and a result may be a question back (`input_required`): then the same request
is made again with the answers, and with the server's own note to itself just as it was; or a handle to a task, which is
followed to its end (`tasks`). Callers see none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import TypeVar, final

import msgspec
import trio

from .....protocol.decoding import decode_json, json_decoder
from .....protocol.errors import McpError, McpLost, McpUnsent
from .....protocol.jsonrpc import METHOD_NOT_FOUND, UNREADABLE, Notification, Request, encode_failure
from .....protocol.mcp import model
from .....protocol.mcp.config import Server
from .....supervisors import Actor
from ..links import texts
from ..links.link import Caller, Host, Json, Link, Outgoing
from ..links.mirrored import Paths, header_paths, param_headers
from .handshake import Abilities, Agreed, Handshake
from .listening import ACKNOWLEDGED, CHANGES, Listening
from .questions import Asked, Questions, pages
from .tasks import EXTENSION, KIND, Following

MAX_PENDING = 1024
"""Requests under way on one connection."""

MAX_PAGES, MAX_LISTED = 1000, 10_000
"""Of one list: pages that are asked for, and entries on all of them."""

MAX_ROUNDS = 10
"""Times that a server may ask back before it answers."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25
"""Seconds before a request is made again of which the server only says that it is not ready yet."""

T = TypeVar("T")


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    """What tells a result that asks back."""

    input_requests: dict[str, Asked] = {}
    request_state: str | None = None


_OBJECT = json_decoder(dict[str, Json])
_BACK = json_decoder(_Result)


@final
class McpClient:
    """A connection to one server; made by `connect`, which see for the arguments.

    Attributes:
        link: how messages get there.
        server: who the server says it is. version: the revision it speaks; modern: of which era that is.
        capabilities: what it says it can. instructions: how it says it is to be used.
        pid: of its process, if it is one of ours.
        pending: requests under way.
        dropped: notifications about requests that are over.
        on_exchange: told a request's method and how many seconds it took, whatever came of it.
    """

    link: Link

    def __init__(
        self,
        me: Actor,
        server: Server,
        abilities: Abilities,
        *,
        host: Host | None,
        on_change: Callable[[str], None] | None,
        on_log: Callable[[model.LogMessage], None] | None,
        version: str,
    ) -> None:
        self.server = model.Implementation()
        self.capabilities: dict[str, Json] = {}
        self.instructions: str | None = None
        self.pid: int | None = None
        self.dropped = 0
        self.on_exchange: Callable[[str, float], None] | None = None
        self._name = server.name
        self._me = me
        self._timeout = server.timeout_seconds
        self._introduction = {
            "capabilities": abilities.declared(),
            "clientInfo": {"name": "callboard", "version": version},
        }
        self._meta: dict[str, Json] = {
            model.META_VERSION: model.MODERN,
            model.META_CAPABILITIES: {**abilities.declared(), "extensions": {EXTENSION: {}}},
            model.META_CLIENT: self._introduction["clientInfo"],
        }
        self._on_log = on_log
        self._calls: dict[int, Caller] = {}
        self._mirrored: dict[str, Paths] = {}
        self._questions = Questions(server.name, me, abilities, host)
        self._listening = Listening(self, me, on_change)
        self._ids = count(1)
        self.pending = 0
        self._line = trio.lowlevel.ParkingLot()

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The revision that both speak; "" before the handshake."""
        return self.link.version

    @property
    def modern(self) -> bool:
        """Whether that is one without a handshake."""
        return self.link.modern

    async def shake_hands(self, remembered: str) -> None:
        """Agree on a revision; `connect` has this done.

        Raises:
            McpError, McpLost: as `Handshake.shake`.
        """
        self._agree(await Handshake(self._name, self._ask_first, self._introduction).shake(remembered))
        if self.modern:
            self._listening.begin()
            await self._listening.settled()
        else:
            self.link.notify("notifications/initialized", {})

    async def _ask_first(self, method: str, params: Mapping[str, Json]) -> msgspec.Raw:
        if method == "server/discover":
            params = {"_meta": self._meta}
        return await self.link.request(Outgoing(id=next(self._ids), method=method, params=params))

    def _agree(self, agreed: Agreed) -> None:
        self.link.version = agreed.version
        self.link.modern = agreed.version == model.MODERN
        self.server = agreed.server
        self.capabilities = agreed.capabilities
        self.instructions = agreed.instructions

    # --- calls ------------------------------------------------------------------------------------------------

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], caller: Caller | None = None
    ) -> dict[str, Json]:
        """The raw `CallToolResult`; one with `isError` is a result, too. Raises as `request`."""
        paths = self._mirrored.get(name)
        headers = param_headers(paths, arguments) if paths else {}
        return await self.request("tools/call", {"name": name, "arguments": arguments}, caller, headers)

    async def tools(self) -> list[model.Tool]:
        """All its tools. [] where it says it has none. One that can't be understood is left out, and logged."""
        tools = await self._listed("tools/list", "tools", model.Tool)
        if self.modern:
            self._mirrored = {tool.name: paths for tool in tools if (paths := header_paths(tool.input_schema))}
        return tools

    async def resources(self) -> list[model.Resource]:
        """All its resources, as `tools`."""
        return await self._listed("resources/list", "resources", model.Resource)

    async def prompts(self) -> list[model.Prompt]:
        """All its prompts, as `tools`."""
        return await self._listed("prompts/list", "prompts", model.Prompt)

    async def subscribe(self, uri: str) -> None:
        """Have `on_change(uri)` called when this resource changes."""
        if self.modern:
            self._listening.add(uri)
        else:
            await self.request("resources/subscribe", {"uri": uri})

    async def ping(self) -> None:
        """Return when the server has answered something; raise if it refuses or is lost."""
        await self.request("server/discover" if self.modern else "ping", {})

    async def set_level(self, level: str) -> None:
        """Have the server log from this level on, `debug` to `emergency`."""
        if self.modern:
            self._meta = {**self._meta, model.META_LOG_LEVEL: level}
        else:
            await self.request("logging/setLevel", {"level": level})

    async def _listed(self, method: str, kind: str, type: type[T]) -> list[T]:
        """All entries, page by page, within bounds: a list that does not end is not read for ever."""
        if method.partition("/")[0] not in self.capabilities:
            return []
        what = f"MCP server '{self._name}' lists"
        entries: list[T] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                raw = await self._request(method, {} if cursor is None else {"cursor": cursor}, None)
                found = decode_json(raw, dict[str, msgspec.Raw])
                listed = decode_json(found[kind], list[msgspec.Raw]) if kind in found else []
                following = decode_json(found.get("nextCursor", msgspec.Raw(b"null")), str | None)
            except UNREADABLE as error:
                raise McpError(f"{what} its {kind} in a way that can't be read: {error}") from error
            except McpError as error:
                if error.rpc_code == METHOD_NOT_FOUND and kind != "tools":
                    return []  # not all servers that say they have some know the method
                raise
            if len(entries) + len(listed) > MAX_LISTED:
                raise McpError(f"{what} more than {MAX_LISTED:,} {kind}; that many are not read")
            for each in listed:
                try:
                    entries.append(_entry(each, type))
                except UNREADABLE as error:
                    odd = f"one of its {kind} is left out: {error}; it begins: {bytes(each)[:80]!r}"
                    self.log("warning", odd)
            if not following:
                return entries
            if following == cursor:
                break
            cursor = following
        raise McpError(f"{what} its {kind} on pages without an end; stopped after {len(entries):,}")

    # --- requests ---------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Json],
        caller: Caller | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Json]:
        """A request of any method and its raw result, with as many rounds of questions as that takes.

        Args:
            headers: for HTTP, beside those that every request has.

        Raises:
            McpError: the server refused it, or its answer can't be used.
            McpLost: the connection broke. What was asked for may have been done.
        """
        more: dict[str, Json] = {}
        pause = FIRST_PAUSE
        for number in range(MAX_ROUNDS + 1):
            try:
                raw = await self._permitted(method, {**params, **more}, caller, headers)
            except McpUnsent as error:
                if number:  # it had begun, and what it did before it asked back is done
                    raise McpLost(str(error)) from error
                raise
            result = self._read(method, raw, _OBJECT)
            kind = result.get("resultType", model.COMPLETE)
            if kind == model.COMPLETE:
                return result
            if kind == KIND and method == "tools/call" and self.modern:
                following = Following(self._name, self.request, self._questions, self._me, self._timeout)
                return await following.result(result, caller)
            if kind != model.INPUT_REQUIRED:
                raise McpError(f"MCP server '{self._name}' answered {method} with the unknown resultType {kind!r:.80}")
            back = self._read(method, raw, _BACK)
            more = {} if back.request_state is None else {"requestState": back.request_state}
            if back.input_requests:
                more["inputResponses"] = await self._questions.answers(back.input_requests, caller)
                pause = FIRST_PAUSE
            else:
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        raise McpError(f"MCP server '{self._name}' asked back more than {MAX_ROUNDS} times before it answered {method}")

    async def _permitted(
        self, method: str, params: Mapping[str, Json], caller: Caller | None, headers: Mapping[str, str]
    ) -> msgspec.Raw:
        """A request, made once more if it was refused until a person opens some pages, and one did."""
        try:
            return await self._request(method, params, caller, headers)
        except McpError as refusal:
            if self.modern or not await self._opened(pages(refusal), caller):
                raise
        return await self._request(method, params, caller, headers)

    async def _opened(self, wanted: Mapping[str, Asked], caller: Caller | None) -> bool:
        try:
            answers = await self._questions.answers(wanted, caller)
        except McpError:
            return False  # the refusal tells more
        return bool(answers) and all(answer.get("action") == "accept" for answer in answers.values())

    async def _request(
        self,
        method: str,
        params: Mapping[str, Json],
        caller: Caller | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> msgspec.Raw:
        if self.pending < MAX_PENDING:
            self.pending += 1
        else:
            await self._line.park()  # the call that ends leaves us its place
        id = next(self._ids)
        began = trio.current_time()
        try:
            if caller is not None:
                self._calls[id] = caller
            meta = self._meta if self.modern else {}
            if caller is not None and caller.on_progress is not None:
                meta = {**meta, "progressToken": id}
            if caller is not None and caller.key is not None:
                meta = {**meta, model.CALL_KEY: caller.key}
            sent = {**params, "_meta": meta} if meta else params
            outgoing = Outgoing(id=id, method=method, params=sent, caller=caller, headers=headers)
            return await self.link.request(outgoing)
        finally:
            if caller is not None:
                del self._calls[id]
                self._questions.call_over(id)
            if self.on_exchange is not None:
                self.on_exchange(method, trio.current_time() - began)
            if self._line:
                self._line.unpark()
            else:
                self.pending -= 1

    async def listen(self, wanted: Mapping[str, Json]) -> None:
        """Keep a subscription of the modern era open until the server ends it. Takes no place in the line."""
        params = {"notifications": wanted, "_meta": self._meta}
        await self.link.request(Outgoing(id=next(self._ids), method="subscriptions/listen", params=params))

    def _read(self, method: str, raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(raw)
        except UNREADABLE as error:
            raise texts.unreadable(self._name, method, error) from error

    # --- what the server says by itself (`Receiver`) ----------------------------------------------------------

    def on_request(self, request: Request, about: Outgoing | None) -> None:
        if self.modern:
            text = f"'{request.method}' is asked by `{model.INPUT_REQUIRED}` in this revision"
            self.link.respond(encode_failure(request.id, METHOD_NOT_FOUND, text), about)
            return
        call = about.id if about is not None and about.id in self._calls else None
        if call is None and len(self._calls) == 1:
            call = next(iter(self._calls))
        caller = self._whose_run() if call is None else self._calls[call]
        self._questions.take(request, call, caller, lambda message: self.link.respond(message, about))

    def _whose_run(self) -> Caller | None:
        """Who may answer for any of the calls under way: the oldest, if all are of one run."""
        callers = iter(self._calls.values())
        oldest = next(callers, None)
        if oldest is None or any(caller.me.stream is not oldest.me.stream for caller in callers):
            return None
        return Caller(me=self._questions.owner, host=oldest.host)

    def on_notification(self, notification: Notification, about: Outgoing | None) -> None:  # noqa: ARG002 - of the interface
        method, params = notification.method, notification.params
        try:
            if method == "notifications/progress":
                self._progress(decode_json(params, model.Progress))
            elif method == "notifications/message":
                if self._on_log is not None:
                    self._on_log(decode_json(params, model.LogMessage))
            elif method == "notifications/cancelled":
                id = _OBJECT.decode(params).get("requestId")
                if isinstance(id, int | str):
                    self._questions.take_back(id)
            elif method == ACKNOWLEDGED:
                self._listening.acknowledged()
            elif method in CHANGES:
                self._listening.changed(method, _OBJECT.decode(params))
        except UNREADABLE:
            self.dropped += 1

    def _progress(self, progress: model.Progress) -> None:
        token = progress.progress_token
        caller = self._calls.get(token) if isinstance(token, int) else None
        if caller is None or caller.on_progress is None:
            self.dropped += 1
        else:
            caller.on_progress(progress)

    def log(self, level: str, text: str) -> None:
        """Something about the server that it did not log itself."""
        if self._on_log is not None:
            self._on_log(model.LogMessage(level=level, logger="callboard", data=text))


def _entry(raw: msgspec.Raw, type: type[T]) -> T:
    """An entry of a list. If it can't be read, it is read without its nulls and without schemas that are no object."""
    try:
        return decode_json(raw, type)
    except UNREADABLE:
        found = decode_json(raw, dict[str, Json])
        kept = {
            key: value
            for key, value in found.items()
            if value is not None and (isinstance(value, dict) or not key.endswith("Schema"))
        }
        if len(kept) == len(found):
            raise
        return decode_json(msgspec.json.encode(kept), type)
