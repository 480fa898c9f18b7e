"""HTTP client for addresses that servers have named, protected against requests to private networks.

A public server must not make this process connect to this machine or to a private network. The address of the
connection decides, not the name (see `io.http.guarded`). A private server may name its neighbours. A server counts as
private if the answer that demanded a login came from a private address. A later DNS answer can't forge that.
"""

from __future__ import annotations

from collections.abc import Mapping

from .....protocol.errors import ConfigError
from ....io.http.connections import ConnectionRoute, Connections, PlainWire, Wire, peer
from ....io.http.guarded import CantFetch, GuardedTransport, is_private
from ....io.http.transport import KEEP_ALIVE, MAX_IDLE, TrioTransport
from ....io.oauth.endpoint import AuthHttp, OAuthResponse


class ProbeTransport(TrioTransport):
    """Transport without restrictions that records the address of the peer.

    Args:
        environ: for proxies and certificates.

    Attributes:
        private: True if the last connection leads directly to a private address, not to a proxy.
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

    async def _wire(self, route: ConnectionRoute) -> Wire:
        wire = await super()._wire(route)
        # The peer is the proxy then, whose address says nothing about the server's.
        if route.proxy:
            self.peer = ""
        return wire

    async def _connected(self, host: str, port: int) -> PlainWire:
        wire = await super()._connected(host, port)
        self.peer = peer(wire)
        return wire


class GuardedAuthHttp(AuthHttp):
    """HTTP client for OAuth that refuses private addresses.

    Args:
        environ: for proxies and certificates.
        private: True if the server is private itself; then private addresses are allowed.
    """

    def __init__(self, environ: Mapping[str, str], *, private: bool) -> None:
        super().__init__(environ)
        self._private = private

    def _transport(self) -> GuardedTransport:
        return GuardedTransport(self._environ, allow_private=self._private)

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> OAuthResponse:
        try:
            return await super()._send(method, url, what, body, headers)
        except CantFetch as error:
            raise ConfigError(f"{what}: {error}") from error
