"""What one conversation (an LLM agent's, an llm node's) has of its servers, its calls, and what they need of a run.

A call has its server's time, which stands still while the server waits for a person or a model. Progress becomes
events of the call's actor, and what the server asks meanwhile is answered on that actor's behalf.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import trio

from .....protocol.chat import ChatReply, ChatRequest
from .....protocol.errors import ConfigError, McpError, McpSignInNeeded, ToolFailed, UsageError
from .....protocol.events import ToolProgress, Warned
from .....protocol.jsonrpc import METHOD_NOT_FOUND
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import Progress, Tool
from .....protocol.permissions import Permissions as Rules
from .....protocol.problems import did_you_mean
from .....protocol.settings import Settings
from .....supervisors import Actor
from ...call_clock import Clock
from ...journal.of_run import SERVER_TOOLS
from ...journal.scope import here
from ...journal.unknown import key_of
from ...playback.playback import Effect, done
from ...tools.tool import Arguments, Json, shortened
from ..links.link import Caller
from ..throttle import Throttle
from .names import offered_name
from .sampling import sample

if TYPE_CHECKING:
    from ...tools.permissions import Permissions
    from ..pool.servers import McpServers, Scope

UNREACHABLE = (McpError, ConfigError, UsageError)
"""Why a server can't be asked: it, its entry, or that it has none any more."""

T = TypeVar("T")

_LONGEST_MESSAGE = 500

SIGN_INS = 2
"""Times that a person is asked to sign in for one call: a server may want more scopes, and again more."""

MOST_SAMPLES = 100
"""Times that a server may ask our model during one call, whose time stands still meanwhile."""


class Run(Protocol):
    """What the tools of servers need of a run; see `RunContext`.

    Attributes:
        mcp: makes the servers of `mcp.json` when it is first called; None in a run that has none.
        settings: what `config.yaml` says.
        servers: those that the run brings along.
        model: the one that the user asked for; "" for none.
        permissions: which calls may go ahead.
    """

    mcp: Callable[[], McpServers] | None
    settings: Settings
    servers: tuple[Server, ...]
    model: str
    permissions: Permissions

    async def chat(self, me: Actor, request: ChatRequest) -> ChatReply:
        """Ask it, within the run's limits and on its account."""


class Talk(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An agent, or one conversation of it, as far as servers are concerned.

    Attributes:
        scope: what it has leased.
        context: the run.
        own: `permissions` of the agent's file.
        model: answers the servers that may ask a model; "" for the default.
        timeout: seconds of a call in place of the servers' own; None for those.
        told: what the user was warned of already.
    """

    scope: Scope
    context: Run
    own: Rules = {}
    model: str = ""
    timeout: float | None = None
    told: set[str] = msgspec.field(default_factory=set)

    @contextmanager
    def conversation(self, me: Actor) -> Iterator[Talk]:
        """One conversation of the agent that has this; what only that one leases is given back at its end."""
        with self.scope.inner(me.path) as scope:
            yield msgspec.structs.replace(self, scope=scope)


class View(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One server, as a conversation may use it.

    Attributes:
        lists: patterns of tool names; each of the lists must have one that fits (agent's and node's `mcp_tools`).
    """

    talk: Talk
    server: Server
    lists: tuple[tuple[str, ...], ...] = ()

    def admits(self, tool: str) -> bool:
        """Whether a tool may be seen and called."""
        return self.server.tools.admits(tool) and all(
            any(self._fits(tool, pattern) for pattern in patterns) for patterns in self.lists
        )

    def _fits(self, tool: str, pattern: str) -> bool:
        """Whether a pattern means a tool, whose name it may give as the server does or as models know it."""
        return fnmatchcase(tool, pattern) or fnmatchcase(offered_name(self.server.name, tool), pattern)

    async def tools(self, me: Actor) -> list[Tool]:
        """The tools there are; the server is only started if it was never asked before.

        Raises:
            McpError, ConfigError, UsageError: it can't be asked.
        """
        found = await done(me, Effect("server tools", self.server.name), list[Tool], partial(self._listed, me))
        self._tell_strangers(me, [tool.name for tool in found])
        return [tool for tool in found if self.admits(tool.name)]

    async def _listed(self, me: Actor) -> list[Tool]:
        catalog = await self.admitted(me, lambda: self.talk.scope.catalog(self.server.name, me))
        tools, scope = list(catalog.tools), here(me)
        if scope is not None:
            scope.run.note_once(f"{SERVER_TOOLS}{self.server.name}", tools)
        return tools

    async def learned(self, me: Actor) -> list[Tool] | None:
        """The tools there are by now, without starting the server; None if it was never asked."""

        async def look() -> _Learned:
            catalog = await self.talk.scope.learned(self.server.name)
            return _Learned(None if catalog is None else list(catalog.tools))

        found = await done(me, Effect("server tools now", self.server.name), _Learned, look)
        return None if found.tools is None else [tool for tool in found.tools if self.admits(tool.name)]

    def _tell_strangers(self, me: Actor, there: list[str]) -> None:
        """Warn, once, of what `mcp_tools` lists and the server does not have."""
        name, told = self.server.name, self.talk.told
        for pattern in {pattern for patterns in self.lists for pattern in patterns}:
            key = f"{name}: {pattern}"
            if key not in told and not any(self._fits(tool, pattern) for tool in there):
                told.add(key)
                near = did_you_mean(pattern, there) or f"it has: {shortened(', '.join(there[:20]), 1_000) or 'none'}"
                text = f"`mcp_tools` lists '{pattern}', and MCP server '{name}' has no such tool; {near}"
                me.emit(Warned(code="unknown_tool", message=text))

    async def call(self, me: Actor, tool: str, arguments: Arguments, shown: str) -> dict[str, Json]:
        """The server's raw answer.

        Args:
            shown: what the tool is called in events.

        Raises:
            ToolFailed: there is none.
        """
        server = self.server
        if not self.admits(tool):
            raise ToolFailed(f"'{tool}' is not among the tools of MCP server '{server.name}' that may be used here")
        clock = Clock(self.talk.timeout or server.timeout_seconds)
        more = Throttle()

        def on_progress(progress: Progress) -> None:
            if not more():
                return
            message = None if progress.message is None else shortened(progress.message, _LONGEST_MESSAGE)
            me.emit(ToolProgress(tool=shown, progress=progress.progress, total=progress.total, message=message))

        within = here(me)
        caller = Caller(
            me=me,
            host=CallHost(self.talk, server, clock),
            on_progress=on_progress if me.stream.heard else None,
            key=None if within is None else key_of(within),
            works=clock.stopped,
        )
        try:
            with clock.scope:  # whose time begins when the server is there: its start has a limit of its own
                scope = self.talk.scope
                return await self.admitted(
                    me, lambda: scope.call(server.name, tool, arguments, caller, on_open=clock.start), clock
                )
        except UNREACHABLE as error:
            raise ToolFailed(str(error)) from error
        raise ToolFailed(f"Tool call '{shown}' did not end within {clock.seconds:g} s and was ended")

    async def admitted(self, me: Actor, attempt: Callable[[], Awaitable[T]], clock: Clock | None = None) -> T:
        """What the attempt gives, for which a person may have to sign in; `clock` stands still meanwhile."""
        for _ in range(SIGN_INS):
            began = trio.current_time()
            try:
                return await attempt()
            except McpSignInNeeded as needed:
                way = self.talk.scope.way_in(self.server.name)
                if way is None:
                    raise
                from .sign_in import signed_in

                runs = clock is not None and clock.scope.deadline < math.inf
                with clock.stopped() if clock is not None and runs else nullcontext():
                    if not await signed_in(me, *way, needed, began):
                        raise
        return await attempt()


class _Learned(msgspec.Struct, frozen=True):
    tools: list[Tool] | None


class CallHost:
    """Answers what a server asks during one call, one question at a time; the call's clock stands still."""

    def __init__(self, talk: Talk, server: Server, clock: Clock) -> None:
        self._talk = talk
        self._server = server
        self._clock = clock
        self._turn = trio.Lock()
        self._samples = 0

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
        if not self._server.elicitation:
            raise McpError("questions are turned off for this server", rpc_code=METHOD_NOT_FOUND)
        from .elicitation import ask

        async with self._turn:
            with self._clock.stopped():
                return await ask(me, server, params)

    async def sample(
        self,
        me: Actor,
        server: str,  # noqa: ARG002 - its entry is known
        params: Mapping[str, Json],
    ) -> dict[str, Json]:
        self._samples += 1
        if self._samples > MOST_SAMPLES:
            raise McpError(f"a call may ask the model {MOST_SAMPLES} times, and no more", rpc_code=METHOD_NOT_FOUND)
        async with self._turn:
            with self._clock.stopped():
                return await sample(me, self._talk, self._server, params)
