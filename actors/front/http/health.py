"""Liveness and readiness of the process, for load balancers.

`live` concerns only the process: it fails only during shutdown. `ready` concerns work: the directories of runs and
sessions are writable, and there is room for more requests. It is queried often, so the check of the directories, which
writes files, is cached for a second.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import trio

from ...io.directories import private_directory

if TYPE_CHECKING:
    from ...runs.root import Root
    from ..access.limits import ConcurrencyLimiter

ENOUGH = 0.1
"""Share of `max_concurrent_requests` that has to be free."""

FRESH = 1.0
"""Seconds for which a check of the directories is cached."""

PROBE_WITHIN = 2.0
"""Timeout for writing a file, in seconds."""

Told = tuple[int, dict[str, Any]]
"""HTTP status, and body."""


@final
class Health:
    """Health checks.

    Args:
        stores: directories that must be writable.
    """

    def __init__(self, root: Root, requests: ConcurrencyLimiter, stores: Sequence[Path]) -> None:
        self._root = root
        self._requests = requests
        self._stores = tuple(stores)
        self._looking = trio.Lock()
        self._looked = -FRESH
        self._problems: list[str] = []
        self.draining = False

    def live(self) -> Told:
        """Return 200 unless the process is shutting down."""
        if self._ending():
            return 503, {"status": "stopping"}
        return 200, {"status": "ok"}

    async def ready(self) -> Told:
        """Return 200 if the server accepts work, else 503 and the reasons.

        Reasons: it is stopping, a directory cannot be written, or fewer than `ENOUGH` of the request slots are free.
        """
        if self._ending():
            return 503, {"status": "stopping", "problems": ["the server is stopping"]}
        problems = list(await self._probed())
        if self._requests.free_share < ENOUGH:
            problems.append(f"{self._requests.taken} of {self._requests.of_all} requests are under way")
        if problems:
            return 503, {"status": "unavailable", "problems": problems}
        return 200, {"status": "ok"}

    def _ending(self) -> bool:
        return self.draining or self._root.kernel.stopping

    async def _probed(self) -> list[str]:
        # Concurrent probes share one check.
        async with self._looking:
            if trio.current_time() - self._looked >= FRESH:
                self._problems = [found for store in self._stores if (found := await _probe(store))]
                self._looked = trio.current_time()
            return self._problems


async def _probe(store: Path) -> str:
    with trio.move_on_after(PROBE_WITHIN):
        return await trio.to_thread.run_sync(_write, store, abandon_on_cancel=True)
    return f"{store.name}: writing takes more than {PROBE_WITHIN:g} s"


def _write(store: Path) -> str:
    file = store / f".ready-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        private_directory(store)
        try:
            file.write_bytes(b"ready?\n")
        finally:
            with contextlib.suppress(OSError):
                file.unlink()
    except OSError as error:
        return f"{store.name} can't be written to: {os.strerror(error.errno) if error.errno else error}"
    return ""
