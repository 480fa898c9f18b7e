"""Host and origin checks: accepted names of the server, and web pages that may call it.

A browser lets any page send requests to any address, including this machine's, which is why tokens exist. Two further
checks precede the token. `Host` must be a name of the server: a page may point its own name to 127.0.0.1 after it was
loaded (DNS rebinding), and would then have the server's origin. `Origin`, which browsers send and pages can't change,
must be the server's own, or an allowed one.

An origin is scheme, host and port, and all three are compared. The server's own scheme is that of the last proxy
(`X-Forwarded-Proto`), else http on this machine itself, where no proxy is needed. For other hosts a silent proxy may
have terminated https, so any scheme is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import final
from urllib.parse import urlsplit

from ....protocol.errors import Denied
from ....protocol.settings.api import LOOPBACK, ApiSettings

Headers = Mapping[str, str]
_PORTS = {"http": 80, "https": 443}


@final
class Origins:
    """Permitted `Host` and `Origin` headers.

    Args:
        loopback: True if only this machine can connect. Otherwise any IP address is accepted as `Host` too: DNS can't
            point an address to this server.
    """

    def __init__(self, settings: ApiSettings, *, loopback: bool) -> None:
        self._hosts = tuple(host.lower().strip("[]") for host in settings.allowed_hosts)
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in settings.cors.allowed_origins)
        self._loopback = loopback

    def check(self, headers: Headers) -> None:
        """Check a request's `host` and `origin`.

        Raises:
            Denied: its `Host` is not the server's, or it comes from a page that is not allowed.
        """
        host = headers.get("host", "")
        if not self._is_ours(host_of(host)):
            raise Denied(
                f"this server does not accept the host name '{host[:100]}'; use the address it listens on, "
                "or add the name to `api.allowed_hosts`"
            )
        origin = headers.get("origin")
        if origin is not None and not self.admits(origin, host, headers.get("x-forwarded-proto", "")):
            raise Denied(
                f"web pages of '{origin[:100]}' may not call this server; to allow it, add it to "
                "`api.cors.allowed_origins`"
            )

    def admits(self, origin: str, host: str, scheme: str = "") -> bool:
        """Return True if pages of this origin may call the server at `host`, reached by `scheme` through a proxy."""
        return self.is_allowed(origin) or _same(origin, host, scheme.strip().lower())

    def is_allowed(self, origin: str) -> bool:
        """Return True if the configuration allows this origin for CORS."""
        return "*" in self._allowed or origin.rstrip("/").lower() in self._allowed

    def _is_ours(self, host: str | None) -> bool:
        if host is None:
            return False
        if host in LOOPBACK or any(fnmatchcase(host, pattern) for pattern in self._hosts):
            return True
        return not self._loopback and _address(host) is not None


def host_of(netloc: str) -> str | None:
    """Return the host of `host[:port]`, in lower case; None if it is invalid."""
    if "/" in netloc or "@" in netloc or "," in netloc:
        return None
    try:
        parts = urlsplit(f"//{netloc}")
        port = netloc.rpartition("]")[2].partition(":")[2]
        if port and (not port.isascii() or not port.isdigit() or parts.port is None):
            return None
        return (parts.hostname or "").rstrip(".") or None
    except ValueError:
        return None


def peer_of(headers: Headers, peer: str, trusted: tuple[str, ...]) -> str:
    """Return the client's address: behind trusted proxies, the last address that one of them reports."""
    if not trusted or not is_within(peer, trusted):
        return peer
    # From the right: each proxy appends the address that it saw, and a client may write anything to the left of it.
    for hop in reversed(headers.get("x-forwarded-for", "").split(",")):
        name = hop.strip()
        if _address(name) is None:
            break
        peer = name
        if not is_within(name, trusted):
            break
    return peer


def is_loopback(peer: str) -> bool:
    """Return True for the machine's own addresses."""
    address = _address(peer)
    return address is not None and address.is_loopback


def network_of(peer: str) -> str:
    """Return the unit for counting bad logins: an address, or the /64 network of an IPv6 host."""
    address = _address(peer)
    if address is None:
        return peer[:64]
    # One host usually has a whole /64, so a limit per IPv6 address would be none.
    return str(address) if address.version == 4 else str(ip_network((int(address), 64), strict=False))


def _same(origin: str, host: str, scheme: str) -> bool:
    """Return True if an origin is the server's own: scheme (see the module's docstring), host and port."""
    try:
        page, here = urlsplit(origin), urlsplit(f"//{host}")
        if page.scheme not in _PORTS or not page.hostname or page.username is not None:
            return False
        if scheme not in _PORTS:
            scheme = "http" if here.hostname in LOOPBACK else page.scheme
        return (
            page.scheme == scheme
            and page.hostname == here.hostname
            # RFC 6454, section 6.2: an origin omits the default port of its scheme.
            and (page.port or _PORTS[page.scheme]) == (here.port or _PORTS[page.scheme])
        )
    except ValueError:
        return False


def is_within(peer: str, networks: tuple[str, ...]) -> bool:
    """Return True if the address is one of these addresses, or in one of these networks."""
    address = _address(peer)
    return address is not None and any(address in ip_network(network, strict=False) for network in networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; IPv4-mapped IPv6 (`::ffff:192.0.2.1`) becomes IPv4."""
    try:
        # Without the zone of a link-local address, such as `%eth0`.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
