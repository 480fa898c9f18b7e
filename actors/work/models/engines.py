"""Local engines: one process per model file, started when it is first needed, shared by all callers.

The kernel's pool does the sharing and the restarts: never two starts for one file, a new process after one has died as
`Breaker` allows it, an end when it has been idle for a while. Give one `LocalEngines` to the gateway:

    engines = LocalEngines(root, os.environ)
    gateway = Gateway(root, settings, os.environ, engines=engines)
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec
import trio

from ....protocol.decoding import decode_json
from ....protocol.errors import ActorFailed, CallboardError, ConfigError, TooManyRestarts, UpstreamError
from ....supervisors import Breaker
from ....supervisors.actor import Actor
from ....supervisors.pool import Pool
from ....supervisors.process import Process, start_process
from ....supervisors.root import Root

READY_WITHIN = 120.0
"""Seconds an engine may take to load its model."""

LONGEST_LINE = 64 * 1024
"""Bytes of the line in which it says where it listens."""

IDLE_TTL = 300.0
"""Seconds an idle engine is kept."""

CONTEXT = 4096
"""Tokens of the engine's context: prompt and reply together."""

EMBEDDED_TOKENS, EMBEDDED_AT_ONCE = 512, 8
"""Of an engine that makes vectors: tokens of a text, and texts at once."""

SERVER = Path(__file__).with_name("local_server.py")


class Served(msgspec.Struct, frozen=True):
    """Where an engine listens (`http://127.0.0.1:port`), and the key it wants."""

    url: str
    key: str


class LocalEngines:
    """Engines as subprocesses under `owner`.

    Args:
        owner: they live and end as its children.
        environ: what the processes get as environment.
        server: the script they run.
        embeds: they make vectors, and don't chat.
    """

    def __init__(
        self, owner: Actor | Root, environ: Mapping[str, str], *, server: Path = SERVER, embeds: bool = False
    ) -> None:
        self._owner = owner
        self._environ = {**environ, "OMP_WAIT_POLICY": "passive"}  # spinning threads starve all others
        self._server = server
        self._sizes = (EMBEDDED_TOKENS, EMBEDDED_AT_ONCE) if embeds else (CONTEXT,)
        self._pool: Pool[str, Served] | None = None
        self._breakers: defaultdict[str, Breaker] = defaultdict(Breaker)

    @asynccontextmanager
    async def lease(self, path: str) -> AsyncIterator[Served]:
        """An engine for that model file.

        Raises:
            ConfigError: the engine is not installed, or can't load the file; the text holds what it said.
            UpstreamError: it was not ready in time, or has failed too often to be started again now.
        """
        if self._pool is None:
            breaker = self._breakers.__getitem__
            self._pool = Pool(self._owner, self._open, name="engines", idle_ttl=IDLE_TTL, breaker=breaker)
        lease = self._pool.lease(path)
        try:
            served = await lease.acquire()
        except (ActorFailed, TooManyRestarts) as failed:
            cause = failed.__cause__ or failed
            if isinstance(cause, TooManyRestarts):
                raise UpstreamError(f"the local engine for {path} {cause}") from failed
            if isinstance(cause, CallboardError):
                raise cause from failed
            raise
        try:
            yield served
            self._breakers[path].worked()
        finally:
            lease.release()

    @asynccontextmanager
    async def _open(self, me: Actor, path: str) -> AsyncIterator[Served]:
        require_engine()
        argv = [sys.executable, "-I", str(self._server), path, str(threads()), *map(str, self._sizes)]
        process = await start_process(me, argv, name="engine", env=self._environ, stdin="pipe")
        served = await _announced(process, path)
        me.spawn(_watch, process, name="watch")
        yield served


def require_engine() -> None:
    """Raise ConfigError unless the engine is installed."""
    if find_spec("xllamacpp") is None:
        raise ConfigError("local models need the engine; run: pip install 'callboard[local]'")


def threads() -> int:
    """Threads an engine gets: all cores but one, which the rest of the program needs."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


async def _announced(process: Process, path: str) -> Served:
    """Wait for the line in which the engine says where it listens."""
    line = bytearray()
    assert process.stdout is not None
    with trio.move_on_after(READY_WITHIN) as scope:
        while b"\n" not in line:
            data = await process.stdout.receive_some()
            if not data:
                end = await process.wait()
                raise ConfigError(f"the local engine could not load {path}: {_last_words(end.stderr_tail)}")
            line += data
            if len(line) > LONGEST_LINE:
                raise UpstreamError(f"the local engine announced itself with an endless line: {bytes(line[:80])!r}")
    if scope.cancelled_caught:
        raise UpstreamError(f"the local engine did not load {path} within {READY_WITHIN:g} s")
    try:
        return decode_json(bytes(line), Served)
    except msgspec.MsgspecError as error:
        raise UpstreamError(f"the local engine announced itself as {bytes(line)!r}") from error


async def _watch(_: Actor, process: Process) -> None:
    """Linked to the resource: when the process ends by itself, the resource is lost and the pool forgets it."""
    end = await process.wait()
    raise UpstreamError(f"the local engine ended: {_last_words(end.stderr_tail)}")


def _last_words(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
