"""Bounds the number of open connections, before their callers are known.

A connection costs a file descriptor and a task, and one that says nothing may be kept for a while. So there are only so
many of them, and one address has only a part, unless it is this machine's or that of a proxy that speaks for many.
"""

from __future__ import annotations

import logging
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import trio

from ..access.origins import is_loopback, is_within, network_of

if TYPE_CHECKING:
    from ..access.gate import Gate

log = logging.getLogger("callboard.server")

SPARE_FILES = 256
"""File descriptors that connections leave to everything else: files, model connections, processes."""

SAID_EVERY = 60.0
"""Seconds between two log lines about refused connections."""


@final
class Crowd:
    """Who is connected."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._from: Counter[str] = Counter()
        self._said = -SAID_EVERY
        self.open = 0

    @contextmanager
    def entering(self, peer: str) -> Iterator[bool]:
        """A connection from there, for as long as the block lasts; whether there is room for it."""
        where = network_of(peer)
        if not self._has_room(peer, where):
            self._tell(where)
            yield False
            return
        self.open += 1
        self._from[where] += 1
        try:
            yield True
        finally:
            self.open -= 1
            self._from[where] -= 1
            if not self._from[where]:
                del self._from[where]

    def _has_room(self, peer: str, where: str) -> bool:
        settings = self._gate.settings
        if self.open >= min(settings.limits.max_connections, _files() - SPARE_FILES):
            return False
        free = is_loopback(peer) or is_within(peer, settings.trusted_proxies)
        return free or self._from[where] < settings.limits.connections_per_address

    def _tell(self, where: str) -> None:
        now = trio.current_time()
        if now - self._said >= SAID_EVERY:
            self._said = now
            log.warning("%d connections are open; one more from %s was closed (api.limits)", self.open, where)


def _files() -> int:
    """How many files we may have open; always enough for a few connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft, 2 * SPARE_FILES)
