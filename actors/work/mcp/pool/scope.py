"""Leases of one agent: acquired at its first call, kept until it ends, always returned.

    with servers.scope(run="run-7f3a01bc", agent=me.path) as scope:
        origin = CallOrigin(me=me)
        result = await scope.call("time", "get_current_time", {"timezone": "Asia/Tokyo"}, origin)

Each call has a lease of its own. The scope keeps the lease of the first finished call, so that the server still runs
for the next call, however short the idle time is. The server's `share` decides which scope keeps it:

    pool, per-agent    the agent's scope
    per-run            the run's scope, which ends with the run
    never              the conversation's scope (`ServerScope.inner`)

A lease that is only kept blocks nothing. It is returned when its server is reloaded, or when another server needs the
slot. Leaving a scope is no checkpoint and may happen in any task, even during calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol.errors import ConfigError, McpError, McpLost, McpUnsent, UsageError
from .....protocol.mcp.config import Server, Share
from .....supervisors import Actor, Lease
from ...sandbox.current import sandboxed_server
from ..links.link import CallOrigin, Json
from .catalog import ServerCatalog
from .leases import PoolKey

if TYPE_CHECKING:
    from ..auth.access import ServerAccess
    from ..client.client import McpClient
    from .opening import Live
    from .servers import McpServers

NOT_AGAIN = "The call was not made again, since it may have done its work. The next one starts the server anew."

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
        self.kept: dict[PoolKey, Lease[PoolKey, Live]] = {}
        self._closed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release all leases, and close the scopes of its conversations."""
        self._closed = True
        for scope in tuple(self._inner):
            scope.close()
        if self._outer is not None:
            self._outer._inner.discard(self)  # noqa: SLF001 - the same class
        self._servers.agents.discard(self)
        self.give_back(None)

    def inner(self, conversation: str) -> ServerScope:
        """Return a scope for one conversation of this agent, for servers that are not shared."""
        scope = ServerScope(self._servers, self._run, self._agent, conversation, self)
        self._inner.add(scope)
        return scope

    def bring(self, server: Server) -> Server:
        """Add a server that `mcp.json` does not name, for the lifetime of this scope and its inner scopes.

        Its values are taken literally. It gets another name if a different server already has its name. The user's
        sign-ins do not apply to it, since another person may have added it.
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

        Args:
            on_open: called once, when the server is open and before the call is sent.

        Raises:
            McpError: the server refused the call.
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
        raise McpLost(f"'{tool}' was not begun, and was tried {TRIES} times: {why}") from why

    async def catalog(self, server: str, me: Actor) -> ServerCatalog:
        """Return the server's catalog from the cache. Starts the server only if it is in no cache.

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
        """Return the server's current catalog without starting it; None if there is none, or its entry is invalid."""
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

    async def hold(self, server: str, me: Actor) -> Live:
        """Lease the server and keep the lease."""
        lease, live = await self._lease(server, me)
        self._keep(lease)
        return live

    def way_in(self, server: str) -> tuple[Server, ServerAccess] | None:
        """Return the server and its tokens if the user may be asked to sign in; None otherwise.

        In a serving process the callers would be asked, whose accounts must not serve others.
        """
        key = self._key(server)
        if self._leases.serving or not self._leases.owner.questions.attended:
            return None
        access = self._servers.accesses.of(key.server)
        return None if access is None else (key.server, access)

    def give_back(self, keys: set[PoolKey] | None) -> None:
        """Release the kept leases with these keys, or all kept leases, in inner scopes too."""
        for scope in self._inner:
            scope.give_back(keys)
        for key in [key for key in self.kept if keys is None or key in keys]:
            self.kept.pop(key).release()

    async def _prepare(self, server: str) -> None:
        """Fetch the secrets that its entry needs; a guest's values are already resolved."""
        if server not in self._leases.keys and self._guest(server) is None:
            await self._leases.prepare(server)

    async def _lease(self, server: str, me: Actor) -> tuple[Lease[PoolKey, Live], Live]:
        await self._prepare(server)
        key = self._key(server)
        if key.server.share == "per-run":
            # Creates the run's scope, which keeps the lease afterwards (`_home`).
            self._servers.of_run(self._run)
        lease = self._leases.pool.lease(key)
        return lease, await self._leases.acquire(lease, me)

    def _keep(self, lease: Lease[PoolKey, Live]) -> None:
        """Give the lease of a finished use to the scope that shares the server, unless that has one."""
        home = self._home(lease.key.server.share)
        if home is None or home._closed or lease.stale:  # noqa: SLF001 - the same class
            lease.release()
        else:
            kept = home.kept.setdefault(lease.key, lease)
            if kept is not lease:
                # The server of a stale lease is ending, so the newer lease replaces it.
                if kept.stale:
                    home.kept[lease.key] = lease
                    kept.release()
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
