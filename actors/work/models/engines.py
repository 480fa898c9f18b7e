"""Local engines: one process per model file, started with the first request and shared by all callers.

The kernel's pool shares and restarts them. It never starts two processes for one file, replaces a dead process as
`Breaker` allows, and stops a process after `IDLE_TTL` seconds without a lease. Pass one `LocalEngines` to the gateway:

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
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.decoding import decode_json
from ....protocol.errors import ActorFailed, CallboardError, ConfigError, TooManyRestarts, UpstreamError
from ....supervisors import Breaker
from ....supervisors.actor import Actor
from ....supervisors.installation import install_command
from ....supervisors.root import Root
from ...io.imports import PROCESSES, imported

if TYPE_CHECKING:
    from ....supervisors.pool import Pool
    from ....supervisors.process import Process

READY_WITHIN = 120.0
"""Seconds that an engine may take to load its model."""

LONGEST_LINE = 64 * 1024
"""Maximum length of the line that announces the engine's address, in bytes."""

IDLE_TTL = 300.0
"""Seconds without a lease after which an engine stops."""

CONTEXT = 4096
"""Tokens of the engine's context: prompt and reply together."""

EMBEDDED_TOKENS, EMBEDDED_AT_ONCE = 512, 8
"""Tokens per text, and texts per batch, of an embedding engine."""

SERVER = Path(__file__).with_name("local_server.py")


class ServedEngine(msgspec.Struct, frozen=True):
    """URL of an engine (`http://127.0.0.1:port`) and its key."""

    url: str
    key: str


class LocalEngines:
    """Pool of engine processes under `owner`.

    Args:
        owner: parent of the pool; the processes end with it.
        environ: environment of the processes.
        server: script that they run.
        embeds: True for embedding engines, False for chat engines.
    """

    def __init__(
        self, owner: Actor | Root, environ: Mapping[str, str], *, server: Path = SERVER, embeds: bool = False
    ) -> None:
        self._owner = owner
        self._environ = {**environ, "OMP_WAIT_POLICY": "passive"}  # spinning OpenMP threads starve this process
        self._server = server
        self._sizes = (EMBEDDED_TOKENS, EMBEDDED_AT_ONCE) if embeds else (CONTEXT,)
        self._pool: Pool[str, ServedEngine] | None = None
        self._breakers: defaultdict[str, Breaker] = defaultdict(Breaker)

    @asynccontextmanager
    async def lease(self, path: str) -> AsyncIterator[ServedEngine]:
        """Lease an engine for the model file `path`, and start it if needed.

        Raises:
            ConfigError: the engine is not installed, or cannot load the file; the text contains its last output.
            UpstreamError: the engine was not ready in time, or failed too often to be restarted now.
        """
        await imported(".supervisors.pool", PROCESSES)
        if self._pool is None:
            from ....supervisors.pool import Pool

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
            self._breakers[path].worked()  # only after a successful use: an engine may start and die with each request
        finally:
            lease.release()

    @asynccontextmanager
    async def _open(self, me: Actor, path: str) -> AsyncIterator[ServedEngine]:
        from ....supervisors.process import start_process

        require_engine()
        argv = [sys.executable, "-I", str(self._server), path, str(threads()), *map(str, self._sizes)]
        process = await start_process(me, argv, name="engine", env=self._environ, stdin="pipe")
        served = await _announced(process, path)
        me.spawn(_watch, process, name="watch")
        yield served


def require_engine() -> None:
    """Raise ConfigError unless the engine is installed."""
    if find_spec("xllamacpp") is None:
        raise ConfigError(f"local models need Callboard's extra `local`; run: {install_command('local')}")


def threads() -> int:
    """Return the number of threads of an engine: all available cores but one, which the program needs; at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


async def _announced(process: Process, path: str) -> ServedEngine:
    """Wait for the line that announces the engine's URL and key."""
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
                raise UpstreamError(
                    f"the local engine did not start correctly: it printed a line without an end: {bytes(line[:80])!r}"
                )
    if scope.cancelled_caught:
        raise UpstreamError(f"the local engine did not load {path} within {READY_WITHIN:g} s")
    try:
        return decode_json(bytes(line), ServedEngine)
    except msgspec.MsgspecError as error:
        raise UpstreamError(f"the local engine did not start correctly: it printed {bytes(line)!r}") from error


async def _watch(_: Actor, process: Process) -> None:
    """Raise when the process ends by itself. This actor is linked to the pool's resource, which fails with it."""
    end = await process.wait()
    raise UpstreamError(f"the local engine exited: {_last_words(end.stderr_tail)}")


def _last_words(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "there was no output"
