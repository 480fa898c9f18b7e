"""Requests to addresses that servers have named: as `AuthHttp`, and nowhere where strangers may not send us.

A server of the internet must not have us knock at this machine or a private network, so what counts is where a
connection leads (see `io.http.guarded`). A server that is private itself may name its neighbours: then the answer that
wanted a login has come from a private address, which no name that is looked up anew can pretend.
"""

from __future__ import annotations

from collections.abc import Mapping

from .....protocol.errors import ConfigError
from ....io.http.connections import Connections, Route
from ....io.http.guarded import CantFetch, GuardedTransport, is_private
from ....io.http.transport import KEEP_ALIVE, MAX_IDLE, TrioTransport
from ....io.http.wires import PlainWire, Wire, peer
from ....io.oauth.http import Answer, AuthHttp


class ProbeTransport(TrioTransport):
    """Goes anywhere, and remembers where that was.

    Args:
        environ: for proxies and certificates.

    Attributes:
        private: whether the last connection leads to a private address, and not to a proxy that goes on.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ=environ)
        self.connections = self._seen = _Seen(environ)

    @property
    def private(self) -> bool:
        return bool(self._seen.peer) and is_private(self._seen.peer)


class _Seen(Connections):
    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ, "", None, keep_alive=KEEP_ALIVE, max_idle=MAX_IDLE)
        self.peer = ""

    async def _wire(self, route: Route) -> Wire:
        wire = await super()._wire(route)
        if route.proxy:
            self.peer = ""
        return wire

    async def _connected(self, host: str, port: int) -> PlainWire:
        wire = await super()._connected(host, port)
        self.peer = peer(wire)
        return wire


class GuardedAuthHttp(AuthHttp):
    """See the module.

    Args:
        environ: for proxies and certificates.
        private: whether the server is private itself.
    """

    def __init__(self, environ: Mapping[str, str], *, private: bool) -> None:
        super().__init__(environ)
        self._private = private

    def _transport(self) -> GuardedTransport:
        return GuardedTransport(self._environ, allow_private=self._private)

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            return await super()._send(method, url, what, body, headers)
        except CantFetch as error:
            raise ConfigError(f"{what}: {error}") from error
