"""Where nobody is to go for a page: this machine, private networks, and where clouds hand out credentials.

What counts is the address that a connection leads to. So a name is looked up and refused before anything is connected,
and the other end is looked at once more when it is, for a name may lead elsewhere the second time it is looked up. A
proxy is exempt: it was set up by who runs us. It decides where its requests go, and so only addresses that are written
out are refused then.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import httpx
import trio

from ....io.http.connections import Connections, Route
from ....io.http.transport import KEEP_ALIVE, MAX_IDLE, TrioTransport
from ....io.http.wires import PlainWire, Wire, peer
from ...tools.builtin.fetching import is_metadata, meant

_PRIVATE_TOO = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "::/96", "64:ff9b:1::/48", "fec0::/10")))
"""What is of no public use, though not every Python says so: a cloud's credentials, and three old ways to go inside."""


class Refused(Exception):
    """The address is one of those. The text says so."""


class GuardedTransport(TrioTransport):
    """Goes nowhere but where it may.

    Args:
        environ: for proxies and certificates.
        allow_private: whether this machine and private networks may be reached. Credentials are never fetched.
    """

    def __init__(self, environ: Mapping[str, str], *, allow_private: bool) -> None:
        super().__init__(environ=environ)
        self.connections = _Connections(environ, allow_private=allow_private)


class _Connections(Connections):
    def __init__(self, environ: Mapping[str, str], *, allow_private: bool) -> None:
        super().__init__(environ, "", None, keep_alive=KEEP_ALIVE, max_idle=MAX_IDLE, max_per_origin=None)
        self._allow_private = allow_private
        self._through: set[tuple[str, int]] = set()

    async def _wire(self, route: Route) -> Wire:
        if route.proxy:
            check(route.host, route.host, allow_private=self._allow_private)
            proxy = httpx.URL(route.proxy)
            self._through.add((proxy.host, proxy.port or (443 if proxy.scheme == "https" else 80)))
        return await super()._wire(route)

    async def _connected(self, host: str, port: int) -> PlainWire:
        if (host, port) in self._through:
            return await super()._connected(host, port)
        for address in await _looked_up(host, port):
            check(address, host, allow_private=self._allow_private)
        wire = await super()._connected(host, port)
        try:
            check(peer(wire), host, allow_private=self._allow_private)
        except Refused:
            wire.close()
            raise
        return wire


def check(address: str, host: str, *, allow_private: bool) -> None:
    """Refuse an address; a name is none, and passes.

    Raises:
        Refused: nobody is to go there.
    """
    if is_metadata(address):
        raise Refused(f"'{host}' leads to an address where machines keep their credentials; it is never fetched")
    if not allow_private and is_private(address):
        raise Refused(
            f"'{host}' leads to a private address ({address}), which is not read unless `rag_private_pages: true` in"
            " config.yaml says so"
        )


def is_private(address: str) -> bool:
    """Whether an address is not of the public internet, whichever way it is written."""
    return not all(
        each.is_global and not each.is_multicast and not any(each in network for network in _PRIVATE_TOO)
        for each in meant(address)
    )


async def _looked_up(host: str, port: int) -> list[str]:
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # connecting will fail the same way, and says it better
    return [str(address[0]) for *_, address in found]
