"""All MCP servers of a process: shared by key, one actor each, started at first use.

    servers = McpServers(root, config, environ=os.environ, cache=cache_dir(os.environ), ...)
    with servers.scope(run=run, agent=me.path) as scope:
        await scope.call("time", "get_current_time", {}, CallOrigin(me=me))

The kernel's pool shares and restarts servers (see `supervisors.pool`). `pool` defines the keys and runs each server,
`ServerScope` decides which agent keeps a server for how long, and `Catalogs` stores the tools of servers that do not
run.

**Scopes.** The leases of one agent are acquired at its first call, kept until it ends, and always returned. Each call
has a lease of its own. The scope keeps the lease of the first finished call, so that the server still runs for the next
call, however short the idle time is. The server's `share` decides which scope keeps it:

    pool, per-agent    the agent's scope
    per-run            the run's scope, which ends with the run
    never              the conversation's scope (`ServerScope.inner`)

A lease that is only kept blocks nothing. It is returned when its server is reloaded, or when another server needs the
slot. Leaving a scope is no checkpoint and may happen in any task, even during calls.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol.control.resources import ServerStatus
from .....protocol.environment import Secrets
from .....protocol.errors import (
    CallboardError,
    ConfigError,
    InvalidFile,
    McpError,
    McpLost,
    McpUnsent,
    ShuttingDown,
    UsageError,
)
from .....protocol.mcp.config import McpConfig, PoolSettings, Server, Share
from .....protocol.problems import errors_in
from .....supervisors import Actor, Lease, Root
from .....supervisors.histogram import LatencyHistogram
from .....supervisors.memory import memory_of
from ....io.directories import socket_dir
from ...sandbox.run_sandbox import sandboxed_server
from ..auth.access import Accesses
from ..links.link import CallOrigin, Json
from .pool import Catalogs, Leases, LiveServer, PoolKey, ServerCatalog, ServerOpener
from .status import Counters, Inquiry, answer_inquiries, status_of

if TYPE_CHECKING:
    from ....io.vault.vault import Vault
    from ...sandbox.policy import SandboxPlace
    from ..auth.access import ServerAccess
    from ..client.client import McpClient
    from ..client.connect import OfferedCapabilities

__all__ = ["McpServers", "ServerScope"]

WARM_AGAIN = 30.0
"""Seconds before a `warm` server that could not be started is tried again."""


@final
class McpServers:
    """MCP servers of a process.

    Args:
        owner: the servers run below it.
        config: content of `mcp.json`.
        environ: environment of Callboard, which servers inherit.
        cache: directory for files that may be deleted.
        secrets: values of `${NAME}`.
        vault: values of `{{NAME}}`; None for `secrets`.
        settings: `mcp_pool` of `config.yaml`.
        serving: True in a long-lived process, where idle servers are worth keeping.
        abilities: capabilities that the client declares, as far as a server's entry allows.
        read_again: reads `mcp.json` again, for `reload`.
        rand: source of the jitter of restart delays.
        place_of: returns the sandbox rules of a server that is started before any run needs it.

    Attributes:
        leases: keys and leases.
        accesses: tokens for servers that require them.
        agents, runs: scopes of agents, and scopes of whole runs by run id.
        numbers: counter of scopes.
        operations: durations of requests to servers, by method.
    """

    def __init__(
        self,
        owner: Root,
        config: McpConfig,
        *,
        environ: Mapping[str, str],
        cache: Path,
        secrets: Secrets,
        vault: Vault | None = None,
        abilities: OfferedCapabilities,
        settings: PoolSettings | None = None,
        serving: bool = False,
        read_again: Callable[[], McpConfig] | None = None,
        rand: random.Random | None = None,
        place_of: Callable[[Server], SandboxPlace | None] = lambda _: None,
    ) -> None:
        self._catalogs = Catalogs(cache / "mcp")
        self._owner = owner
        self._sockets = socket_dir(environ, cache)
        self._read_again = read_again
        settings = settings or PoolSettings()
        self.accesses: Accesses = Accesses(owner, environ)
        self._opening = ServerOpener(
            environ=environ,
            abilities=abilities,
            settings=settings,
            catalogs=self._catalogs,
            rand=rand or random.Random(),  # noqa: S311 - it spreads restarts
            accesses=self.accesses,
            on_lost=self._lost,
        )
        self.leases: Leases = Leases(
            owner=owner,
            config=config,
            catalogs=self._catalogs,
            opening=self._opening,
            secrets=secrets,
            vault=vault,
            settings=settings,
            serving=serving,
            on_first=self._may_be_asked,
            make_room=self._make_room,
        )
        self.operations: dict[str, LatencyHistogram] = self._opening.operations
        self.agents: set[ServerScope] = set()
        self.runs: dict[str, ServerScope] = {}
        self.numbers: count[int] = count()
        self._warmed: set[str] = set()
        self._place_of = place_of
        self._reloads = 0

    # --- servers and scopes -----------------------------------------------------------------------------

    @property
    def config(self) -> McpConfig:
        """Content of `mcp.json`."""
        return self.leases.config

    def scope(self, *, run: str, agent: str) -> ServerScope:
        """Return a scope for one agent's leases; close it when the agent ends."""
        scope = ServerScope(self, run, agent)
        self.agents.add(scope)
        return scope

    def of_run(self, run: str) -> ServerScope:
        """Return the scope of a whole run, created at first use; `end_run` closes it."""
        scope = self.runs.get(run)
        if scope is None:
            scope = self.runs[run] = ServerScope(self, run, "")
        return scope

    def end_run(self, run: str) -> None:
        """Close the scope of a finished run, which ends the servers that it shares `per-run`."""
        scope = self.runs.pop(run, None)
        if scope is not None:
            scope.close()

    def used(self, key: PoolKey) -> None:
        """Release all kept leases of a server that every run shares, after a use, if a start waits for a slot."""
        if self.leases.pool.crowded and not key.by:
            self._give_back({key})

    def _give_back(self, keys: set[PoolKey]) -> None:
        """Release all kept leases with these keys."""
        for scope in (*self.agents, *self.runs.values()):
            scope.give_back(keys)

    async def warm(self) -> None:
        """Start all servers with `warm` concurrently; return after one attempt for each.

        A server that failed is started again in the background after `WARM_AGAIN` seconds, one that is lost at once.
        Failures are reported by events. Servers that are not shared by every run are never warm.
        """
        async with trio.open_nursery() as nursery:
            for name in self.config.names:
                if _is_warm(self.config.get(name)):
                    self._warmed.add(name)
                    nursery.start_soon(self._warm_up, name)

    async def reload(self, name: str | None = None) -> list[str]:
        """Read `mcp.json` and the secrets again, restart one running server or all, and return their names.

        A server with `share: pool` is started again before this returns, once its active calls have ended. Any other
        server restarts at its next call. Servers that do not run are not started.

        Raises:
            UsageError: there is no such server, or its entry is no longer valid.
            McpError, McpLost, ConfigError: a server can't be started again; the text names all of them.
            InvalidFile: `mcp.json` is no longer readable. Nothing has changed.
        """
        if self._read_again is not None:
            config = self._read_again()
            if not config.servers and (problems := errors_in(config.problems)):
                raise InvalidFile(f"the MCP servers were not reloaded: {problems[0]}", problems)
            self.leases.config = config
        if name is not None:
            self.config.get(name)
        self._reloads += 1
        old = {each: key for each, key in self.leases.keys.items() if name in (None, each)}
        digests = {key.digest for key in old.values()}
        running = {live.key for live in self._opening.live.values() if live.open and live.key.digest in digests}
        known = {*self.config.names, *self.config.broken}
        # Only servers shared by the pool restart now, with the same keepers; others restart at their next use.
        again = {
            each: [scope for scope in self.agents if key in scope.kept]
            for each, key in old.items()
            if key in running and key.server.share == "pool" and each in known
        }
        for each, key in old.items():
            del self.leases.keys[each]
            # The new entry may be correct, so earlier failures must not delay its start.
            self._opening.record(key.digest).breaker.forgive()
        # A lease delays the retirement of its server, so unused ones are released first.
        self._give_back(running)
        for key in running:
            self.leases.pool.retire(key)
        errors: list[CallboardError] = []
        async with trio.open_nursery() as nursery:
            for each, keepers in again.items():
                nursery.start_soon(self._start, each, keepers, errors)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise McpLost("\n".join(map(str, errors)))
        return sorted({key.server.name for key in running})

    # --- status -----------------------------------------------------------------------------------------

    @property
    def waits(self) -> LatencyHistogram:
        """Waiting times of callers whose server was not open."""
        return LatencyHistogram() if (pool := self.leases.pool_in_use) is None else pool.waited

    def statistics(self) -> Counters:
        """Return the pool's counters."""
        if self.leases.pool_in_use is None:
            return Counters()
        pool = self.leases.pool_in_use.statistics
        return Counters(
            spawned=pool.opened,
            acquire_active_hit=pool.hits - pool.revived,
            acquire_idle_hit=pool.revived,
            acquire_miss=pool.misses,
            acquire_seconds=pool.seconds_waited,
            idle_evicted=pool.evicted_idle,
            lru_evicted=pool.evicted_lru,
            health_ok=pool.health_ok - self._opening.tolerated,
            health_failed=pool.health_failed + self._opening.tolerated,
            failed_starts=pool.failed_starts,
            lost=pool.lost,
            restarts=sum(record.breaker.restarts for record in self._opening.records.values()),
            reloads=self._reloads,
        )

    def status(self) -> list[ServerStatus]:
        """Return the status of every usable server, in the file's order; several for one with several instances."""
        found: list[ServerStatus] = []
        for name in self.config.names:
            key = self.leases.keys.get(name)
            alone = self.config.get(name).share != "pool"
            lives = [
                live
                for live in self._opening.live.values()
                if key is not None and live.key.digest == key.digest and bool(live.key.by) == alone
            ]
            found += [self._status_of(name, key, live) for live in lives or (None,)]
        return found

    def _status_of(self, name: str, key: PoolKey | None, live: LiveServer | None) -> ServerStatus:
        if key is None:
            return status_of(self.config.get(name))
        leases = 0 if live is None else self.leases.pool.leases(live.key)
        catalog = self._catalogs.get(key.digest)
        return status_of(self.config.get(name), key.digest, self._opening.record(key.digest), catalog, live, leases)

    def catalog(self, name: str) -> ServerCatalog | None:
        """Return the server's catalog from the cache; None if it is not in there. Never starts the server.

        Raises:
            UsageError: there is no such server.
            ConfigError: its entry lacks a value.
        """
        return self._catalogs.get(self.leases.key(name).digest)

    # --- inside -------------------------------------------------------------------------------------------

    async def _start(self, name: str, keepers: Iterable[ServerScope], errors: list[CallboardError]) -> None:
        me = self._owner.actor
        try:
            await self.leases.prepare(name)
            key = self.leases.key(name)
            lease = self.leases.pool.lease(replace(key, place=self._place_of(key.server)))
            await self.leases.acquire(lease, me)
            try:
                for scope in keepers:
                    await scope.hold(name, me)
            finally:  # another reload may have removed the entry meanwhile
                lease.release()
        except CallboardError as error:
            errors.append(error)

    async def _warm_up(self, name: str) -> None:
        errors: list[CallboardError] = []
        await self._start(name, (), errors)
        if errors:
            self._soon_again(name, WARM_AGAIN)

    def _lost(self, server: Server) -> None:
        if server.name in self._warmed:
            self._soon_again(server.name, 0.0)

    def _soon_again(self, name: str, seconds: float) -> None:
        with suppress(ShuttingDown):
            self._owner.spawn(self._again, name, seconds, name="warm", link=False)

    async def _again(self, _me: Actor, name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        if name in self.config.names and _is_warm(self.config.get(name)):
            await self._warm_up(name)

    def _may_be_asked(self) -> None:
        self._owner.spawn(answer_inquiries, self._sockets, self._answer, name="mcp-status", link=False)

    def _make_room(self) -> None:
        """Release the kept leases of the least recently used server that is not in use."""
        unused = [
            live
            for live in self._opening.live.values()
            if live.open and not live.busy and not live.key.by and self.leases.pool.leases(live.key)
        ]
        if unused:
            self._give_back({min(unused, key=lambda live: live.used).key})

    async def _answer(self, request: Inquiry) -> dict[str, Json]:
        if request.ask == "reload":
            return {"reloaded": await self.reload(request.server)}
        found = self.status()
        # In a thread, so that the event loop continues: there may be many processes.
        used = await trio.to_thread.run_sync(memory_of, [each.pid for each in found if each.pid is not None])
        servers = [msgspec.structs.replace(each, rss=used.get(each.pid or 0)) for each in found]
        return {"counters": self.statistics(), "servers": servers}


def _is_warm(server: Server) -> bool:
    return server.warm and server.share == "pool"


NOT_AGAIN = "The call was not repeated, because it may have done its work. The next call restarts the server."

TRIES = 3
"""Attempts of a call that the server has not begun."""

LEARNED_WITHIN = 2.0
"""Seconds that a turn waits for the list of a server that has announced a change of its tools."""


@final
class ServerScope(AbstractContextManager["ServerScope"]):
    """Leases of one agent, run or conversation; created by `McpServers`. `kept` has the leases kept between calls."""

    def __init__(
        self, servers: McpServers, run: str, agent: str, conversation: str = "", outer: ServerScope | None = None
    ) -> None:
        self._servers = servers
        self._leases = servers.leases
        self._run = run
        self._agent = agent
        self._outer = outer
        self._conversation = f"{run} {conversation or agent} {next(servers.numbers)}"
        self._inner: set[ServerScope] = set()
        self._guests: dict[str, PoolKey] = {}
        self.kept: dict[PoolKey, Lease[PoolKey, LiveServer]] = {}
        self._closed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the scopes of its conversations, and release all kept leases. Calls return their own at their end."""
        self._closed = True
        for scope in tuple(self._inner):
            scope.close()
        if self._outer is not None:
            self._outer._inner.discard(self)  # noqa: SLF001 - the same class
        self._servers.agents.discard(self)
        self.give_back(None)

    def inner(self, conversation: str) -> ServerScope:
        """Return a scope for one conversation of this agent; it keeps the leases of servers with `share: never`."""
        scope = ServerScope(self._servers, self._run, self._agent, conversation, self)
        self._inner.add(scope)
        return scope

    def bring(self, server: Server) -> Server:
        """Add a server that `mcp.json` does not name, for the lifetime of this scope and its inner scopes.

        Return the server as added. Its values are taken literally. It gets a number at the end of its name if
        `mcp.json`, or a different server added before, has the name. The user's sign-ins do not apply to it, since
        another person may have added it.
        """
        server = msgspec.structs.replace(server, oauth=False)
        key = self._leases.guest(server)
        name, number = server.name, 1
        # Ends at a free name, or at the same server added before.
        while (known := self._guests.get(name)) != key and (known or name in self._leases.config.servers):
            number += 1
            name = f"{server.name}-{number}"
        if known is None:
            self._guests[name] = key = self._leases.guest(msgspec.structs.replace(server, name=name))
            return key.server
        return known.server

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Json],
        caller: CallOrigin,
        *,
        on_open: Callable[[], None] | None = None,
    ) -> dict[str, Json]:
        """Return the tool's raw result. Starts the server if necessary. The caller limits the time of start and call.

        A call that the server has not begun is sent again, up to `TRIES` times in total.

        Args:
            on_open: called once, when the server is open and before the call is sent.

        Raises:
            McpError: the server refused the call, or its answer is invalid.
            McpLost: it could not be started, or died. A call that may have begun is never repeated.
            ConfigError: its entry lacks a value.
            UsageError: there is no such server.
        """
        why: McpUnsent | None = None
        for _ in range(TRIES):
            # Each call holds a lease, so that a reload waits for it.
            lease, live = await self._lease(server, caller.me)
            if on_open is not None:
                on_open()
                on_open = None
            live.begin()
            try:
                result = await live.client.call_tool(tool, arguments, caller)
                live.answered()
                return result
            # Not begun, so it is safe to repeat, with a server that the pool starts again.
            except McpUnsent as error:
                why = error
            except McpLost as lost:
                live.failed(str(lost))
                raise McpLost(f"{lost}\n{NOT_AGAIN}") from lost
            except McpError as error:
                live.failed(str(error))
                raise
            finally:
                live.end()
                # A link may break after the answer; its server must not be leased again.
                if (end := live.client.link.lost) is not None:
                    lease.report_lost(end)
                self._keep(lease)
        raise McpLost(f"'{tool}' could not be started in {TRIES} attempts: {why}") from why

    async def catalog(self, server: str, me: Actor) -> ServerCatalog:
        """Return the server's catalog from the cache, without tools that its entry excludes.

        Starts the server only if its catalog is in no cache.

        Raises:
            McpError, McpLost, ConfigError, UsageError: as `call`.
        """
        await self._prepare(server)
        key = self._key(server)
        catalog = self._leases.catalogs.get(key.digest)
        if catalog is None:
            catalog = (await self.hold(server, me)).catalog
        guest = self._guest(server)
        return catalog.within(guest.server.tools if guest is not None else self._leases.config.get(server).tools)

    async def learned(self, server: str) -> ServerCatalog | None:
        """Return the server's catalog without starting it; None if there is none, or its entry is invalid.

        If a running server has announced a change, wait up to `LEARNED_WITHIN` seconds for the new one. Tools that the
        entry excludes are included.
        """
        try:
            await self._prepare(server)
            key = self._key(server)
        except (ConfigError, UsageError):
            return None
        with trio.move_on_after(LEARNED_WITHIN):
            await self._leases.learned(key)
        return self._leases.catalogs.get(key.digest)

    @asynccontextmanager
    async def client(self, server: str, me: Actor) -> AsyncIterator[McpClient]:
        """Yield the connection, for resources and prompts. The lease lasts for the block.

        Raises:
            McpError, McpLost, ConfigError, UsageError: as `call`.
        """
        lease, live = await self._lease(server, me)
        live.begin()
        try:
            yield live.client
        finally:
            live.end()
            self._keep(lease)

    async def hold(self, server: str, me: Actor) -> LiveServer:
        """Lease the server, starting it if necessary, and keep the lease. Raises as `call` when a start fails."""
        lease, live = await self._lease(server, me)
        self._keep(lease)
        return live

    def way_in(self, server: str) -> tuple[Server, ServerAccess] | None:
        """Return the server and its tokens if the user may be asked to sign in; None otherwise.

        None if no user is attached, if the server uses no tokens, and in a serving process: it would ask its callers,
        whose accounts must not serve others.
        """
        key = self._key(server)
        if self._leases.serving or not self._leases.owner.questions.attended:
            return None
        access = self._servers.accesses.of(key.server)
        return None if access is None else (key.server, access)

    def give_back(self, keys: set[PoolKey] | None) -> None:
        """Release the kept leases with these keys, or all for None, in inner scopes too."""
        for scope in self._inner:
            scope.give_back(keys)
        for key in [key for key in self.kept if keys is None or key in keys]:
            self.kept.pop(key).release()

    async def _prepare(self, server: str) -> None:
        """Fetch the secrets that its entry needs; a guest's values are already resolved."""
        if server not in self._leases.keys and self._guest(server) is None:
            await self._leases.prepare(server)

    async def _lease(self, server: str, me: Actor) -> tuple[Lease[PoolKey, LiveServer], LiveServer]:
        await self._prepare(server)
        key = self._key(server)
        if key.server.share == "per-run":
            # Creates the run's scope, which keeps the lease afterwards (`_home`).
            self._servers.of_run(self._run)
        lease = self._leases.pool.lease(key)
        return lease, await self._leases.acquire(lease, me)

    def _keep(self, lease: Lease[PoolKey, LiveServer]) -> None:
        """Give the lease of a finished use to the scope that shares the server, unless that has one."""
        home = self._home(lease.key.server.share)
        if home is None or home._closed or lease.stale:  # noqa: SLF001 - the same class
            lease.release()
        else:
            held = home.kept.setdefault(lease.key, lease)
            if held is not lease:
                # The server of a stale lease is ending, so the newer lease replaces it.
                if held.stale:
                    home.kept[lease.key] = lease
                    held.release()
                else:
                    lease.release()
        self._servers.used(lease.key)

    def _key(self, server: str) -> PoolKey:
        guest = self._guest(server)
        share = guest.server.share if guest is not None else self._leases.config.get(server).share
        shared_by = {"per-run": self._run, "per-agent": f"{self._run} {self._agent}", "never": self._conversation}
        by = shared_by.get(share, "")
        key = self._leases.key(server, by) if guest is None else PoolKey(guest.server, guest.digest, by)
        place = sandboxed_server(server, key.server.words if guest is None else ())
        return key if place is None else replace(key, place=place)

    def _guest(self, server: str) -> PoolKey | None:
        key = self._guests.get(server)
        return self._outer._guest(server) if key is None and self._outer else key  # noqa: SLF001 - the same class

    def _home(self, share: Share) -> ServerScope | None:
        if share == "per-run":
            return self._servers.runs.get(self._run)
        return self if share == "never" or self._outer is None else self._outer
