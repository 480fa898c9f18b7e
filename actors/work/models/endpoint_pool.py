"""Pool of HTTP endpoints, with their connections: shared while in use, closed when idle.

A process may use any number of base URLs: each start of a local engine has a new port, and files may describe clients.
An endpoint holds connections and, for https, certificates (about a MB), so idle endpoints are closed. Above `MOST_IDLE`
of them, the one that is idle longest is closed at once. Others are closed after `IDLE` seconds, when the next endpoint
becomes idle; there is no timer.
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
"""Maximum number of idle endpoints."""

IDLE = 300.0
"""Seconds without a request after which an endpoint may be closed."""

Key = tuple[str, str, float]


class Endpoints:
    """Endpoints by base URL, proxy and connect timeout.

    Args:
        environ: environment with proxies and certificates.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._busy: dict[Key, Endpoint] = {}
        self._idle: OrderedDict[Key, Endpoint] = OrderedDict()

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def lease(self, api_base: str, proxy: str, connect_timeout: float) -> Endpoint:
        """Return the endpoint of a base URL. Use it as a context manager: it stays open inside the block."""
        key = (api_base, proxy, connect_timeout)
        endpoint = self._busy.get(key)
        if endpoint is None:
            endpoint = self._busy[key] = self._idle.pop(key) if key in self._idle else self._new(key)
        return endpoint

    def _unused(self, key: Key, endpoint: Endpoint) -> None:
        if self._busy.get(key) is endpoint:  # else `close` was called meanwhile
            del self._busy[key]
            endpoint.idle_since = now = trio.current_time()
            self._idle[key] = endpoint
            self._let_go(now - IDLE)

    def close(self) -> None:
        """Close every connection. Requests in progress fail."""
        for endpoint in (*self._busy.values(), *self._idle.values()):
            endpoint.close()
        self._busy.clear()
        self._idle.clear()

    def _new(self, key: Key) -> Endpoint:
        from .client import Endpoint  # imports httpx, which runs without models do not need

        endpoint = Endpoint(*key, self._environ)
        endpoint.when_unused = partial(self._unused, key)
        return endpoint

    def _let_go(self, before: float) -> None:
        while self._idle:
            key, oldest = next(iter(self._idle.items()))
            if len(self._idle) <= MOST_IDLE and oldest.idle_since > before:
                return
            del self._idle[key]
            oldest.close()
