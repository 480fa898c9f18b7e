"""Fetching of untrusted URLs (from models and pages): http and https only, few redirects, no refused addresses.

Refused are the metadata addresses of clouds, which serve credentials (link-local, such as 169.254.169.254), and
optionally this machine and private networks. A developer's own servers run there, so some callers allow them. The
address of the connection counts, not the name. A name is resolved and checked before connecting. The peer's address is
checked again afterwards, because a second lookup may return another address (DNS rebinding). So neither a name nor a
redirect nor an odd spelling circumvents the check. A proxy is exempt: the user has configured it. It resolves names
itself, so with a proxy only URLs with a literal address are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

import httpx
import trio

from .http1 import unpacked, unpacker_of
from .transport import KEEP_ALIVE, MAX_IDLE, ConnectionRoute, Connections, PlainWire, TrioTransport, Wire, peer, port_of

AGENT = "Mozilla/5.0 (compatible; callboard/0.1)"
"""User agent; some servers refuse clients without its prefix."""

HEADERS = {"User-Agent": AGENT, "Accept-Encoding": "gzip, deflate"}
REDIRECTS = 10

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
T = TypeVar("T")

_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_WRAPPING = tuple(map(ipaddress.ip_network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Networks whose addresses end with an IPv4 address: IPv4-compatible ones, and NAT64."""

_PRIVATE_TOO = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "::/96", "64:ff9b:1::/48", "fec0::/10")))
"""Non-public networks that some Python versions call global: one with a cloud's credentials, and three deprecated ones.
"""


class CantFetch(Exception):
    """The page can't be fetched. The text gives the reason."""


class AddressRefused(CantFetch):
    """The address may not be fetched: it serves cloud credentials, or belongs to a private network."""


class Private(AddressRefused):
    """The address belongs to this machine or a private network, and the caller does not allow that."""


# --- pages --------------------------------------------------------------------------------------------------


def client(environ: Mapping[str, str], *, allow_private: bool, seconds: float) -> httpx.AsyncClient:
    """Return a client with a `GuardedTransport`; `seconds` is the timeout of each step of a request."""
    transport = GuardedTransport(environ, allow_private=allow_private)
    return httpx.AsyncClient(transport=transport, timeout=seconds, trust_env=False)


async def followed(
    url: str | httpx.URL,
    once: Callable[[httpx.URL], Awaitable[T | httpx.URL]],
    *,
    allowed: Callable[[httpx.URL], bool] | None = None,
) -> T:
    """Follow redirects from a URL and return the final result.

    Args:
        once: sends one request of a `client`; returns its result, or the target of a redirect.
        allowed: returns True for permitted redirect targets; all by default.

    Raises:
        CantFetch: the page can't be fetched, or is refused.
    """
    target = httpx.URL("")
    try:
        target = httpx.URL(url)
        for _ in range(REDIRECTS + 1):
            if target.scheme not in ("http", "https") or not target.host:
                raise CantFetch(f"'{short(target)}' is not an http or https URL")
            got = await once(target)
            if not isinstance(got, httpx.URL):
                return got
            target = got
            if allowed is not None and not allowed(target):
                raise CantFetch(f"the page redirects to {short(target)}, which is outside of the pages to be read")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise CantFetch(f"the URL, or the target of a redirect, is not valid: {error}") from error
    except (httpx.HTTPError, OSError) as error:
        why = str(error).rpartition("can't be reached: ")[2] or type(error).__name__
        reached = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, OSError))
        what = f"the response of {target.host} can't be used" if reached else f"{target.host} can't be reached"
        raise CantFetch(f"{what}: {why}") from error
    raise CantFetch(f"more than {REDIRECTS} redirects, the last one to {short(target)}")


def redirected(response: httpx.Response, url: httpx.URL) -> httpx.URL | None:
    """Return the target of a redirect; None for other responses."""
    return url.join(response.headers["location"]) if response.has_redirect_location else None


async def body_of(response: httpx.Response, most: int) -> bytes:
    """Return the decompressed body. Reading stops after `most` bytes: a longer result is incomplete."""
    unpacker = unpacker_of(response.headers.get("content-encoding", ""))
    body = bytearray()
    async for piece in response.aiter_raw():
        for part in (piece,) if unpacker is None else unpacked(unpacker, piece):
            body += part
            if len(body) > most:
                return bytes(body)
            await trio.lowlevel.checkpoint()  # a few bytes may decompress to the whole limit
    return bytes(body)


def short(url: httpx.URL) -> str:
    """Return a URL for messages, cut to 200 characters."""
    text = str(url)
    return text if len(text) <= 200 else f"{text[:197]}..."


# --- refused addresses --------------------------------------------------------------------------------------


class GuardedTransport(TrioTransport):
    """HTTP transport that connects only to permitted addresses.

    Args:
        environ: environment for proxies and certificates.
        allow_private: True allows this machine and private networks. Metadata addresses are always refused.
    """

    def __init__(self, environ: Mapping[str, str], *, allow_private: bool) -> None:
        super().__init__(environ=environ)
        self.connections = _Connections(environ, allow_private=allow_private)


class _Connections(Connections):
    def __init__(self, environ: Mapping[str, str], *, allow_private: bool) -> None:
        super().__init__(environ, "", None, keep_alive=KEEP_ALIVE, max_idle=MAX_IDLE)
        self._allow_private = allow_private
        self._through: set[tuple[str, int]] = set()

    async def _piped(self, route: ConnectionRoute) -> Wire:
        if route.proxy:
            check(route.host, route.host, allow_private=self._allow_private)
            proxy = httpx.URL(route.proxy)
            self._through.add((proxy.host, port_of(proxy)))
        return await super()._piped(route)

    async def _connected(self, host: str, port: int) -> PlainWire:
        if (host, port) in self._through:
            return await super()._connected(host, port)
        for address in await resolve(host, port):
            check(address, host, allow_private=self._allow_private)
        wire = await super()._connected(host, port)
        try:
            check(peer(wire), host, allow_private=self._allow_private)
        except AddressRefused:
            wire.close()
            raise
        return wire


async def tunnel(host: str, port: int, environ: Mapping[str, str], *, allow_private: bool) -> Wire:
    """Return a raw connection for another program's bytes, to a permitted address. The caller closes it.

    Raises:
        AddressRefused: the address is not permitted.
        httpx.TransportError: it can't be opened.
    """
    return await _Connections(environ, allow_private=allow_private).tunnel(host, port)


def check(address: str, host: str, *, allow_private: bool) -> None:
    """Check that an address may be fetched. A host name instead of an address passes.

    Raises:
        AddressRefused: the address is not permitted.
    """
    if is_metadata(address):
        raise AddressRefused(
            f"'{host}' has an address that serves the credentials of cloud machines; such addresses are never fetched"
        )
    if not allow_private and is_private(address):
        raise Private(f"'{host}' has a private address ({address})")


def is_metadata(address: str) -> bool:
    """Return True for an address where clouds serve credentials, in any notation; False for a name."""
    return any(each.is_link_local or each in _METADATA for each in embedded_addresses(address))


def embedded_addresses(address: str) -> list[Address]:
    """Return the address and the IPv4 addresses embedded in it; none for a name."""
    try:
        known: Address = ipaddress.ip_address(address.strip("[]").split("%")[0])
    except ValueError:
        return []
    if isinstance(known, ipaddress.IPv4Address):
        return [known]
    wrapped = [known.ipv4_mapped, known.sixtofour, *(known.teredo or ())]
    if any(known in network for network in _WRAPPING):
        wrapped.append(ipaddress.IPv4Address(int(known) & 0xFFFFFFFF))
    return [known, *(each for each in wrapped if each is not None)]


def is_private(address: str) -> bool:
    """Return True for an address outside of the public internet, in any notation; False for a name."""
    return not all(
        each.is_global and not each.is_multicast and not any(each in network for network in _PRIVATE_TOO)
        for each in embedded_addresses(address)
    )


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name; none if it can't be resolved."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # connecting will fail with a better error
    return [str(address[0]) for *_, address in found]
