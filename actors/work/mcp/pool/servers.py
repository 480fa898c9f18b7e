"""All MCP servers of a process: shared by key, each owned by one actor, started when first used and never before.

    servers = McpServers(root, config, environ=os.environ, cache=cache_dir(os.environ), ...)
    with servers.scope(run=run, agent=me.path) as scope:
        await scope.call("time", "get_current_time", {}, Caller(me=me))

The kernel's pool does the sharing and the restarts (see `supervisors.pool`), `leases` says what is shared,
`scope` who keeps what for how long, and `catalog` what a server offers while it does not run.
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
from .....supervisors.memory import memory_of
from .....supervisors.tally import Tally
from ....io.directories import socket_dir
from ..auth.access import Accesses
from ..links.link import Json
from .catalog import Catalog, Catalogs
from .leases import Key, Leases
from .opening import Live, Opening
from .scope import Scope
from .status import Counters, Inquiry, answer_inquiries, status_of

if TYPE_CHECKING:
    from ....io.vault.vault import Vault
    from ...sandbox.place import Place
    from ..client.connect import Abilities

__all__ = ["McpServers", "Scope"]

WARM_AGAIN = 30.0
"""Seconds before a `warm` server that could not be started is tried again."""


@final
class McpServers:
    """See the module.

    Args:
        owner: the servers live and end below it.
        config: what `mcp.json` says.
        environ: ours; what servers inherit.
        cache: directory for what may be deleted.
        secrets: what `${NAME}` stands for.
        vault: what `{{NAME}}` stands for; None for `secrets`.
        settings: `mcp_pool` of `config.yaml`.
        serving: whether we are here for long, so that idle servers are worth keeping.
        abilities: what we declare to servers, as far as their entries allow it.
        read_again: reads `mcp.json` anew, for `reload`.
        rand: the chance in the waiting times before restarts.
        place_of: how one is held that is started before any run wants it.

    Attributes:
        leases: what servers are leased by.
        accesses: the tokens for those that want any.
        agents, runs: all scopes: who keeps which server between calls; whole runs by their ids.
        numbers: another one each time.
        operations: how long requests to servers took, by method.
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
        abilities: Abilities,
        settings: PoolSettings | None = None,
        serving: bool = False,
        read_again: Callable[[], McpConfig] | None = None,
        rand: random.Random | None = None,
        place_of: Callable[[Server], Place | None] = lambda _: None,
    ) -> None:
        self._catalogs = Catalogs(cache / "mcp")
        self._owner = owner
        self._sockets = socket_dir(environ, cache)
        self._read_again = read_again
        settings = settings or PoolSettings()
        self.accesses = Accesses(owner, environ)
        self._opening = Opening(
            environ=environ,
            abilities=abilities,
            settings=settings,
            catalogs=self._catalogs,
            rand=rand or random.Random(),  # noqa: S311 - it spreads restarts
            accesses=self.accesses,
            on_lost=self._lost,
        )
        self.leases = Leases(
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
        self.operations = self._opening.operations
        self.agents: set[Scope] = set()
        self.runs: dict[str, Scope] = {}
        self.numbers = count()
        self._warmed: set[str] = set()
        self._place_of = place_of
        self._reloads = 0

    # --- what there is ------------------------------------------------------------------------------------

    @property
    def config(self) -> McpConfig:
        """What `mcp.json` says."""
        return self.leases.config

    def scope(self, *, run: str, agent: str) -> Scope:
        """What one agent will have leased; to be closed when the agent ends."""
        scope = Scope(self, run, agent)
        self.agents.add(scope)
        return scope

    def of_run(self, run: str) -> Scope:
        """What the whole run keeps."""
        scope = self.runs.get(run)
        if scope is None:
            scope = self.runs[run] = Scope(self, run, "")
        return scope

    def end_run(self, run: str) -> None:
        """The run has ended, and so do the servers that are shared `per-run` by it."""
        scope = self.runs.pop(run, None)
        if scope is not None:
            scope.close()

    def used(self, key: Key) -> None:
        """A use is over: while a start waits for room, no scope keeps what it does not use."""
        if self.leases.pool.crowded and not key.by:
            self._give_back({key})

    def _give_back(self, keys: set[Key]) -> None:
        """Have all leases of these keys returned that are only kept."""
        for scope in (*self.agents, *self.runs.values()):
            scope.give_back(keys)

    async def warm(self) -> None:
        """Start the servers whose entries say `warm`, all at the same time, and from now on again when one is lost.

        Those that fail tell so by events, and are tried again later.
        """
        async with trio.open_nursery() as nursery:
            for name in self.config.names:
                if _is_warm(self.config.get(name)):
                    self._warmed.add(name)
                    nursery.start_soon(self._warm_up, name)

    async def reload(self, name: str | None = None) -> list[str]:
        """Read `mcp.json` and the secrets again, and start what runs anew: one server, or all. Returns their names.

        Calls under way are waited for. A server that only one run, agent or conversation has comes back when that
        calls it again.

        Raises:
            UsageError: there is no such server, or its entry can't be used any more.
            McpError, McpLost, ConfigError: one can't be started again; the text names all.
            InvalidFile: `mcp.json` can't be read any more. Nothing has changed.
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
        again = {
            each: [scope for scope in self.agents if key in scope.kept]
            for each, key in old.items()
            if key in running and key.server.share == "pool" and each in known
        }
        for each, key in old.items():
            del self.leases.keys[each]
            self._opening.record(key.digest).breaker.forgive()
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

    # --- how it is ----------------------------------------------------------------------------------------

    @property
    def waits(self) -> Tally:
        """How long those waited who found their server not open."""
        return Tally() if (pool := self.leases.pool_in_use) is None else pool.waited

    def statistics(self) -> Counters:
        """What the pool did so far."""
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
        """Every server that can be used, in the file's order."""
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

    def _status_of(self, name: str, key: Key | None, live: Live | None) -> ServerStatus:
        if key is None:
            return status_of(self.config.get(name))
        leases = 0 if live is None else self.leases.pool.leases(live.key)
        catalog = self._catalogs.get(key.digest)
        return status_of(self.config.get(name), key.digest, self._opening.record(key.digest), catalog, live, leases)

    def catalog(self, name: str) -> Catalog | None:
        """What the server of this name was last known to offer.

        Raises:
            UsageError: there is no such server.
            ConfigError: its entry lacks a value.
        """
        return self._catalogs.get(self.leases.key(name).digest)

    # --- inside -------------------------------------------------------------------------------------------

    async def _start(self, name: str, keepers: Iterable[Scope], errors: list[CallboardError]) -> None:
        me = self._owner.actor
        try:
            await self.leases.prepare(name)
            key = self.leases.key(name)
            lease = self.leases.pool.lease(replace(key, place=self._place_of(key.server)))
            await self.leases.acquire(lease, me)
            try:
                for scope in keepers:
                    await scope.hold(name, me)
            finally:  # another reload may have taken the entry away meanwhile
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
        """Have the server that was used least recently returned, of those that are kept, but not used."""
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
        # There may be many processes to look at: in a thread, so the loop goes on.
        used = await trio.to_thread.run_sync(memory_of, [each.pid for each in found if each.pid is not None])
        servers = [msgspec.structs.replace(each, rss=used.get(each.pid or 0)) for each in found]
        return {"counters": self.statistics(), "servers": servers}


def _is_warm(server: Server) -> bool:
    return server.warm and server.share == "pool"
