"""What servers are leased by: their entries with values put in, their keys, and the kernel's pool of those that run.

A key says what makes two servers the same one: everything their process or session is made of, and who shares it. Its
digest covers transport, command, arguments in order, environment and directory, or URL and headers, all as they
are after `${NAME}` was put in; and what we declare to the server, since some offer other tools then. Names, time
limits and lists of tools are ours alone: two entries that differ only in these are one server. Digests name files
and status lines: what is secret goes in, and does not come out.
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
    from ...sandbox.place import Place
    from ..client.handshake import Abilities

IDLE_WHEN_SERVING = 300.0
"""Seconds an idle server is kept by a process that serves, unless the settings say otherwise; others keep it 0."""

ROOM_WITHIN = 300.0
"""Seconds that a start may wait for room (`max_servers`). Servers that only one agent shares are not taken from it, so
an agent that has them all and wants another would wait for itself."""


@final
@dataclass(frozen=True, slots=True)
class Key:
    """What the pool shares by: a digest, and by whom (`""` for everybody, else a run, an agent, a conversation).

    Attributes:
        server: how it is started; not compared.
        place: how its process is held; None for not at all.
    """

    server: Server = field(compare=False, repr=False)
    digest: str
    by: str = ""
    place: Place | None = None

    def __str__(self) -> str:
        return self.server.name


@final
@dataclass(kw_only=True, eq=False, repr=False)  # it holds secrets
class Leases:
    """See the module.

    Attributes:
        owner: the pool lives and ends below it.
        config: what `mcp.json` says; replaced when it is read again.
        catalogs: what servers offer, also those that do not run.
        opening: what the pool opens them with.
        secrets: what `${NAME}` stands for.
        vault: what `{{NAME}}` stands for; None for `secrets`.
        serving: whether idle servers are worth keeping, since the process is here for long.
        on_first: called when the first server is about to be leased.
        make_room: called when one has to be returned before another can start; see `Pool`.
        keys: of the servers whose values are put in, by name.
        pool_in_use: the pool, if it was made.
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
    keys: dict[str, Key] = field(default_factory=dict, init=False)
    pool_in_use: Pool[Key, Live] | None = field(default=None, init=False)

    def key(self, name: str, by: str = "") -> Key:
        """What the server of this name is shared by.

        Raises:
            ConfigError: its entry lacks a value.
            NotFetched: it needs a secret that takes time to get; see `prepare`.
        """
        key = self.keys.get(name)
        if key is None:
            why = None if self.vault is None else self.vault.why_missing
            server = resolved(self.config.get(name), self.secrets, self.vault, why)
            key = self.keys[name] = self.guest(server)
        return Key(key.server, key.digest, by) if by else key

    async def prepare(self, name: str) -> None:
        """Have the secrets that the server of this name needs. Raises like `key`."""
        if self.vault is not None and name not in self.keys:
            await self.vault.ready(partial(self.key, name))

    def guest(self, server: Server) -> Key:
        """What a server is shared by that only one scope knows; its values are taken as they are."""
        return Key(server, digest_of(server, self.opening.declared(server)))

    @property
    def pool(self) -> Pool[Key, Live]:
        """The kernel's pool, made at first use."""
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

    async def acquire(self, lease: Lease[Key, Live], me: Actor) -> Live:
        """Enter a lease, for `me`.

        Raises:
            McpError, McpLost: the server could not be started.
        """
        key = lease.key
        cold = key not in self.pool
        if cold:
            self.opening.causes.setdefault(key, me)
        try:
            if cold and self.settings.max_servers is not None:
                return await self._in_time(lease)
            return await lease.acquire()
        except (ActorFailed, TooManyRestarts) as failed:
            error = _error_of(failed, key.server.name)
            if isinstance(error, McpSignInNeeded):  # it is not the server that has failed
                self.opening.record(key.digest).breaker.forgive()
            raise error from failed
        finally:
            if self.opening.causes.get(key) is me:
                del self.opening.causes[key]

    async def learned(self, key: Key) -> None:
        """Wait until it is known what the server has, if it runs and says that this has changed."""
        live = self.opening.live.get(key)
        if live is not None and live.open:
            await live.learned.wait()

    async def _in_time(self, lease: Lease[Key, Live]) -> Live:
        server = lease.key.server
        within = ROOM_WITHIN + 2 * server.start_timeout_seconds
        with trio.move_on_after(within):
            return await lease.acquire()
        raise McpLost(
            f"MCP server '{server.name}' found no room within {within:g} s: `max_servers` of `mcp_pool` (config.yaml) "
            f"lets {self.settings.max_servers} run at once, and all of those that run are in use"
        )

    def _idle_seconds(self, key: Key) -> float:
        server, usual = key.server, self.settings.idle_timeout_seconds
        if key.by:
            return 0.0  # it ends with those who share it
        if server.warm:
            return math.inf
        if server.idle_timeout_seconds is not None:
            return server.idle_timeout_seconds
        return usual if usual is not None else IDLE_WHEN_SERVING if self.serving else 0.0


def _error_of(failed: ActorFailed | TooManyRestarts, name: str) -> Exception:
    """Why a start failed, or is not tried; an error of its own for each actor that waited for it."""
    error: BaseException | None = failed
    while isinstance(error, ActorFailed):
        error = error.__cause__
    if isinstance(error, TooManyRestarts):
        return McpLost(f"MCP server '{name}' {error}")
    if not isinstance(error, CallboardError):
        return McpLost(f"MCP server '{name}' could not be started: {failed}")
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin


def _directory(server: Server) -> str | None:
    """Where it works. Where the entry doesn't say, ours counts only if that decides what is started: `server.py` is
    another program in another directory, and what one offers must not be remembered of the other."""
    if server.cwd is not None:
        return str(Path(server.cwd).absolute())
    words = (server.command, *server.args) if os.sep in server.command else tuple(server.args)
    directory = str(Path.cwd())
    return directory if _names_a_file(directory, words) else None


@lru_cache(maxsize=4096)
def _names_a_file(directory: str, words: tuple[str, ...]) -> bool:
    """True if a word is a path below the directory.

    The first answer holds for the life of the process: a file that the server itself makes later must not give it
    another key.
    """
    return any(word and not os.path.isabs(word) and os.path.exists(os.path.join(directory, word)) for word in words)  # noqa: PTH110, PTH117, PTH118 - words, most are no paths


def digest_of(server: Server, declared: Abilities) -> str:
    """SHA-256 of what the server is made of; `server` is resolved, `declared` what we tell it that we can do."""
    made_of = (
        [server.command, server.args, server.env, _directory(server), server.inherit_env]
        if server.type == "stdio"
        else [server.url, server.headers, *([] if server.oauth is True else [server.oauth])]
    )
    whole = [server.type, made_of, server.max_message_bytes, declared.elicitation, declared.sampling, server.roots]
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()
