"""Base URLs with the connections behind them: shared while they are used, let go when they are not.

Callers name any number of base URLs: each start of a local engine has a new port, files may bring clients of their own.
An endpoint holds connections and, for https, certificates (about a MB), so those that nothing uses are closed: at once
if there are more than `MOST_IDLE`, the one that is idle longest first, and after `IDLE` seconds when any other is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from .client import Endpoint

MOST_IDLE = 64
"""Endpoints that are kept without a request under way."""

IDLE = 300.0
"""Seconds an endpoint is kept without one."""

Key = tuple[str, str, float]


class Endpoints:
    """One endpoint for each base URL, proxy and connect timeout.

    Args:
        environ: for proxies and certificates.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._busy: dict[Key, Endpoint] = {}
        self._idle: OrderedDict[Key, Endpoint] = OrderedDict()

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def lease(self, api_base: str, proxy: str, connect_timeout: float) -> Endpoint:
        """The endpoint of that base URL. Use it as a context manager: it stays open for the block."""
        key = (api_base, proxy, connect_timeout)
        endpoint = self._busy.get(key)
        if endpoint is None:
            endpoint = self._busy[key] = self._idle.pop(key) if key in self._idle else self._new(key)
        return endpoint

    def _unused(self, key: Key, endpoint: Endpoint) -> None:
        if self._busy.get(key) is endpoint:  # else all were closed meanwhile
            del self._busy[key]
            endpoint.idle_since = trio.current_time()
            self._idle[key] = endpoint
            self._let_go()

    def close(self) -> None:
        """Close every connection. Requests that are still under way fail."""
        for endpoint in (*self._busy.values(), *self._idle.values()):
            endpoint.close()
        self._busy.clear()
        self._idle.clear()

    def _new(self, key: Key) -> Endpoint:
        from .client import Endpoint  # brings httpx along, which runs without models can do without

        endpoint = Endpoint(*key, self._environ)
        endpoint.when_unused = partial(self._unused, key)
        return endpoint

    def _let_go(self) -> None:
        before = trio.current_time() - IDLE
        while self._idle:
            key, oldest = next(iter(self._idle.items()))
            if len(self._idle) <= MOST_IDLE and oldest.idle_since > before:
                return
            del self._idle[key]
            oldest.close()
