"""Servers as one conversation (of an LLM agent or an llm node) uses them: their tools, calls, and the run's services.

A call has its server's time limit, which pauses while the server waits for the user or a model. Progress notifications
become events of the call's actor. Questions of the server are answered on that actor's behalf.

**Sampling.** A server may send a request to the run's model in the middle of a call (`sampling/createMessage`), if the
`sampling` of its entry allows it:

    off   never (the default; the capability is not declared)
    ask   the user is asked each time, as for a tool called `<server>__sampling`
    on    always

The request is sent like any other of the run, within its limits and on its account. The model is the run's; the
server's preferences are ignored. A server gets no tools of the run, and may add none.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/sampling

**Sign-in.** If a server needs one, the user at the terminal is asked, and the refused request is repeated. Only a
process of the user's own asks. A server's callers must not lend it their accounts, so in `callboard serve` and
similar processes the error names the command. However many agents wait, one question is asked. After a refusal this
process does not ask again. No browser is opened: the user opens the page.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import trio

from .....protocol.chat import AssistantTurn, ChatReply, ChatRequest, ImagePart, Part, TextPart, Turn, UserTurn
from .....protocol.errors import (
    CallboardError,
    ConfigError,
    LimitReached,
    McpError,
    McpSignInNeeded,
    ModelError,
    ToolFailed,
    UsageError,
)
from .....protocol.events import ToolProgress, Warned
from .....protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import McpTool, Progress
from .....protocol.permissions import Permissions as Rules
from .....protocol.problems import did_you_mean
from .....protocol.settings import Settings
from .....supervisors import Actor
from ...call_clock import Clock
from ...journal.actor_journal import scope_of
from ...journal.run_journal import SERVER_TOOLS
from ...journal.unknown_outcome import key_of
from ...playback import OutsideEffect, done
from ...tools.tool import Arguments, Json, Tool, ToolSpec, shortened
from ..links.link import CallOrigin
from ..throttle import Throttle
from .names import offered_name

if TYPE_CHECKING:
    from ....io.oauth.authorization import Authorization, Redirect
    from ...tools.permissions import Permissions
    from ..auth.access import ServerAccess
    from ..pool.servers import McpServers, ServerScope

UNREACHABLE = (McpError, ConfigError, UsageError)
"""Errors of an unavailable server: in itself, in its entry, or because it is no longer configured."""

T = TypeVar("T")

_LONGEST_MESSAGE = 500

SIGN_INS = 2
"""Sign-ins for one call at most: a server may require more scopes, and then more again."""

MOST_SAMPLES = 100
"""Requests of a server to the model during one call at most; the call's clock pauses meanwhile."""


class RunServices(Protocol):
    """Services of a run for the tools of servers; see `RunContext`.

    Attributes:
        mcp: creates the servers of `mcp.json` at its first call; None in a run without any.
        settings: content of `config.yaml`.
        servers: servers that the run adds.
        permissions: decides which calls are allowed.
    """

    mcp: Callable[[], McpServers] | None
    settings: Settings
    servers: tuple[Server, ...]
    permissions: Permissions

    def model_for(self, of_file: str | None) -> str:
        """Return the model for a request of an agent; `of_file` is the `model` of its file."""

    async def chat(self, me: Actor, request: ChatRequest) -> ChatReply:
        """Send a request to a model, within the run's limits and on its account."""


class ServersView(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Servers of an agent, or of one of its conversations.

    Attributes:
        scope: its leases.
        context: the run.
        own: `permissions` of the agent's file.
        model: `model` of the agent's file, for requests of servers (sampling); "" for none.
        timeout: seconds for a call in place of the servers' own limits; None for these.
        told: subjects of which the user was already warned.
    """

    scope: ServerScope
    context: RunServices
    own: Rules = {}
    model: str = ""
    timeout: float | None = None
    told: set[str] = msgspec.field(default_factory=set)

    @contextmanager
    def conversation(self, me: Actor) -> Iterator[ServersView]:
        """Yield a view for one conversation of this agent; its own leases are returned at its end."""
        with self.scope.inner(me.path) as scope:
            yield msgspec.structs.replace(self, scope=scope)


class ServerView(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Server as a conversation may use it.

    Attributes:
        lists: lists of patterns of tool names; a tool must match each list (agent's and node's `mcp_tools`).
    """

    talk: ServersView
    server: Server
    lists: tuple[tuple[str, ...], ...] = ()

    def admits(self, tool: str) -> bool:
        """Return True if a tool may be seen and called."""
        return self.server.tools.admits(tool) and all(
            any(self._fits(tool, pattern) for pattern in patterns) for patterns in self.lists
        )

    def _fits(self, tool: str, pattern: str) -> bool:
        """Return True if a pattern matches a tool by the server's name for it or by the model's."""
        return fnmatchcase(tool, pattern) or fnmatchcase(offered_name(self.server.name, tool), pattern)

    async def tools(self, me: Actor) -> list[McpTool]:
        """Return the available tools; the server starts only if it is in no cache.

        Raises:
            McpError, ConfigError, UsageError: the server is unavailable.
        """
        found = await done(
            me, OutsideEffect("server tools", self.server.name), list[McpTool], partial(self._listed, me)
        )
        self._warn_of_unknown_tools(me, [tool.name for tool in found])
        return [tool for tool in found if self.admits(tool.name)]

    async def _listed(self, me: Actor) -> list[McpTool]:
        catalog = await self.admitted(me, lambda: self.talk.scope.catalog(self.server.name, me))
        tools, scope = list(catalog.tools), scope_of(me)
        if scope is not None:
            scope.run.note_once(f"{SERVER_TOOLS}{self.server.name}", tools)
        return tools

    async def learned(self, me: Actor) -> list[McpTool] | None:
        """Return the current tools without starting the server; None if they are unknown."""

        async def fetch() -> _Learned:
            catalog = await self.talk.scope.learned(self.server.name)
            return _Learned(None if catalog is None else list(catalog.tools))

        found = await done(me, OutsideEffect("server tools now", self.server.name), _Learned, fetch)
        return None if found.tools is None else [tool for tool in found.tools if self.admits(tool.name)]

    def _warn_of_unknown_tools(self, me: Actor, there: list[str]) -> None:
        """Warn once of each pattern in `mcp_tools` that matches no tool of the server."""
        name, warned = self.server.name, self.talk.told
        for pattern in {pattern for patterns in self.lists for pattern in patterns}:
            key = f"{name}: {pattern}"
            if key not in warned and not any(self._fits(tool, pattern) for tool in there):
                warned.add(key)
                near = did_you_mean(pattern, there) or f"it has: {shortened(', '.join(there[:20]), 1_000) or 'none'}"
                text = f"`mcp_tools` lists '{pattern}', and MCP server '{name}' has no such tool; {near}"
                me.emit(Warned(code="unknown_tool", message=text))

    async def call(self, me: Actor, tool: str, arguments: Arguments, shown_name: str) -> dict[str, Json]:
        """Call a tool and return the server's raw result, also one with `isError`.

        Args:
            shown_name: name of the tool in events.

        Raises:
            ToolFailed: the tool is not allowed, its server is unavailable or refused the call, or it took too long.
        """
        server = self.server
        if not self.admits(tool):
            raise ToolFailed(f"'{tool}' is not among the allowed tools of MCP server '{server.name}'")
        clock = Clock(self.talk.timeout or server.timeout_seconds)
        more = Throttle()

        def on_progress(progress: Progress) -> None:
            if not more():
                return
            message = None if progress.message is None else shortened(progress.message, _LONGEST_MESSAGE)
            me.emit(ToolProgress(tool=shown_name, progress=progress.progress, total=progress.total, message=message))

        within = scope_of(me)
        caller = CallOrigin(
            # Without a listener no progress token is sent, which spares the server the notifications.
            me=me,
            host=CallHost(self.talk, server, clock),
            on_progress=on_progress if me.stream.heard else None,
            key=None if within is None else key_of(within),
            works=clock.stopped,
        )
        try:
            with clock.scope:  # starts when the server is open: its start has a limit of its own
                scope = self.talk.scope
                return await self.admitted(
                    me, lambda: scope.call(server.name, tool, arguments, caller, on_open=clock.start), clock
                )
        except UNREACHABLE as error:
            raise ToolFailed(str(error)) from error
        raise ToolFailed(f"Tool call '{shown_name}' was stopped: it did not finish within {clock.seconds:g} s")

    async def admitted(self, me: Actor, attempt: Callable[[], Awaitable[T]], clock: Clock | None = None) -> T:
        """Return the result of `attempt`, repeated after sign-ins of the user; `clock` pauses meanwhile.

        Raises:
            McpSignInNeeded: no user can be asked, the sign-in failed, or `SIGN_INS` were not enough.
        """
        for _ in range(SIGN_INS):
            began = trio.current_time()
            try:
                return await attempt()
            except McpSignInNeeded as needed:
                way = self.talk.scope.way_in(self.server.name)
                if way is None:
                    raise

                # A clock that has not started has nothing to stop.
                runs = clock is not None and clock.scope.deadline < math.inf
                with clock.stopped() if clock is not None and runs else nullcontext():
                    if not await signed_in(me, *way, needed, began):
                        raise
        return await attempt()


class _Learned(msgspec.Struct, frozen=True):
    tools: list[McpTool] | None


class CallHost:
    """Answers a server's questions during one call, one at a time; the call's clock pauses meanwhile."""

    def __init__(self, talk: ServersView, server: Server, clock: Clock) -> None:
        self._talk = talk
        self._server = server
        self._clock = clock
        self._turn = trio.Lock()
        self._samples = 0

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
        if not self._server.elicitation:
            raise McpError("questions to the user are turned off for this server", rpc_code=METHOD_NOT_FOUND)
        from .elicitation import ask

        async with self._turn:
            with self._clock.stopped():
                return await ask(me, server, params)

    async def sample(
        self,
        me: Actor,
        server: str,  # noqa: ARG002 - the entry is known
        params: Mapping[str, Json],
    ) -> dict[str, Json]:
        self._samples += 1
        if self._samples > MOST_SAMPLES:
            raise McpError(
                f"a tool call may send at most {MOST_SAMPLES} requests to the model", rpc_code=METHOD_NOT_FOUND
            )
        async with self._turn:
            with self._clock.stopped():
                return await sample(me, self._talk, self._server, params)


REFUSED = -1
"""The specification's error code for a user who refuses."""

_STOPPED = {"end": "endTurn", "length": "maxTokens", "tools": "toolUse", "refused": "refusal"}


async def sample(me: Actor, talk: ServersView, server: Server, params: Mapping[str, Json]) -> dict[str, Json]:
    """Send a server's sampling request to the model, and return the `CreateMessageResult`.

    Raises:
        McpError: sampling is not allowed, the request is invalid, or the model fails.
    """
    if server.sampling == "off":
        raise McpError(
            f"sampling is turned off for server '{server.name}' (`sampling` of its entry in mcp.json)",
            rpc_code=METHOD_NOT_FOUND,
        )
    request = _request(talk.context.model_for(talk.model), params)
    if server.sampling == "ask":
        tool = Tool(spec=ToolSpec(name=offered_name(server.name, "sampling")), run=_never, effect="write", origin="mcp")
        preview = {"system": params.get("systemPrompt", ""), "messages": params.get("messages")}
        try:
            await talk.context.permissions.admit(me, tool, preview, talk.own)
        except ToolFailed as error:
            raise McpError(str(error), rpc_code=REFUSED) from error
    try:
        reply = await talk.context.chat(me, request)
    except (ModelError, LimitReached, ConfigError) as error:
        raise McpError(f"the request to the model failed: {error}") from error
    return {
        "role": "assistant",
        "content": {"type": "text", "text": reply.text},
        "model": reply.model,
        "stopReason": _STOPPED[reply.stop],
    }


async def _never(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - nothing is run
    raise AssertionError("this tool only asks for its permission")


def _request(model: str, params: Mapping[str, Json]) -> ChatRequest:
    # The server did not get the sub-capability for tools, so it must not use them.
    if params.get("tools"):
        raise _misfit("sampling with tools is not supported")
    messages = params.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _misfit("`messages` must be a list of messages")
    most, temperature = params.get("maxTokens"), params.get("temperature")
    stop = params.get("stopSequences")
    return ChatRequest(
        model=model,
        messages=tuple(_turn(message) for message in messages),
        system=str(params.get("systemPrompt") or ""),
        temperature=float(temperature) if isinstance(temperature, int | float) else None,
        max_tokens=most if isinstance(most, int) and most > 0 else None,
        stop=tuple(str(each) for each in stop) if isinstance(stop, list) else (),
    )


def _turn(message: Json) -> Turn:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else [content]
    parts = tuple(_part(block) for block in blocks)
    if message.get("role") == "assistant":
        return AssistantTurn("\n".join(part.text for part in parts if isinstance(part, TextPart)))
    return UserTurn(parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else parts)


def _part(block: Json) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return TextPart(str(block.get("text", "")))
    if kind == "image":
        try:
            data = base64.b64decode(str(block.get("data", "")), validate=True)
        except binascii.Error as error:
            raise _misfit(f"an image in `messages` is not base64: {error}") from None
        return ImagePart(str(block.get("mimeType", "image/png")), data)
    raise _misfit(f"a message may contain text and images, not {str(kind)[:40]!r}")


def _misfit(why: str) -> McpError:
    return McpError(why, rpc_code=INVALID_PARAMS)


FAILED = "mcp_sign_in"
"""Code of the warning that a sign-in failed."""


async def signed_in(me: Actor, server: Server, access: ServerAccess, needed: McpSignInNeeded, began: float) -> bool:
    """Ask the user to sign in; return True if the refused request is worth repeating.

    False if the sign-in fails, which a warning reports, or if an earlier one failed: then the user is not asked again.

    Args:
        me: asks.
        server: its entry, with resolved values.
        began: start of the refused request, by trio's clock.
    """
    # Imported late: few conversations need a sign-in, and these bring an HTTP client and a listener with them.
    from ....io.oauth.authorization import code_from
    from ..auth.sign_in import sign_in

    async with access.turn:
        # Another agent's question was answered while this one waited for the lock.
        if access.signed_in_at > began:
            return True
        if access.declined:
            return False

        async def person(request: Authorization, redirect: Redirect) -> str:
            more = f", to grant it: {' '.join(needed.scopes)}" if needed.scopes else ""
            text = (
                f"MCP server '{server.name}' wants you to sign in{more}. Open this page in a browser of this "
                f"machine; the browser then returns to Callboard by itself:\n{request.url}\nIf the last page "
                "can't be loaded, paste its address here."
            )
            return await code_from(me.ask_person, request, redirect, text)

        try:
            await sign_in(server, access.store, access.environ, person, scopes=needed.scopes)
        except CallboardError as error:
            access.declined = True
            me.emit(Warned(code=FAILED, message=f"the sign-in to MCP server '{server.name}' failed: {error}"))
            return False
        access.admitted()
        return True
