"""MCP client: requests to a server, in either era of the protocol, over any link.

    result = await client.call_tool("add", {"a": 1, "b": 2}, CallOrigin(me=me))

Any number of tasks call concurrently. Up to `MAX_PENDING` of their requests are active; the others queue. A cancelled
call leaves nothing behind: the server is notified, the call's questions end, and a late answer is dropped.

In the modern era every request carries the client's identity and capabilities. A result may be a question
(`input_required`): the client then repeats the request with the answers and with the server's unchanged state. Or a
result is the handle of a task, which is polled until it ends. Callers see only the final result.

**Tasks** (`io.modelcontextprotocol/tasks`).

    tools/call -> resultType: task    tasks/get, at the server's interval, until the task is completed
                                      tasks/update with the answers to its questions, each asked once
                                      tasks/cancel if the caller is cancelled

Each of these requests has the time limit of a call, so a handle can't make a caller wait for ever on a dead server. A
server that no longer knows its task has failed the call.

**Notifications of changes.** In the old era a server sends them unasked. In the modern era the client opens a
subscription, a request that stays open. The client opens it again when the server ends it, and when there is more to
subscribe to. Notifications are not repeated. So everything subscribed before counts as changed when the server
acknowledges a new subscription. A list that is read before the first acknowledgement may become outdated without
notice, so the client waits for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from itertools import count
from types import MappingProxyType
from typing import Literal, Never, TypeVar, final

import msgspec
import trio

from .....protocol.decoding import convert, decode_json, json_decoder
from .....protocol.errors import HttpRefused, McpError, McpLost, McpUnsent
from .....protocol.json_values import decode_mended
from .....protocol.jsonrpc import METHOD_NOT_FOUND, UNREADABLE, Notification, Request, encode_failure
from .....protocol.mcp import model
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import Progress
from .....supervisors import Actor, Backoff, Ref
from ..links import texts
from ..links.link import CallOrigin, Json, Link, OutgoingCall, ServerRequestHandler
from ..links.mirrored import Paths, header_fault, header_paths, param_headers
from .handshake import Handshake, OfferedCapabilities
from .questions import ServerQuestion, ServerQuestions, pages

MAX_PENDING = 1024
"""Active requests on one connection at most."""

MAX_PAGES, MAX_LISTED = 1000, 10_000
"""Limits of one list: pages that are requested, and entries on all of them."""

MAX_ROUNDS = 10
"""Questions in a row that a server may return before its result."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25
"""Seconds before a request is repeated when the server returns only its state and no questions."""

T = TypeVar("T")


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a result that asks for input."""

    input_requests: dict[str, ServerQuestion] = {}
    request_state: str | None = None


_OBJECT = json_decoder(dict[str, Json])
MOST_WORDS = 4000
"""Characters of a result's text that are searched for refusals of the sandbox."""

_NULL = msgspec.Raw(b"null")
_BACK = json_decoder(_Result)


def _with_hint(result: dict[str, Json], hint: Callable[[str], str]) -> dict[str, Json]:
    """Return the result with a line about a refusal of the sandbox, if its text reports one. Long texts are data."""
    content = result.get("content")
    if not isinstance(content, list):
        return result
    for block in content:
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and len(text) <= MOST_WORDS and (line := hint(text)):
            return {**result, "content": [*content, {"type": "text", "text": line}]}
    return result


@final
class McpClient:
    """Connection to one server; created by `connect`, which describes the arguments.

    Attributes:
        link: transport of the messages.
        server: name and version that the server reports.
        capabilities: capabilities that the server declares.
        instructions: instructions of the server for its use.
        pid: pid of its process, for a stdio server.
        hint: returns the note for a text that the sandbox caused, "" for none; None for a server without a sandbox.
        pending: number of active requests.
        dropped: number of ignored notifications: invalid ones, and progress that no active call asked for.
        on_exchange: called with the method and the duration in seconds of each request, successful or not. Time in the
            queue does not count.
    """

    link: Link

    def __init__(
        self,
        me: Actor,
        server: Server,
        abilities: OfferedCapabilities,
        *,
        host: ServerRequestHandler | None,
        on_change: Callable[[str], None] | None,
        on_log: Callable[[model.LogMessage], None] | None,
        version: str,
    ) -> None:
        self.server: model.Implementation = model.Implementation()
        self.capabilities: dict[str, Json] = {}
        self.instructions: str | None = None
        self.pid: int | None = None
        self.hint: Callable[[str], str] | None = None
        self.dropped: int = 0
        self.on_exchange: Callable[[str, float], None] | None = None
        self._name = server.name
        self._over_http = bool(server.url)
        self._me = me
        self._timeout = server.timeout_seconds
        self._introduction = {
            "capabilities": abilities.declared(),
            "clientInfo": {"name": "callboard", "version": version},
        }
        self._meta: dict[str, Json] = {
            model.META_VERSION: model.MODERN,
            model.META_CAPABILITIES: {**abilities.declared(), "extensions": {TASKS: {}}},
            model.META_CLIENT: self._introduction["clientInfo"],
        }
        self._on_log = on_log
        self._calls: dict[int, CallOrigin] = {}
        self._mirrored: dict[str, Paths] = {}
        self._questions = ServerQuestions(server.name, me, abilities, host)
        self._listening = Listening(self, me, on_change)
        self._ids = count(1)
        self.pending: int = 0
        self._line = trio.lowlevel.ParkingLot()

    # --- state ------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Protocol revision of the connection; "" before the handshake."""
        return self.link.version

    @property
    def modern(self) -> bool:
        """True if that revision has no handshake."""
        return self.link.modern

    async def shake_hands(self, remembered: str) -> None:
        """Agree on a revision; called by `connect`. In the modern era, wait for the first subscription too.

        Raises:
            McpError, McpLost: as `Handshake.shake`.
        """
        agreed = await Handshake(self._name, self._ask_first, self._introduction).shake(remembered)
        self.link.version = agreed.version
        self.link.modern = agreed.version == model.MODERN
        self.server = agreed.server
        self.capabilities = agreed.capabilities
        self.instructions = agreed.instructions
        # A list that is read before the subscription is acknowledged may become outdated without a notification.
        if self.modern:
            self._listening.begin()
            await self._listening.settled()
        else:
            self.link.notify("notifications/initialized", {})

    async def _ask_first(self, method: str, params: Mapping[str, Json]) -> msgspec.Raw:
        if method == "server/discover":
            params = {"_meta": self._meta}
        return await self.link.request(OutgoingCall(id=next(self._ids), method=method, params=params))

    # --- calls ------------------------------------------------------------------------------------------------

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], caller: CallOrigin | None = None
    ) -> dict[str, Json]:
        """Return the raw `CallToolResult`, also one with `isError`. Raises as `request`."""
        paths = self._mirrored.get(name)
        headers = param_headers(paths, arguments) if paths else {}
        result = await self.request("tools/call", {"name": name, "arguments": arguments}, caller, headers)
        return result if self.hint is None else _with_hint(result, self.hint)

    async def tools(self) -> list[model.McpTool]:
        """Return all tools of the server; [] if it declares none. Unreadable tools are left out and logged.

        In the modern era over HTTP, tools with invalid `x-mcp-header` annotations are left out and logged as well, as
        the specification requires. Of several tools with one name the first counts.

        Raises:
            McpError: the server refuses, or its list is invalid or exceeds `MAX_PAGES` or `MAX_LISTED`.
            McpLost: the connection broke.
        """
        tools = await self._listed("tools/list", "tools", model.McpTool)
        if self.modern and self._over_http:
            faults = {tool.name: fault for tool in tools if (fault := header_fault(tool.input_schema))}
            for name, fault in faults.items():
                self.log("warning", f"the tool {name!r:.200} is ignored: {fault}")
            tools = [tool for tool in tools if tool.name not in faults]
        if self.modern:
            self._mirrored = {tool.name: paths for tool in tools if (paths := header_paths(tool.input_schema))}
        return tools

    async def resources(self) -> list[model.Resource]:
        """Return all resources, as `tools` does; also [] if the server does not implement the method."""
        return await self._listed("resources/list", "resources", model.Resource)

    async def prompts(self) -> list[model.McpPrompt]:
        """Return all prompts, as `tools` does; also [] if the server does not implement the method."""
        return await self._listed("prompts/list", "prompts", model.McpPrompt)

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource: `on_change(uri)` is called when it changes.

        In the modern era this does not wait for the server; in the old era it does, and raises as `request`.
        """
        if self.modern:
            self._listening.add(uri)
        else:
            await self.request("resources/subscribe", {"uri": uri})

    async def ping(self) -> None:
        """Return when the server has answered a request; raise if it refuses or is lost."""
        await self.request("server/discover" if self.modern else "ping", {})

    async def set_level(self, level: str) -> None:
        """Set the log level of the server, `debug` to `emergency`.

        In the modern era, later requests carry the level. In the old era a request sets it; raises as `request`.
        """
        if self.modern:
            self._meta = {**self._meta, model.META_LOG_LEVEL: level}
        else:
            await self.request("logging/setLevel", {"level": level})

    async def _listed(self, method: str, kind: str, type: type[T]) -> list[T]:
        """Return all entries, page by page, within limits: a server may send pages without an end."""
        if method.partition("/")[0] not in self.capabilities:
            return []
        what = f"MCP server '{self._name}' lists"
        entries: dict[str, T] = {}
        cursor: str | float | None = None
        cursors: set[str | float] = set()
        for _ in range(MAX_PAGES):
            try:
                raw = await self._request(method, {} if cursor is None else {"cursor": cursor}, None)
                found = decode_json(raw, dict[str, msgspec.Raw])
                listed = decode_json(found.get(kind, _NULL), list[msgspec.Raw] | None) or []
                following = decode_json(found.get("nextCursor", _NULL), str | int | float | None)
            except UNREADABLE as error:
                raise McpError(f"{what} its {kind} in a form that is not valid: {error}") from error
            except McpError as error:
                if error.rpc_code == METHOD_NOT_FOUND and kind != "tools":
                    return []  # some servers declare resources or prompts and do not implement the method
                raise
            if len(entries) + len(listed) > MAX_LISTED:
                raise McpError(f"{what} more than {MAX_LISTED:,} {kind}, the limit")
            for each in listed:
                try:
                    entry = _entry(each, type)
                    entries.setdefault(getattr(entry, "uri", "") or getattr(entry, "name", ""), entry)
                except UNREADABLE as error:
                    odd = (
                        f"one of the server's {kind} is ignored, because it is not valid: {error}; it begins: "
                        f"{bytes(each)[:80]!r}"
                    )
                    self.log("warning", odd)
            if following in (None, ""):
                return list(entries.values())
            if following in cursors:
                self.log(
                    "warning",
                    (f"the server's list of {kind} repeats a page; the {len(entries):,} entries read so far are used"),
                )
                return list(entries.values())
            cursors.add(cursor := following)
        raise McpError(f"{what} its {kind} in too many pages; reading stopped after {len(entries):,} entries")

    # --- requests ---------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Json],
        caller: CallOrigin | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Json]:
        """Send a request of any method and return its final raw result.

        Questions of the server are answered and the request repeated, up to `MAX_ROUNDS` times. In the old era a
        request is repeated once after the user has opened the pages that the server demands. A task is followed to its
        end.

        Args:
            headers: additional HTTP headers.

        Raises:
            McpError: the server refused it, its answer is invalid, or its task failed.
            McpUnsent: the connection broke, and the request has not been executed.
            McpLost: the connection broke, and the request may have been executed.
        """
        more: dict[str, Json] = {}
        pause = FIRST_PAUSE
        for number in range(MAX_ROUNDS + 1):
            try:
                raw = await self._permitted(method, {**params, **more}, caller, headers)
            except McpUnsent as error:
                if number:  # the first rounds were executed, so the request as a whole must not be repeated
                    raise McpLost(str(error)) from error
                raise
            result = self._read(method, raw, _OBJECT)
            kind = result.get("resultType", model.COMPLETE)
            if kind == model.COMPLETE:
                return result
            if kind == TASK and method == "tools/call" and self.modern:
                following = TaskFollower(self._name, self.request, self._questions, self._me, self._timeout)
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
        raise McpError(
            f"MCP server '{self._name}' asked for input more than {MAX_ROUNDS} times without answering {method}"
        )

    async def _permitted(
        self, method: str, params: Mapping[str, Json], caller: CallOrigin | None, headers: Mapping[str, str]
    ) -> msgspec.Raw:
        """Send a request, and repeat it once if it required that the user opens some pages and the user did."""
        try:
            return await self._request(method, params, caller, headers)
        except McpError as refusal:
            if self.modern or not await self._opened(pages(refusal), caller):
                raise
        return await self._request(method, params, caller, headers)

    async def _opened(self, wanted: Mapping[str, ServerQuestion], caller: CallOrigin | None) -> bool:
        try:
            answers = await self._questions.answers(wanted, caller)
        except McpError:
            return False  # the refusal explains more
        return bool(answers) and all(answer.get("action") == "accept" for answer in answers.values())

    async def _request(
        self,
        method: str,
        params: Mapping[str, Json],
        caller: CallOrigin | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> msgspec.Raw:
        if self.pending < MAX_PENDING:
            self.pending += 1
        else:
            await self._line.park()  # the call that ends passes its slot on without decrementing `pending`
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
            outgoing = OutgoingCall(id=id, method=method, params=sent, caller=caller, headers=headers)
            return await self.link.request(outgoing)
        finally:
            if caller is not None:
                del self._calls[id]
                self._questions.call_over(id)
            if self.on_exchange is not None:
                self.on_exchange(method, trio.current_time() - began)
            # A waiting call takes over the slot, so that a new call can't overtake the queue.
            if self._line:
                self._line.unpark()
            else:
                self.pending -= 1

    async def listen(self, wanted: Mapping[str, Json]) -> None:
        """Keep a subscription of the modern era open until the server ends it. Needs no slot of `pending`."""
        params = {"notifications": wanted, "_meta": self._meta}
        await self.link.request(OutgoingCall(id=next(self._ids), method="subscriptions/listen", params=params))

    def _read(self, method: str, raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decode_mended(decoder.decode, raw)
        except UNREADABLE as error:
            raise texts.unreadable(self._name, method, error) from error

    # --- messages from the server (`Receiver`) ----------------------------------------------------------

    def on_request(self, request: Request, about: OutgoingCall | None) -> None:
        if self.modern:
            text = (
                f"this protocol revision does not allow '{request.method}' as a request; send "
                f"`{model.INPUT_REQUIRED}` instead"
            )
            self.link.respond(encode_failure(request.id, METHOD_NOT_FOUND, text), about)
            return
        call = about.id if about is not None and about.id in self._calls else None
        # In the old era stdio requests do not name a call. With a single active call, that call is the only candidate.
        if call is None and len(self._calls) == 1:
            call = next(iter(self._calls))
        caller = self._whose_run() if call is None else self._calls[call]
        self._questions.take(request, call, caller, lambda message: self.link.respond(message, about))

    def _whose_run(self) -> CallOrigin | None:
        """Return an origin for a request of any active call; None if the calls belong to several runs."""
        callers = iter(self._calls.values())
        oldest = next(callers, None)
        if oldest is None or any(caller.me.stream is not oldest.me.stream for caller in callers):
            return None
        return CallOrigin(me=self._questions.owner, host=oldest.host)

    def on_notification(self, notification: Notification, about: OutgoingCall | None) -> None:  # noqa: ARG002 - of the interface
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
        """Pass a message of the client itself about the server to `on_log`, if there is one."""
        if self._on_log is not None:
            self._on_log(model.LogMessage(level=level, logger="callboard", data=text))


def _entry(raw: msgspec.Raw, type: type[T]) -> T:
    """Return an entry of a list. An invalid one is read again without nulls and without invalid schemas."""
    try:
        return decode_json(raw, type)
    except UNREADABLE:
        found = decode_mended(_OBJECT.decode, raw)
        fields = {
            key: value
            for key, value in found.items()
            if value is not None and (isinstance(value, dict) or not key.endswith("Schema"))
        }
        return decode_json(msgspec.json.encode(fields), type)


_UPDATED = "notifications/resources/updated"
CHANGES = {f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")} | {_UPDATED: ""}
"""Notifications, with the argument of `on_change`."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

HEARD_WITHIN = 2.0
"""Seconds for a server to acknowledge; a silent server is assumed to send notifications."""

AT_MOST = 60.0
BACKOFF = Backoff(first=1.0, most=AT_MOST, jitter=0.0)
"""Pause before a subscription that the server ended is opened again; resets after one that lasted."""


@final
class Listening:
    """Subscriptions of one connection. `on_change` gets `tools`, `resources`, `prompts`, or the URI of a resource."""

    def __init__(self, client: McpClient, me: Actor, on_change: Callable[[str], None] | None) -> None:
        self._client = client
        self._me = me
        self._on_change = on_change
        self._uris: set[str] = set()
        self._ref: Ref[Never, None] | None = None
        self._asked: dict[str, Json] = {}
        self._heard: dict[str, Json] = {}  # covered by the last acknowledged subscription
        self._settled = trio.Event()

    def changed(self, method: str, params: Mapping[str, Json]) -> None:
        """Forward a server's notification that its tools, prompts or resources have changed."""
        what = CHANGES[method] or params.get("uri")
        if self._on_change is not None and isinstance(what, str):
            self._on_change(what)

    def acknowledged(self) -> None:
        """Mark the subscription as active, and report changes of all that the previous one covered."""
        self._settled.set()
        heard, self._heard = self._heard, self._asked
        if self._on_change is not None:
            for notification, kind in CHANGES.items():
                if kind and f"{kind}ListChanged" in heard:
                    self.changed(notification, {})
            for uri in heard.get("resourceSubscriptions", ()):
                self._on_change(uri)

    async def settled(self) -> None:
        """Wait until the server has acknowledged or refused the subscription, at most `HEARD_WITHIN` seconds.

        Returns at once if nothing was subscribed.
        """
        if self._ref is not None:
            with trio.move_on_after(HEARD_WITHIN):
                await self._settled.wait()

    def add(self, uri: str) -> None:
        """Subscribe to another resource."""
        self._uris.add(uri)
        self.begin()

    def begin(self) -> None:
        """Open a subscription of the modern era to everything available, replacing the current one.

        Does nothing without `on_change`, or if there is nothing to subscribe to.
        """
        wanted = self._wanted()
        if self._on_change is None or not wanted:
            return
        if self._ref is not None:
            self._ref.cancel()
        self._ref = self._me.spawn(self._listen, wanted, name="listen", link=False)

    def _wanted(self) -> dict[str, Json]:
        wanted: dict[str, Json] = {}
        for kind in ("tools", "resources", "prompts"):
            able = self._client.capabilities.get(kind)
            if isinstance(able, dict) and able.get("listChanged"):
                wanted[f"{kind}ListChanged"] = True
        if self._uris:
            wanted["resourceSubscriptions"] = sorted(self._uris)
        return wanted

    async def _listen(self, _: Actor, wanted: Mapping[str, Json]) -> None:
        await trio.lowlevel.checkpoint()  # a subscription that is replaced at once sends nothing
        in_vain = 0
        while self._client.link.lost is None:
            self._asked = dict(wanted)
            begun = trio.current_time()
            try:
                await self._client.listen(wanted)
            except McpLost:
                pass  # a broken stream is not the end of the connection
            except McpError as error:
                self._settled.set()
                if not isinstance(error, HttpRefused) or error.status < 500:
                    return  # the server refuses subscriptions
            in_vain = 1 if trio.current_time() - begun > AT_MOST else in_vain + 1
            await trio.sleep(BACKOFF.seconds(in_vain))


TASKS = "io.modelcontextprotocol/tasks"
TASK = "task"
"""`resultType` of a handle."""

FIRST_POLL = 1.0
"""Seconds between two polls if the server names no interval."""

SHORTEST_POLL, LONGEST_POLL = 0.05, 60.0
"""Limits of the seconds between two polls, whatever the server names."""

CANCELS_WITHIN = 2.0
"""Seconds for a server to accept the cancellation."""

Ask = Callable[[str, Mapping[str, Json], CallOrigin | None, Mapping[str, str]], Awaitable[dict[str, Json]]]
"""Sends a request with this method, parameters, origin and headers."""


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, ServerQuestion] = {}
    result: dict[str, Json] | None = None
    error: dict[str, Json] | None = None

    @property
    def pause(self) -> float:
        """Seconds until the next poll."""
        if self.poll_interval_ms is None:
            return FIRST_POLL
        return min(max(self.poll_interval_ms / 1000, SHORTEST_POLL), LONGEST_POLL)


class TaskFollower:
    """Polls one task until it ends.

    Args:
        server: name of the server.
        ask: sends requests.
        questions: answers questions of the server.
        owner: actor whose shield protects `tasks/cancel` after a cancellation, for a call without an origin.
        timeout: seconds for one request.
    """

    def __init__(self, server: str, ask: Ask, questions: ServerQuestions, owner: Actor, timeout: float) -> None:
        self._server = server
        self._ask = ask
        self._questions = questions
        self._owner = owner
        self._timeout = timeout
        self._looks = 0

    async def result(self, created: Mapping[str, Json], caller: CallOrigin | None) -> dict[str, Json]:
        """Poll the task until it ends, answer its questions, and return the result of the call.

        If the caller is cancelled, the task is cancelled too.

        Args:
            created: handle of the task, as the server returned it.

        Raises:
            McpError: the task has failed, was cancelled by the server, or is unknown to it. Also if a status is
                invalid, or a request was not answered in time.
            McpLost: the connection broke.
        """
        task = self._read(created)
        # The work of the server does not count against the time limit of the call.
        stands_still = nullcontext() if caller is None or caller.works is None else caller.works()
        try:
            with stands_still:
                return await self._followed(task, caller)
        except trio.Cancelled:
            actor = self._owner if caller is None else caller.me
            # A cancelled task can't await anything without a shield, and the server would work on for nothing.
            with actor.root.shield(CANCELS_WITHIN):
                await self._cancel(task)
            raise

    async def _followed(self, task: _Task, caller: CallOrigin | None) -> dict[str, Json]:
        answered: set[str] = set()
        while True:
            match task.status:
                case "completed":
                    if task.result is None:
                        raise McpError(f"MCP server '{self._server}' completed a task without a result")
                    return task.result
                case "failed":
                    why = (task.error or {}).get("message") or task.status_message or "no reason given"
                    raise McpError(f"MCP server '{self._server}' reported a failed task: {str(why)[:400]}")
                case "cancelled":
                    why = task.status_message or "no reason given"
                    raise McpError(f"MCP server '{self._server}' cancelled a task: {why[:400]}")
            # The server may list a question again until it has processed the answer.
            new = {key: asked for key, asked in task.input_requests.items() if key not in answered}
            if new:
                answers = await self._questions.answers(new, caller)
                answered |= new.keys()
                await self._made("tasks/update", task, inputResponses=answers)
            else:
                self._report(task, caller)
                await trio.sleep(task.pause)
            task = self._read(await self._made("tasks/get", task))

    def _report(self, task: _Task, caller: CallOrigin | None) -> None:
        self._looks += 1
        if caller is not None and caller.on_progress is not None and task.status_message:
            caller.on_progress(Progress(progress_token=0, progress=self._looks, message=task.status_message))

    async def _made(self, method: str, task: _Task, **more: Json) -> dict[str, Json]:
        with trio.move_on_after(self._timeout):
            return await self._ask(method, {"taskId": task.task_id, **more}, None, {})
        raise McpError(f"MCP server '{self._server}' did not answer {method} within {self._timeout:g} s")

    async def _cancel(self, task: _Task) -> None:
        with suppress(McpError):  # the task or the server has already ended
            await self._ask("tasks/cancel", {"taskId": task.task_id}, None, {})

    def _read(self, status: Mapping[str, Json]) -> _Task:
        try:
            return convert(status, _Task)
        except msgspec.ValidationError as error:
            raise McpError(f"MCP server '{self._server}' sent an invalid task status: {error}") from error
