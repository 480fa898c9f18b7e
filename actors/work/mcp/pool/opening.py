"""Lifetime of one server, in the task of the actor that owns it: connect, list tools, serve, end; and its record.

Each step is reported to the events of the server's actor and of the run that caused the start, to its `ServerRecord`,
and to the `Catalogs`.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol import events
from .....protocol.errors import CallboardError, McpError, McpLost, ShuttingDown
from .....protocol.mcp.config import PoolSettings, Server
from .....protocol.mcp.model import Implementation, LogMessage, McpTool
from .....supervisors import Actor, Breaker
from .....supervisors.histogram import LatencyHistogram
from ....io.secret_redaction import without_secrets
from ..auth.access import Accesses
from ..throttle import Throttle
from .catalog import Catalogs, ServerCatalog

if TYPE_CHECKING:
    from ..client.client import McpClient
    from ..client.handshake import OfferedCapabilities
    from .leases import PoolKey

LONGEST_NAME = 256
"""Characters of a tool's name, or of a server's own name. A tool with a longer one, or with control characters in it,
is left out: names appear in lists, in errors and on terminals."""

LONGEST_INSTRUCTIONS = 16_000

REFRESH_EVERY = 1.0
"""Seconds between two requests for the tools of a server that reports changes continuously."""


@final
class ServerRecord:
    """Statistics of a server by its digest, across all its starts.

    Attributes:
        breaker: decides when it may be started.
        calls, errors: number of calls, and of failed ones.
        last_error: error of a call, a start or an end.
    """

    def __init__(self, settings: PoolSettings, rand: random.Random) -> None:
        self.breaker: Breaker = Breaker(
            most=settings.max_restarts, period=settings.restart_window_seconds, rand=rand.random
        )
        self.calls = 0
        self.errors = 0
        self.last_error = ""


@final
class Live:
    """Server that the pool leases.

    Attributes:
        me: the actor that owns it.
        client, catalog: set once it is open.
        since: time when its start began.
        busy: number of current uses.
        used: time when the last use ended.
        may_warn: limits how many of its log messages become warnings.
        changed: True if its tools have changed since the last request for them.
        learning: True while a task requests its tools.
        learned: set while the catalog is up to date, as far as the server reports.
    """

    since: float
    used: float

    client: McpClient
    catalog: ServerCatalog

    def __init__(self, me: Actor, key: PoolKey, record: ServerRecord) -> None:
        self.me = me
        self.key = key
        self.record = record
        self.since = self.used = trio.current_time()
        self.busy: int = 0
        self.open = self.changed = self.learning = False
        self.learned: trio.Event = trio.Event()
        self.may_warn: Throttle = Throttle()

    def begin(self) -> None:
        """Count a use that begins."""
        self.busy += 1

    def end(self) -> None:
        """Count a use that ends."""
        self.busy -= 1
        self.used: float = trio.current_time()

    def answered(self) -> None:
        """Record a successful call."""
        self.record.calls += 1
        self.record.breaker.worked()

    def failed(self, why: str) -> None:
        """Record a failed call."""
        self.record.calls += 1
        self.record.errors += 1
        self.record.last_error = why


@final
@dataclass(kw_only=True, eq=False, repr=False)  # it holds secrets
class Opening:
    """Opens servers for the pool.

    Args:
        accesses: tokens for servers that require them.
        on_lost: receives each server that died after it was open; must neither wait nor raise.

    Attributes:
        live: servers that are open or starting.
        records: statistics of each server, by digest.
        causes: the actor that caused each current start.
        operations: durations of requests, by method.
        tolerated: number of failed pings that were only reported.
    """

    environ: Mapping[str, str]
    abilities: OfferedCapabilities
    settings: PoolSettings
    catalogs: Catalogs
    rand: random.Random
    accesses: Accesses
    on_lost: Callable[[Server], None]
    live: dict[PoolKey, Live] = field(default_factory=dict, init=False)
    records: dict[str, ServerRecord] = field(default_factory=dict, init=False)
    causes: dict[PoolKey, Actor] = field(default_factory=dict, init=False)
    operations: dict[str, LatencyHistogram] = field(default_factory=dict, init=False)
    tolerated: int = field(default=0, init=False)

    def declared(self, server: Server) -> OfferedCapabilities:
        """Return the capabilities that the client declares to this server."""
        can = self.abilities
        return msgspec.structs.replace(
            can,
            elicitation=can.elicitation and server.elicitation,
            sampling=can.sampling and server.sampling != "off",
            roots=can.roots if server.roots is None else tuple(map(_uri, server.roots)),
        )

    def record(self, digest: str) -> ServerRecord:
        """Return the record of a server, created at first use."""
        record = self.records.get(digest)
        if record is None:
            record = self.records[digest] = ServerRecord(self.settings, self.rand)
        return record

    @asynccontextmanager
    async def open(self, me: Actor, key: PoolKey) -> AsyncIterator[Live]:
        """Run one server from its start to its end, in the task of the actor that owns it."""
        from ..client.connect import connect

        live = self.live[key]
        known = self.catalogs.get(key.digest)
        try:
            async with connect(
                me,
                key.server,
                environ=self.environ,
                abilities=self.declared(key.server),
                on_change=lambda what: self._changed(live, what),
                on_log=lambda log: _warn(live, log),
                remembered="" if known is None else known.version,
                access=self.accesses.of(key.server),
                place=key.place,
            ) as client:
                live.client = client
                client.on_exchange = lambda method, took: self.operations.setdefault(method, LatencyHistogram()).add(
                    took
                )
                await self._learn(live)
                live.open = True
                live.learned.set()
                self._emit(
                    live,
                    events.McpServerStarted(
                        server=key.server.name,
                        version=live.catalog.server.version,
                        protocol=client.version,
                        seconds=trio.current_time() - live.since,
                        tools=len(live.catalog.tools),
                    ),
                )
                try:
                    yield live
                finally:
                    self._ended(live)
        except CallboardError as error:
            if not live.open:
                self._failed(live, str(error))
            raise

    def starts(self, me: Actor, key: PoolKey, wait: float) -> None:
        """Register a server that its actor is about to open, after `wait` seconds."""
        live = self.live[key] = Live(me, key, self.record(key.digest))
        me.ref.on_end(lambda _: self.live.__delitem__(key))
        self._emit(live, events.McpServerStarting(server=key.server.name, wait=wait))

    def _ended(self, live: Live) -> None:
        lost = live.client.link.lost
        why = "" if lost is None else str(lost)
        if why:
            live.record.last_error = why
            self.on_lost(live.key.server)
        live.me.emit(events.McpServerStopped(server=live.key.server.name, error=why))

    def _failed(self, live: Live, why: str) -> None:
        live.record.last_error = why
        self._emit(live, events.McpServerFailed(server=live.key.server.name, error=why))

    def _emit(self, live: Live, data: events.EventData) -> None:
        """Emit an event to the server's own actor, and to the run that caused its start."""
        live.me.emit(data)
        cause = self.causes.get(live.key)
        # If the server's actor belongs to the run, the run's stream already has the event.
        if cause is not None and cause.end is None and cause.stream is not live.me.stream:
            cause.emit(data)

    async def _learn(self, live: Live) -> None:
        client, server = live.client, live.key.server
        tools: list[McpTool] | None = None
        with trio.move_on_after(server.start_timeout_seconds):
            tools = await client.tools()
        if tools is None:
            raise McpLost(
                f"MCP server '{server.name}' did not list its tools within {server.start_timeout_seconds:g} s "
                f"(start_timeout_seconds of its entry, {server.where})"
            )
        named = [tool for tool in tools if 0 < len(tool.name) <= LONGEST_NAME and tool.name.isprintable()]
        if len(named) < len(tools) and not live.open:
            what = f"tools of MCP server '{server.name}' are left out: {len(tools) - len(named)}, for their names"
            self._emit(live, events.Warned(code="mcp_names", message=what))
        told = ServerCatalog(
            server=_bounded(client.server),
            version=client.version,
            tools=tuple(named),
            instructions=client.instructions and client.instructions[:LONGEST_INSTRUCTIONS],
            fetched=time.time(),
        )
        live.catalog = without_secrets(told)  # it is stored on disk, and models read it
        self.catalogs.put(live.key.digest, live.catalog)

    def _changed(self, live: Live, what: str) -> None:
        if what != "tools" or not live.open:
            return
        live.changed = True
        # A turn that begins now waits for the new list instead of using the outdated one.
        if live.learned.is_set():
            live.learned = trio.Event()
        if not live.learning:
            with suppress(ShuttingDown):
                live.me.spawn(self._learn_again, live, name="tools", link=False)
                live.learning = True

    async def _learn_again(self, _me: Actor, live: Live) -> None:
        try:
            while live.changed:
                live.changed = False
                with suppress(McpError):  # the current catalog remains valid
                    await self._learn(live)
                if not live.changed:
                    live.learned.set()
                await trio.sleep(REFRESH_EVERY)
        finally:
            live.learning = False
            live.learned.set()

    async def healthy(self, live: Live) -> bool:
        """Return True if an idle server answers a ping, or if the settings tolerate that it does not."""
        check = self.settings.pings
        assert check is not None
        with trio.move_on_after(check.timeout_seconds), suppress(McpError):
            await live.client.ping()
            return True
        if check.on_failure != "Evict":
            what = f"MCP server '{live.key.server.name}' did not answer a ping within {check.timeout_seconds:g} s"
            live.me.emit(events.Warned(code="mcp_health", message=what))
        if check.on_failure != "LogOnly":
            return False
        self.tolerated += 1
        return True


def _bounded(about: Implementation) -> Implementation:
    title = about.title and about.title[:LONGEST_NAME]
    return Implementation(name=about.name[:LONGEST_NAME], version=about.version[:LONGEST_NAME], title=title)


def _uri(root: str) -> str:
    return root if "://" in root else Path(root).expanduser().absolute().as_uri()


def _warn(live: Live, log: LogMessage) -> None:
    """Emit a server's log message as a warning if its level is high enough."""
    if live.me.stream.heard and log.level not in ("debug", "info", "notice") and live.may_warn():
        text = log.data if isinstance(log.data, str) else msgspec.json.encode(log.data).decode()
        live.me.emit(events.Warned(code="mcp_log", message=f"MCP server '{live.key.server.name}': {text[:500]}"))
