"""An agent's leases of servers: taken at its first call, kept to its end, always returned.

    with servers.scope(run="run-7f3a01bc", agent=me.path) as scope:
        result = await scope.call("time", "get_current_time", {"timezone": "Asia/Tokyo"}, Caller(me=me))

Each call has a lease of its own. The first of them that is done leaves its lease behind, so that the server is still
there for the next call, however short idle servers live. Who keeps it depends on the server's `share`:

    pool, per-agent    the agent's scope
    per-run            the run's, which ends with it
    never              the conversation's (`Scope.inner`)

A lease that is only kept blocks nothing: it is returned when its server is reloaded, or when another server needs
the room. Leaving a scope is no checkpoint and may happen in any task, also while calls are under way.
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
from ..links.link import Caller, Json
from .catalog import Catalog
from .leases import Key

if TYPE_CHECKING:
    from ..auth.access import Access
    from ..client.client import McpClient
    from .opening import Live
    from .servers import McpServers

NOT_AGAIN = "The call was not made again, since it may have done its work. The next one starts the server anew."

TRIES = 3
"""Times that a call is made which the server has not begun with."""

LEARNED_WITHIN = 2.0
"""Seconds that a turn waits for the list of a server which says that its tools have changed."""


@final
class Scope(AbstractContextManager["Scope"]):
    """See the module. Made by `McpServers`. `kept` is what it has leased between calls, too."""

    def __init__(
        self, servers: McpServers, run: str, agent: str, conversation: str = "", outer: Scope | None = None
    ) -> None:
        self._servers = servers
        self._leases = servers.leases
        self._run = run
        self._agent = agent
        self._outer = outer
        self._conversation = f"{run} {conversation or agent} {next(servers.numbers)}"
        self._inner: set[Scope] = set()
        self._guests: dict[str, Key] = {}
        self.kept: dict[Key, Lease[Key, Live]] = {}
        self._closed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give all back, and what the conversations in it have."""
        self._closed = True
        for scope in tuple(self._inner):
            scope.close()
        if self._outer is not None:
            self._outer._inner.discard(self)  # noqa: SLF001 - the same class
        self._servers.agents.discard(self)
        self.give_back(None)

    def inner(self, conversation: str) -> Scope:
        """One conversation of this agent, for servers that are not shared."""
        scope = Scope(self._servers, self._run, self._agent, conversation, self)
        self._inner.add(scope)
        return scope

    def bring(self, server: Server) -> Server:
        """Have a server that `mcp.json` does not name, for as long as this scope lives, and for those in it.

        Its values are taken as they are. It gets another name if the one it has is taken by a different server. The
        user's sign-ins are not for it: another person may bring it along.
        """
        server = msgspec.structs.replace(server, oauth=False)
        key = self._leases.guest(server)
        name, number = server.name, 1
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
        caller: Caller,
        *,
        on_open: Callable[[], None] | None = None,
    ) -> dict[str, Json]:
        """The tool's raw result. The server is started if need be; how long that and the call may take is the caller's.

        Args:
            on_open: called once, when the server is there and before the call goes out.

        Raises:
            McpError: the server refused the call.
            McpLost: it could not be started, or died. A call that was under way is never made a second time.
            ConfigError: its entry lacks a value.
            UsageError: there is no such server.
        """
        why: McpUnsent | None = None
        for _ in range(TRIES):
            lease, live = await self._lease(server, caller.me)
            if on_open is not None:
                on_open()
                on_open = None
            live.begin()
            try:
                result = await live.client.call_tool(tool, arguments, caller)
                live.answered()
                return result
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
                if (end := live.client.link.lost) is not None:
                    lease.report_lost(end)
                self._keep(lease)
        raise McpLost(f"'{tool}' was not begun, and was tried {TRIES} times: {why}") from why

    async def catalog(self, server: str, me: Actor) -> Catalog:
        """What the server offers: as it was last told. It is started only if it was never asked before.

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

    async def learned(self, server: str) -> Catalog | None:
        """What the server offers by now, without starting it; None if it was never asked, or can't be used any more."""
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
        """The connection, for resources and prompts; it stays as it is inside the block.

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
        """Have it leased from now on."""
        lease, live = await self._lease(server, me)
        self._keep(lease)
        return live

    def way_in(self, server: str) -> tuple[Server, Access] | None:
        """The server and its tokens, if a person may be asked to sign in; None if none is there, or should be asked.

        In a process that serves, the people who are asked are its callers, whose accounts are not for others.
        """
        key = self._key(server)
        if self._leases.serving or not self._leases.owner.questions.attended:
            return None
        access = self._servers.accesses.of(key.server)
        return None if access is None else (key.server, access)

    def give_back(self, keys: set[Key] | None) -> None:
        """Return the leases that are only kept, of these keys or all; also those of the conversations."""
        for scope in self._inner:
            scope.give_back(keys)
        for key in [key for key in self.kept if keys is None or key in keys]:
            self.kept.pop(key).release()

    async def _prepare(self, server: str) -> None:
        """Have the secrets that its entry needs; a guest's values are there."""
        if server not in self._leases.keys and self._guest(server) is None:
            await self._leases.prepare(server)

    async def _lease(self, server: str, me: Actor) -> tuple[Lease[Key, Live], Live]:
        await self._prepare(server)
        key = self._key(server)
        if key.server.share == "per-run":
            self._servers.of_run(self._run)
        lease = self._leases.pool.lease(key)
        return lease, await self._leases.acquire(lease, me)

    def _keep(self, lease: Lease[Key, Live]) -> None:
        """After a use: the lease stays with whom the server is shared by, if none is there yet."""
        home = self._home(lease.key.server.share)
        if home is None or home._closed or lease.stale:  # noqa: SLF001 - the same class
            lease.release()
        else:
            kept = home.kept.setdefault(lease.key, lease)
            if kept is not lease:
                if kept.stale:
                    home.kept[lease.key] = lease
                    kept.release()
                else:
                    lease.release()
        self._servers.used(lease.key)

    def _key(self, server: str) -> Key:
        guest = self._guest(server)
        share = guest.server.share if guest is not None else self._leases.config.get(server).share
        shared_by = {"per-run": self._run, "per-agent": f"{self._run} {self._agent}", "never": self._conversation}
        by = shared_by.get(share, "")
        key = self._leases.key(server, by) if guest is None else Key(guest.server, guest.digest, by)
        place = sandboxed_server(server, key.server.words if guest is None else ())
        return key if place is None else replace(key, place=place)

    def _guest(self, server: str) -> Key | None:
        key = self._guests.get(server)
        return self._outer._guest(server) if key is None and self._outer else key  # noqa: SLF001 - the same class

    def _home(self, share: Share) -> Scope | None:
        if share == "per-run":
            return self._servers.runs.get(self._run)
        return self if share == "never" or self._outer is None else self._outer
