"""Which addresses we answer to, and which web pages may call us.

A browser lets any page send requests to any address, this machine's too; that is why there is a token at all. Two more
things are checked before it is looked at. `Host` has to be a name that we go by: a page may have its own name point to
127.0.0.1 once it is loaded (DNS rebinding), and would then be of our origin. `Origin`, which browsers send along and
pages can't change, has to be our own, or one that the configuration allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import final
from urllib.parse import urlsplit

from ....protocol.errors import Denied
from ....protocol.settings.api import ApiSettings
from ....protocol.settings.api_checks import LOOPBACK

Headers = Mapping[str, str]
_PORTS = {"http": 80, "https": 443}


@final
class Origins:
    """What `Host` and `Origin` may be.

    Args:
        loopback: whether only this machine reaches us. Else we answer to any IP address too: DNS can't
            point one here.
    """

    def __init__(self, settings: ApiSettings, *, loopback: bool) -> None:
        self._hosts = tuple(host.lower().strip("[]") for host in settings.allowed_hosts)
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in settings.cors.allowed_origins)
        self._loopback = loopback

    def check(self, headers: Headers) -> None:
        """Look at a request's `host` and `origin`.

        Raises:
            Denied: its `Host` is not ours, or it comes from a page that is not allowed.
        """
        host = headers.get("host", "")
        if not self._is_ours(host_of(host)):
            raise Denied(
                f"this server does not answer to the name '{host[:100]}'; "
                "use the address it listens on, or add the name to `api.allowed_hosts`"
            )
        origin = headers.get("origin")
        if origin is not None and not self.admits(origin, host):
            raise Denied(f"pages of '{origin[:100]}' may not call this server; see `api.cors.allowed_origins`")

    def admits(self, origin: str, host: str) -> bool:
        """Whether pages of this origin may call us at this address."""
        return self.is_allowed(origin) or _same(origin, host)

    def is_allowed(self, origin: str) -> bool:
        """Whether the configuration allows this origin, for CORS."""
        return "*" in self._allowed or origin.rstrip("/").lower() in self._allowed

    def _is_ours(self, host: str | None) -> bool:
        if host is None:
            return False
        if host in LOOPBACK or any(fnmatchcase(host, pattern) for pattern in self._hosts):
            return True
        return not self._loopback and _address(host) is not None


def host_of(netloc: str) -> str | None:
    """The host of `host[:port]`, in lower case; None where it is none."""
    if "/" in netloc or "@" in netloc or "," in netloc:
        return None
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".") or None
    except ValueError:
        return None


def peer_of(headers: Headers, peer: str, trusted: tuple[str, ...]) -> str:
    """Who is at the other end: behind proxies that are trusted, whom the last of them saw."""
    if not trusted or not is_within(peer, trusted):
        return peer
    for hop in reversed(headers.get("x-forwarded-for", "").split(",")):
        name = hop.strip()
        if _address(name) is None:
            break
        peer = name
        if not is_within(name, trusted):
            break
    return peer


def is_loopback(peer: str) -> bool:
    """Whether this address is the machine's own."""
    address = _address(peer)
    return address is not None and address.is_loopback


def network_of(peer: str) -> str:
    """What bad logins are counted for: an address, or the /64 that one IPv6 host has to itself."""
    address = _address(peer)
    if address is None:
        return peer[:64]
    return str(address) if address.version == 4 else str(ip_network((int(address), 64), strict=False))


def _same(origin: str, host: str) -> bool:
    """Whether an origin is the server's own: the same host and port, whatever a proxy made of the scheme."""
    try:
        page, here = urlsplit(origin), urlsplit(f"//{host}")
        if page.scheme not in _PORTS or not page.hostname or page.username is not None:
            return False
        return page.hostname == here.hostname and (page.port or _PORTS[page.scheme]) == (
            here.port or _PORTS[page.scheme]
        )
    except ValueError:
        return False


def is_within(peer: str, networks: tuple[str, ...]) -> bool:
    """Whether the address is one of these, or of these networks."""
    address = _address(peer)
    return address is not None and any(address in ip_network(network, strict=False) for network in networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address; one of IPv4 is one of IPv4 also in the clothes of IPv6 (`::ffff:192.0.2.1`)."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
