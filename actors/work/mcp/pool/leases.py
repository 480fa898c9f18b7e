"""Leases of servers: resolved entries, keys, and the kernel's pool of running servers.

A key decides whether two servers are the same one: by everything that makes up their process or session, and by who
shares it. Its digest covers transport, command, arguments in order, environment and directory, or URL and headers, all
after `${NAME}` was resolved. It also covers the capabilities that the client declares, since some servers offer other
tools then. Names, time limits and tool lists only concern the client: entries that differ only in these share a server.
Digests appear in file names and status lines. They include secrets, which can't be recovered from them.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol.errors import ActorFailed, CallboardError, McpLost, McpSignInNeeded, TooManyRestarts
from .....protocol.mcp.config import McpConfig, PoolSettings, Server, resolved
from .....protocol.references import Secrets
from .....supervisors import Actor, Lease, Pool, Root
from .....supervisors.process import ProcessStop
from .catalog import Catalogs
from .opening import Live, Opening

if TYPE_CHECKING:
    from ....io.vault.vault import Vault
    from ...sandbox.place import SandboxPlace
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
    opening: Opening
    secrets: Secrets
    vault: Vault | None
    settings: PoolSettings
    serving: bool
    on_first: Callable[[], None]
    make_room: Callable[[], None]
    keys: dict[str, PoolKey] = field(default_factory=dict, init=False)
    pool_in_use: Pool[PoolKey, Live] | None = field(default=None, init=False)

    def key(self, name: str, by: str = "") -> PoolKey:
        """Return the key of the server with this name.

        Raises:
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
    def pool(self) -> Pool[PoolKey, Live]:
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

    async def acquire(self, lease: Lease[PoolKey, Live], me: Actor) -> Live:
        """Enter a lease for `me`.

        Raises:
            McpError, McpLost: the server could not be started.
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
        """Wait for a running server's new tool list, if the server has announced a change."""
        live = self.opening.live.get(key)
        if live is not None and live.open:
            await live.learned.wait()

    async def _in_time(self, lease: Lease[PoolKey, Live]) -> Live:
        server = lease.key.server
        within = ROOM_WITHIN + 2 * server.start_timeout_seconds
        with trio.move_on_after(within):
            return await lease.acquire()
        raise McpLost(
            f"MCP server '{server.name}' found no room within {within:g} s: `max_servers` of `mcp_pool` (config.yaml) "
            f"lets {self.settings.max_servers} run at once, and all of those that run are in use"
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
