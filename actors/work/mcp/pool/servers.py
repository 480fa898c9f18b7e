"""All MCP servers of a process: shared by key, one actor each, started at first use.

    servers = McpServers(root, config, environ=os.environ, cache=cache_dir(os.environ), ...)
    with servers.scope(run=run, agent=me.path) as scope:
        await scope.call("time", "get_current_time", {}, CallOrigin(me=me))

The kernel's pool shares and restarts servers (see `supervisors.pool`). `leases` defines the keys, `scope` decides which
agent keeps a server for how long, and `catalog` stores the tools of servers that do not run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol.errors import CallboardError, InvalidFile, McpLost, ShuttingDown
from .....protocol.mcp.config import McpConfig, PoolSettings, Server
from .....protocol.mcp.status import ServerStatus
from .....protocol.problems import errors_in
from .....protocol.references import Secrets
from .....supervisors import Actor, Root
from .....supervisors.histogram import LatencyHistogram
from .....supervisors.memory import memory_of
from ....io.directories import socket_dir
from ..auth.access import Accesses
from ..links.link import Json
from .catalog import Catalogs, ServerCatalog
from .leases import Leases, PoolKey
from .opening import Live, Opening
from .scope import ServerScope
from .status import Counters, Inquiry, answer_inquiries, status_of

if TYPE_CHECKING:
    from ....io.vault.vault import Vault
    from ...sandbox.place import SandboxPlace
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
        self._opening = Opening(
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
        """Return the scope of a whole run."""
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
        """Handle the end of a use: while a start waits for a slot, no scope keeps an unused server."""
        if self.leases.pool.crowded and not key.by:
            self._give_back({key})

    def _give_back(self, keys: set[PoolKey]) -> None:
        """Release all kept leases with these keys."""
        for scope in (*self.agents, *self.runs.values()):
            scope.give_back(keys)

    async def warm(self) -> None:
        """Start all servers with `warm` concurrently, and restart each when it is lost.

        Failures are reported by events, and tried again later.
        """
        async with trio.open_nursery() as nursery:
            for name in self.config.names:
                if _is_warm(self.config.get(name)):
                    self._warmed.add(name)
                    nursery.start_soon(self._warm_up, name)

    async def reload(self, name: str | None = None) -> list[str]:
        """Read `mcp.json` and the secrets again, restart one running server or all, and return their names.

        The reload waits for active calls. A server that only one run, agent or conversation shares restarts at its next
        call.

        Raises:
            UsageError: there is no such server, or its entry is no longer valid.
            McpError, McpLost, ConfigError: a server can't be started again; the text names all of them.
            InvalidFile: `mcp.json` is no longer readable. Nothing has changed.
        """
        if self._read_again is not None:
            config = self._read_again()
            if not config.servers and (problems := errors_in(config.problems)):
                raise InvalidFile(f"nothing was reloaded: {problems[0]}", problems)
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
        """Return the status of every usable server, in the file's order."""
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

    def _status_of(self, name: str, key: PoolKey | None, live: Live | None) -> ServerStatus:
        if key is None:
            return status_of(self.config.get(name))
        leases = 0 if live is None else self.leases.pool.leases(live.key)
        catalog = self._catalogs.get(key.digest)
        return status_of(self.config.get(name), key.digest, self._opening.record(key.digest), catalog, live, leases)

    def catalog(self, name: str) -> ServerCatalog | None:
        """Return the server's catalog from the cache.

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
