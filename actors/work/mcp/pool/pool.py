"""Pool of running servers: their keys and leases, the life of each server, and the cached lists of their tools.

**Keys.** A key decides whether two servers are the same one: by everything that makes up their process or session, and
by who shares it. Its digest covers transport, command, arguments in order, environment and directory, or URL and
headers, all after `${NAME}` was resolved. It also covers the capabilities that the client declares, since some servers
offer other tools then. Names, time limits and tool lists only concern the client: entries that differ only in these
share a server. Digests appear in file names and status lines. They include secrets, which can't be recovered from them.

**Life of a server** (`ServerOpener`). The task of the actor that owns the server connects, lists its tools, serves, and
ends it. Each step is reported to the events of the server's actor and of the run that caused the start, to its
`ServerRecord`, and to the `Catalogs`.

**Catalogs.** A server need not run for its tools to be listed. One file per digest is in the cache directory, written
at each start and at each change of the server's tools. Files may be deleted at any time; an unreadable one counts as
missing. Beyond `MOST_CATALOGS` the oldest are removed: an entry whose values change with every run leaves a file each
time that is never read again.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol import events
from .....protocol.decoding import json_decoder
from .....protocol.environment import Secrets
from .....protocol.errors import (
    ActorFailed,
    CallboardError,
    McpError,
    McpLost,
    McpSignInNeeded,
    ShuttingDown,
    TooManyRestarts,
)
from .....protocol.jsonrpc import UNREADABLE
from .....protocol.mcp.config import McpConfig, PoolSettings, Server, ToolList, entry_of, resolved
from .....protocol.mcp.model import Implementation, LogMessage, McpTool
from .....supervisors import Actor, Breaker, Lease, Pool, Root
from .....supervisors.histogram import LatencyHistogram
from .....supervisors.process import ProcessStop
from ....io.atomic_write import write_whole
from ....io.directories import private_directory
from ....io.secret_redaction import without_secrets
from ..auth.access import Accesses
from ..throttle import Throttle

if TYPE_CHECKING:
    from ....io.vault.vault import Vault
    from ...sandbox.policy import SandboxPlace
    from ..client.client import McpClient
    from ..client.handshake import OfferedCapabilities


IDLE_WHEN_SERVING = 300.0
"""Seconds that a serving process keeps an idle server, unless the settings differ; other processes keep it 0 s."""

ROOM_WITHIN = 300.0
"""Seconds that a start may wait for `max_servers`. Servers shared by one agent only are not stopped to make room: an
agent that has all of them and needs another would wait for itself."""


@final
@dataclass(frozen=True, slots=True)
class PoolKey:
    """Key of the pool: a digest, and the sharer (`""` for every run, otherwise a run, an agent, a conversation).

    Attributes:
        server: how it is started; not compared.
        place: sandbox rules of its process; None for no sandbox.
    """

    server: Server = field(compare=False, repr=False)
    digest: str
    by: str = ""
    place: SandboxPlace | None = None

    def __str__(self) -> str:
        return self.server.name


@final
@dataclass(kw_only=True, eq=False, repr=False)  # it holds secrets
class Leases:
    """Keys and leases of the servers of a process.

    Attributes:
        owner: the pool runs below it.
        config: content of `mcp.json`; replaced by a reload.
        catalogs: tools of servers, running or not.
        opening: opens servers for the pool.
        secrets: values of `${NAME}`.
        vault: values of `{{NAME}}`; None for `secrets`.
        serving: True in a long-lived process, where idle servers are worth keeping.
        on_first: called before the first server is leased.
        make_room: called when a server must be returned before another can start; see `Pool`.
        keys: keys of the servers with resolved values, by name.
        pool_in_use: the pool, if it exists.
    """

    owner: Root
    config: McpConfig
    catalogs: Catalogs
    opening: ServerOpener
    secrets: Secrets
    vault: Vault | None
    settings: PoolSettings
    serving: bool
    on_first: Callable[[], None]
    make_room: Callable[[], None]
    keys: dict[str, PoolKey] = field(default_factory=dict, init=False)
    pool_in_use: Pool[PoolKey, LiveServer] | None = field(default=None, init=False)

    def key(self, name: str, by: str = "") -> PoolKey:
        """Return the key of the server with this name.

        Args:
            by: sharer of the server; "" for every run.

        Raises:
            UsageError: there is no such server, or its entry is invalid.
            ConfigError: its entry lacks a value.
            NotFetched: it needs a secret that must be fetched first; see `prepare`.
        """
        key = self.keys.get(name)
        if key is None:
            why = None if self.vault is None else self.vault.why_missing
            server = resolved(self.config.get(name), self.secrets, self.vault, why)
            key = self.keys[name] = self.guest(server)
        return PoolKey(key.server, key.digest, by) if by else key

    async def prepare(self, name: str) -> None:
        """Fetch the secrets that this server's entry needs. Raises like `key`."""
        if self.vault is not None and name not in self.keys:
            await self.vault.ready(partial(self.key, name))

    def guest(self, server: Server) -> PoolKey:
        """Return the key of a server that only one scope knows; its values are taken literally."""
        return PoolKey(server, digest_of(server, self.opening.declared(server)))

    @property
    def pool(self) -> Pool[PoolKey, LiveServer]:
        """The kernel's pool, created at first use."""
        if self.pool_in_use is None:
            settings, check = self.settings, self.settings.pings
            self.on_first()
            self.pool_in_use = Pool(
                self.owner,
                self.opening.open,
                name="mcp",
                idle_ttl=self._idle_seconds,
                max_idle=settings.max_idle_servers,
                max_open=settings.max_servers,
                make_room=self.make_room,
                health=None if check is None else self.opening.healthy,
                health_interval=math.inf if check is None else check.interval_seconds,
                stop_within=ProcessStop().within + 1.0,
                breaker=lambda key: self.opening.record(key.digest).breaker,
                on_start=self.opening.starts,
            )
        return self.pool_in_use

    async def acquire(self, lease: Lease[PoolKey, LiveServer], me: Actor) -> LiveServer:
        """Enter a lease for `me`; starts the server if it does not run.

        Raises:
            McpLost: the server failed to start, has failed too often, or found no free slot of `max_servers` in time.
            CallboardError: another error of its start; see `connect`.
        """
        key = lease.key
        cold = key not in self.pool
        if cold:
            # Events of the start go to the run that caused it, and `open` runs in the pool's task.
            self.opening.causes.setdefault(key, me)
        try:
            if cold and self.settings.max_servers is not None:
                return await self._in_time(lease)
            return await lease.acquire()
        except (ActorFailed, TooManyRestarts) as failed:
            error = _error_of(failed, key.server.name)
            if isinstance(error, McpSignInNeeded):  # a missing sign-in is not a failure of the server
                self.opening.record(key.digest).breaker.forgive()
            raise error from failed
        finally:
            if self.opening.causes.get(key) is me:
                del self.opening.causes[key]

    async def learned(self, key: PoolKey) -> None:
        """Wait for a running server's new tool list, if the server has announced a change; otherwise return at once."""
        live = self.opening.live.get(key)
        if live is not None and live.open:
            await live.learned.wait()

    async def _in_time(self, lease: Lease[PoolKey, LiveServer]) -> LiveServer:
        server = lease.key.server
        within = ROOM_WITHIN + 2 * server.start_timeout_seconds
        with trio.move_on_after(within):
            return await lease.acquire()
        raise McpLost(
            f"MCP server '{server.name}' could not be started within {within:g} s: `max_servers` of "
            f"`mcp_pool` (config.yaml) allows {self.settings.max_servers} servers at once, and all of them "
            "are in use; raise it, or try again later"
        )

    def _idle_seconds(self, key: PoolKey) -> float:
        server, usual = key.server, self.settings.idle_timeout_seconds
        if key.by:
            return 0.0  # it ends with its sharer
        if server.warm:
            return math.inf
        if server.idle_timeout_seconds is not None:
            return server.idle_timeout_seconds
        return usual if usual is not None else IDLE_WHEN_SERVING if self.serving else 0.0


def _error_of(failed: ActorFailed | TooManyRestarts, name: str) -> Exception:
    """Return the reason of a failed or refused start, as a separate error object for each waiting actor."""
    error: BaseException | None = failed
    while isinstance(error, ActorFailed):
        error = error.__cause__
    if isinstance(error, TooManyRestarts):
        return McpLost(f"MCP server '{name}' {error}")
    if not isinstance(error, CallboardError):
        return McpLost(f"MCP server '{name}' could not be started: {failed}")
    # One exception raised in several tasks would mix their tracebacks.
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin


def _directory(server: Server) -> str | None:
    """Return the working directory for the key.

    Without `cwd` the current directory counts only if it decides which program is started: `server.py` is another
    program in another directory, and the tools of one must not be cached for the other.
    """
    if server.cwd is not None:
        return str(Path(server.cwd).absolute())
    words = (server.command, *server.args) if os.sep in server.command else tuple(server.args)
    directory = str(Path.cwd())
    return directory if _names_a_file(directory, words) else None


@lru_cache(maxsize=4096)
def _names_a_file(directory: str, words: tuple[str, ...]) -> bool:
    """Return True if a word is a path below the directory.

    The first answer is valid for the lifetime of the process: a file that the server itself creates later must not
    change its key.
    """
    return any(word and not os.path.isabs(word) and os.path.exists(os.path.join(directory, word)) for word in words)  # noqa: PTH110, PTH117, PTH118 - words, most are no paths


def digest_of(server: Server, declared: OfferedCapabilities) -> str:
    """Return the SHA-256 of everything that makes up the server.

    Args:
        server: entry with resolved values.
        declared: capabilities that the client declares to it.
    """
    made_of = (
        [server.command, server.args, server.env, _directory(server), server.inherit_env]
        if server.type == "stdio"
        else [server.url, server.headers, *([] if server.oauth is True else [server.oauth])]
    )
    whole = [server.type, made_of, server.max_message_bytes, declared.elicitation, declared.sampling, server.roots]
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()


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
class LiveServer:
    """Server that the pool leases.

    Attributes:
        me: the actor that owns it.
        client, catalog: set once it is open.
        since: time when its start began, by trio's clock.
        busy: number of current uses.
        used: time when the last use ended, by trio's clock.
        open: True once it has connected and listed its tools.
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
        """Count a use of the server that begins."""
        self.busy += 1

    def end(self) -> None:
        """Count a use of the server that ends."""
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
class ServerOpener:
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
    live: dict[PoolKey, LiveServer] = field(default_factory=dict, init=False)
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
    async def open(self, me: Actor, key: PoolKey) -> AsyncIterator[LiveServer]:
        """Run one server from its start to its end, in the task of the actor that owns it.

        Yield it once it is connected and its tools are listed. Requires `starts`. Raises as `connect`.
        """
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
        live = self.live[key] = LiveServer(me, key, self.record(key.digest))
        me.ref.on_end(lambda _: self.live.__delitem__(key))
        self._emit(live, events.McpServerStarting(server=key.server.name, wait=wait))

    def _ended(self, live: LiveServer) -> None:
        lost = live.client.link.lost
        why = "" if lost is None else str(lost)
        if why:
            live.record.last_error = why
            self.on_lost(live.key.server)
        live.me.emit(events.McpServerStopped(server=live.key.server.name, error=why))

    def _failed(self, live: LiveServer, why: str) -> None:
        live.record.last_error = why
        self._emit(live, events.McpServerFailed(server=live.key.server.name, error=why))

    def _emit(self, live: LiveServer, data: events.EventData) -> None:
        """Emit an event to the server's own actor, and to the run that caused its start."""
        live.me.emit(data)
        cause = self.causes.get(live.key)
        # If the server's actor belongs to the run, the run's stream already has the event.
        if cause is not None and cause.end is None and cause.stream is not live.me.stream:
            cause.emit(data)

    async def _learn(self, live: LiveServer) -> None:
        client, server = live.client, live.key.server
        tools: list[McpTool] | None = None
        with trio.move_on_after(server.start_timeout_seconds):
            tools = await client.tools()
        if tools is None:
            raise McpLost(
                f"MCP server '{server.name}' did not list its tools within {server.start_timeout_seconds:g} "
                f"s (raise `start_timeout_seconds` of {entry_of(server)})"
            )
        named = [tool for tool in tools if 0 < len(tool.name) <= LONGEST_NAME and tool.name.isprintable()]
        if len(named) < len(tools) and not live.open:
            what = (
                f"{len(tools) - len(named)} tools of MCP server '{server.name}' are ignored: their names are not valid"
            )
            self._emit(live, events.Warned(code="mcp_names", message=what))
        catalog = ServerCatalog(
            server=_bounded(client.server),
            version=client.version,
            tools=tuple(named),
            instructions=client.instructions and client.instructions[:LONGEST_INSTRUCTIONS],
            fetched=time.time(),
        )
        live.catalog = without_secrets(catalog)  # it is stored on disk, and models read it
        self.catalogs.put(live.key.digest, live.catalog)

    def _changed(self, live: LiveServer, what: str) -> None:
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

    async def _learn_again(self, _me: Actor, live: LiveServer) -> None:
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

    async def healthy(self, live: LiveServer) -> bool:
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


def _warn(live: LiveServer, log: LogMessage) -> None:
    """Emit a server's log message as a warning if its level is high enough."""
    if live.me.stream.heard and log.level not in ("debug", "info", "notice") and live.may_warn():
        text = log.data if isinstance(log.data, str) else msgspec.json.encode(log.data).decode()
        live.me.emit(events.Warned(code="mcp_log", message=f"MCP server '{live.key.server.name}': {text[:500]}"))


MAX_CATALOG_BYTES = 8 * 1024 * 1024
"""Bytes of a catalog at most; a larger one is not stored on disk."""


MOST_CATALOGS = 500
"""Catalogs on disk at most."""


class ServerCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a server and its tools. Immutable: a change of the tools makes a new one.

    Attributes:
        server: name and version that the server reports.
        version: protocol revision of the connection.
        tools: tools of the server.
        instructions: instructions of the server for its use.
        fetched: time of the request, in seconds since 1970.
    """

    server: Implementation
    version: str
    tools: tuple[McpTool, ...] = ()
    instructions: str | None = None
    fetched: float = 0.0

    def within(self, admitted: ToolList) -> ServerCatalog:
        """Return the catalog without the tools that these lists exclude."""
        if admitted.allow is None and not admitted.deny:
            return self
        return msgspec.structs.replace(self, tools=tuple(tool for tool in self.tools if admitted.admits(tool.name)))


@final
class Catalogs:
    """Catalogs by digest, in memory and in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, ServerCatalog] = {}

    def get(self, digest: str) -> ServerCatalog | None:
        """Return the catalog in memory, otherwise the one on disk; None if that is missing, invalid or too large."""
        if digest not in self._known:
            with suppress(OSError, *UNREADABLE):
                path = self._file(digest)
                if path.stat().st_size <= MAX_CATALOG_BYTES:
                    self._known[digest] = _DECODER.decode(path.read_bytes())
        return self._known.get(digest)

    def put(self, digest: str, catalog: ServerCatalog) -> None:
        """Store a catalog in memory; also on disk, unless it is too large or the disk refuses it."""
        self._known[digest] = catalog
        data = msgspec.json.encode(catalog)
        if len(data) > MAX_CATALOG_BYTES:
            return
        path = self._file(digest)
        with suppress(OSError):
            private_directory(self._directory)
            is_new = not path.exists()
            write_whole(path, data, private=True)
            # Only a new file can exceed the limit.
            if is_new:
                self._remove_the_oldest()

    def _remove_the_oldest(self) -> None:
        """Remove the files that were not written for the longest time, partial files of killed processes included."""
        dated: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            with suppress(OSError):  # another process may remove it concurrently
                dated.append((path.stat().st_mtime, path))
        for _, path in sorted(dated, reverse=True)[MOST_CATALOGS:]:
            path.unlink(missing_ok=True)

    def _file(self, digest: str) -> Path:
        return self._directory / f"{digest}.json"


_DECODER = json_decoder(ServerCatalog)
