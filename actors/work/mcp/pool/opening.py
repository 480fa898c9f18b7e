"""The life of one server, in the task of the actor that owns it: connect, learn, serve, end; and its record.

Each step goes to the events of the server's actor and of the run that wanted it, to its `ServerRecord`, and to the
`Catalogs`.
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
from .....protocol.mcp.model import Implementation, LogMessage, Tool
from .....supervisors import Actor, Breaker
from .....supervisors.tally import Tally
from ....io.handed_out import without_secrets
from ..auth.access import Accesses
from ..throttle import Throttle
from .catalog import Catalog, Catalogs

if TYPE_CHECKING:
    from ..client.client import McpClient
    from ..client.handshake import Abilities
    from .leases import Key

LONGEST_NAME = 256
"""Characters of a tool's name, or of what a server calls itself. A tool with a longer one, or with control characters
in it, is left out: names stand in lists, in errors and on terminals."""

LONGEST_INSTRUCTIONS = 16_000

REFRESH_EVERY = 1.0
"""Seconds between two looks at the tools of a server that says again and again that they changed."""


@final
class ServerRecord:
    """What is known of a server by its digest, however often it was started.

    Attributes:
        breaker: when it may be started.
        calls, errors: how many, of those.
        last_error: of a call, a start or an end.
    """

    def __init__(self, settings: PoolSettings, rand: random.Random) -> None:
        self.breaker = Breaker(most=settings.max_restarts, period=settings.restart_window_seconds, rand=rand.random)
        self.calls = 0
        self.errors = 0
        self.last_error = ""


@final
class Live:
    """What the pool leases.

    Attributes:
        me: the actor that owns it.
        client, catalog: set when it is open.
        since: when its start began.
        busy: uses under way; `used` is when the last one was over.
        may_warn: whether one more of its log messages may become a warning.
        changed, learning: whether its tools are other ones by now, and whether a task fetches them.
        learned: set while the catalogue is what the server has, as far as it says.
    """

    client: McpClient
    catalog: Catalog

    def __init__(self, me: Actor, key: Key, record: ServerRecord) -> None:
        self.me = me
        self.key = key
        self.record = record
        self.since = self.used = trio.current_time()
        self.busy = 0
        self.open = self.changed = self.learning = False
        self.learned = trio.Event()
        self.may_warn = Throttle()

    def begin(self) -> None:
        """Count one more use."""
        self.busy += 1

    def end(self) -> None:
        """That use is over."""
        self.busy -= 1
        self.used = trio.current_time()

    def answered(self) -> None:
        """A call has its result."""
        self.record.calls += 1
        self.record.breaker.worked()

    def failed(self, why: str) -> None:
        """A call came to nothing."""
        self.record.calls += 1
        self.record.errors += 1
        self.record.last_error = why


@final
@dataclass(kw_only=True, eq=False, repr=False)  # it holds secrets
class Opening:
    """What the pool opens servers with.

    Args:
        accesses: the tokens for those that want any.
        on_lost: gets each server that died after it was open; it must neither wait nor raise.

    Attributes:
        live: those that are open, or on their way there.
        records: what became of each, by digest.
        causes: who wanted what is starting.
        operations: how long requests took, by method.
        tolerated: failed pings that were only told.
    """

    environ: Mapping[str, str]
    abilities: Abilities
    settings: PoolSettings
    catalogs: Catalogs
    rand: random.Random
    accesses: Accesses
    on_lost: Callable[[Server], None]
    live: dict[Key, Live] = field(default_factory=dict, init=False)
    records: dict[str, ServerRecord] = field(default_factory=dict, init=False)
    causes: dict[Key, Actor] = field(default_factory=dict, init=False)
    operations: dict[str, Tally] = field(default_factory=dict, init=False)
    tolerated: int = field(default=0, init=False)

    def declared(self, server: Server) -> Abilities:
        """The abilities that we declare to this server."""
        can = self.abilities
        return msgspec.structs.replace(
            can,
            elicitation=can.elicitation and server.elicitation,
            sampling=can.sampling and server.sampling != "off",
            roots=can.roots if server.roots is None else tuple(map(_uri, server.roots)),
        )

    def record(self, digest: str) -> ServerRecord:
        """What became of the server so far."""
        record = self.records.get(digest)
        if record is None:
            record = self.records[digest] = ServerRecord(self.settings, self.rand)
        return record

    @asynccontextmanager
    async def open(self, me: Actor, key: Key) -> AsyncIterator[Live]:
        """One server, from its start to its end, in the task of the actor that owns it."""
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
                client.on_exchange = lambda method, took: self.operations.setdefault(method, Tally()).add(took)
                await self._learn(live)
                live.open = True
                live.learned.set()
                self._tell(
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

    def starts(self, me: Actor, key: Key, wait: float) -> None:
        """A server is about to be opened by its actor, after that many seconds."""
        live = self.live[key] = Live(me, key, self.record(key.digest))
        me.ref.on_end(lambda _: self.live.__delitem__(key))
        self._tell(live, events.McpServerStarting(server=key.server.name, wait=wait))

    def _ended(self, live: Live) -> None:
        lost = live.client.link.lost
        why = "" if lost is None else str(lost)
        if why:
            live.record.last_error = why
            self.on_lost(live.key.server)
        live.me.emit(events.McpServerStopped(server=live.key.server.name, error=why))

    def _failed(self, live: Live, why: str) -> None:
        live.record.last_error = why
        self._tell(live, events.McpServerFailed(server=live.key.server.name, error=why))

    def _tell(self, live: Live, data: events.EventData) -> None:
        """An event of the server's own actor, and of the run that wanted it started."""
        live.me.emit(data)
        cause = self.causes.get(live.key)
        if cause is not None and cause.end is None and cause.stream is not live.me.stream:
            cause.emit(data)

    async def _learn(self, live: Live) -> None:
        client, server = live.client, live.key.server
        tools: list[Tool] | None = None
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
            self._tell(live, events.Warned(code="mcp_names", message=what))
        told = Catalog(
            server=_bounded(client.server),
            version=client.version,
            tools=tuple(named),
            instructions=client.instructions and client.instructions[:LONGEST_INSTRUCTIONS],
            fetched=time.time(),
        )
        live.catalog = without_secrets(told)  # it is kept on disk, and models read it
        self.catalogs.put(live.key.digest, live.catalog)

    def _changed(self, live: Live, what: str) -> None:
        if what != "tools" or not live.open:
            return
        live.changed = True
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
                with suppress(McpError):  # it keeps the catalogue that it has
                    await self._learn(live)
                if not live.changed:
                    live.learned.set()
                await trio.sleep(REFRESH_EVERY)
        finally:
            live.learning = False
            live.learned.set()

    async def healthy(self, live: Live) -> bool:
        """What the pool asks about idle servers."""
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
    """What the server logs, if it is worth a warning."""
    if live.me.stream.heard and log.level not in ("debug", "info", "notice") and live.may_warn():
        text = log.data if isinstance(log.data, str) else msgspec.json.encode(log.data).decode()
        live.me.emit(events.Warned(code="mcp_log", message=f"MCP server '{live.key.server.name}': {text[:500]}"))
