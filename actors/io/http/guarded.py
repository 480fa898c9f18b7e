"""Fetches untrusted URLs (from models and pages): http and https only, few redirects, and no refused address.

Refused are the addresses where clouds hand out credentials (link-local, such as 169.254.169.254), and where the caller
wants it, this machine and private networks; a developer's own servers live there, so some callers allow them. What
counts is the address that a connection leads to. So a name is resolved and checked before anything is connected, and
the peer's address is checked once more afterwards, since a second look-up may give another address (DNS rebinding);
neither a name nor a redirect nor an odd spelling gets around it. A proxy is exempt: the user has configured it. It
resolves names itself, so that only URLs with a literal address are refused then.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

import httpx
import trio

from .connections import Connections, Route, port_of
from .http1 import unpacked, unpacker_of
from .transport import KEEP_ALIVE, MAX_IDLE, TrioTransport
from .wires import PlainWire, Wire, peer

AGENT = "Mozilla/5.0 (compatible; callboard/0.1)"
"""Some servers refuse clients without this prefix."""

HEADERS = {"User-Agent": AGENT, "Accept-Encoding": "gzip, deflate"}
REDIRECTS = 10

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
T = TypeVar("T")

_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_WRAPPING = tuple(map(ipaddress.ip_network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Networks whose addresses end with one of the old kind: compatible ones, and those of NAT64."""

_PRIVATE_TOO = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "::/96", "64:ff9b:1::/48", "fec0::/10")))
"""What is of no public use, though not every Python says so: a cloud's credentials, and three old ways to go inside."""


class CantFetch(Exception):
    """The page can't be fetched. The text says why."""


class Refused(CantFetch):
    """The address is one of those where pages are not fetched from."""


class Private(Refused):
    """The address is of this machine or a private network, which the caller does not allow."""


# --- pages --------------------------------------------------------------------------------------------------


def client(environ: Mapping[str, str], *, allow_private: bool, seconds: float) -> httpx.AsyncClient:
    """A client that goes nowhere but where it may. See `GuardedTransport`; `seconds` is for each step of a request."""
    transport = GuardedTransport(environ, allow_private=allow_private)
    return httpx.AsyncClient(transport=transport, timeout=seconds, trust_env=False)


async def followed(
    url: str | httpx.URL,
    once: Callable[[httpx.URL], Awaitable[T | httpx.URL]],
    *,
    allowed: Callable[[httpx.URL], bool] | None = None,
) -> T:
    """What is at a URL, or where it leads.

    Args:
        once: makes one request of a `client`; what it gives, or the URL that it is redirected to.
        allowed: where redirects may lead; anywhere by default.

    Raises:
        CantFetch: it can't be got, or may not be.
    """
    target = httpx.URL("")
    try:
        target = httpx.URL(url)
        for _ in range(REDIRECTS + 1):
            if target.scheme not in ("http", "https") or not target.host:
                raise CantFetch(f"it leads to '{short(target)}', which is not http or https")
            got = await once(target)
            if not isinstance(got, httpx.URL):
                return got
            target = got
            if allowed is not None and not allowed(target):
                raise CantFetch(f"it redirects to {short(target)}, which is not among the pages that are wanted")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise CantFetch(f"it is, or redirects to, something that is no URL: {error}") from error
    except (httpx.HTTPError, OSError) as error:
        why = str(error).rpartition("can't be reached: ")[2] or type(error).__name__
        reached = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, OSError))
        what = f"the answer of {target.host} is of no use" if reached else f"{target.host} is not reachable"
        raise CantFetch(f"{what}: {why}") from error
    raise CantFetch(f"more than {REDIRECTS} redirects, the last to {short(target)}")


def redirected(response: httpx.Response, url: httpx.URL) -> httpx.URL | None:
    """Where the answer of `url` sends us; None if it is the answer itself."""
    return url.join(response.headers["location"]) if response.has_redirect_location else None


async def body_of(response: httpx.Response, most: int) -> bytes:
    """Its body, unpacked, and no more of it than is needed to see that it has more than `most` bytes."""
    unpacker = unpacker_of(response.headers.get("content-encoding", ""))
    body = bytearray()
    async for piece in response.aiter_raw():
        for part in (piece,) if unpacker is None else unpacked(unpacker, piece):
            body += part
            if len(body) > most:
                return bytes(body)
            await trio.lowlevel.checkpoint()  # a few bytes may unpack to all that is allowed
    return bytes(body)


def short(url: httpx.URL) -> str:
    """A URL for messages."""
    text = str(url)
    return text if len(text) <= 200 else f"{text[:197]}..."


# --- where not to go ----------------------------------------------------------------------------------------


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
        super().__init__(environ, "", None, keep_alive=KEEP_ALIVE, max_idle=MAX_IDLE)
        self._allow_private = allow_private
        self._through: set[tuple[str, int]] = set()

    async def _piped(self, route: Route) -> Wire:
        if route.proxy:
            check(route.host, route.host, allow_private=self._allow_private)
            proxy = httpx.URL(route.proxy)
            self._through.add((proxy.host, port_of(proxy)))
        return await super()._piped(route)

    async def _connected(self, host: str, port: int) -> PlainWire:
        if (host, port) in self._through:
            return await super()._connected(host, port)
        for address in await looked_up(host, port):
            check(address, host, allow_private=self._allow_private)
        wire = await super()._connected(host, port)
        try:
            check(peer(wire), host, allow_private=self._allow_private)
        except Refused:
            wire.close()
            raise
        return wire


async def tunnel(host: str, port: int, environ: Mapping[str, str], *, allow_private: bool) -> Wire:
    """A connection for somebody else's bytes, to where they may go. It is the caller's to close.

    Raises:
        Refused: they may not go there.
        httpx.TransportError: it can't be opened.
    """
    return await _Connections(environ, allow_private=allow_private).tunnel(host, port)


def check(address: str, host: str, *, allow_private: bool) -> None:
    """Refuse an address; a name is none, and passes.

    Raises:
        Refused: pages are not fetched from there.
    """
    if is_metadata(address):
        raise Refused(f"'{host}' leads to an address where machines keep their credentials; it is never fetched")
    if not allow_private and is_private(address):
        raise Private(f"'{host}' leads to a private address ({address})")


def is_metadata(address: str) -> bool:
    """Whether an address is one where clouds hand out credentials, whichever way it is written."""
    return any(each.is_link_local or each in _METADATA for each in meant(address))


def meant(address: str) -> list[Address]:
    """The address, and those of the old kind that are wrapped in it; none if it is a name."""
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
    """Whether an address is not of the public internet, whichever way it is written."""
    return not all(
        each.is_global and not each.is_multicast and not any(each in network for network in _PRIVATE_TOO)
        for each in meant(address)
    )


async def looked_up(host: str, port: int) -> list[str]:
    """The addresses that a name leads to; none if that can't be found out."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # connecting will fail the same way, and says it better
    return [str(address[0]) for *_, address in found]
