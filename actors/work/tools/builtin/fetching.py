"""Gets a web page, within bounds: http and https only, a few redirects, a few seconds, a few megabytes.

Private addresses are allowed, since a developer's own servers live there. Refused are the addresses where clouds hand
out credentials (link-local, such as 169.254.169.254): the check is of the address that a connection really leads to, so
neither a name nor a redirect nor an odd spelling gets around it. Through a proxy the proxy decides; only addresses
that are written out are refused here then.
"""

from __future__ import annotations

import codecs
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import httpx
import msgspec
import trio

from .....protocol.errors import ToolFailed
from ....io.http.connections import Connections
from ....io.http.transport import KEEP_ALIVE, MAX_IDLE, TrioTransport
from ....io.http.wires import peer

if TYPE_CHECKING:
    from ....io.http.wires import PlainWire

SECONDS = 30.0
"""For one page, redirects included."""

LARGEST = 4 * 1024 * 1024
"""Bytes of a page that are read."""

REDIRECTS = 10
SHOWN = 500

AGENT = "Mozilla/5.0 (compatible; callboard/0.1)"
"""Some servers refuse those who do not begin like this."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_WRAPPING = tuple(map(ipaddress.ip_network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Networks whose addresses end with one of the old kind: compatible ones, and those of NAT64."""

_NO_CHARSETS = frozenset(("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"))
"""Codecs of Python's that are not for pages: they fail where others replace, or take for ever."""

_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was got.

    Attributes:
        url: where it was found in the end.
        kind: its content type, without parameters.
        text: its text, decoded.
        cut: whether there was more.
    """

    url: str
    kind: str
    text: str
    cut: bool


async def get(
    url: str,
    environ: Mapping[str, str],
    *,
    params: Mapping[str, str] | None = None,
    accept: str = "*/*",
    within: float = SECONDS,
) -> Page:
    """Get a page as text.

    Raises:
        ToolFailed: it can't be got, is refused, is an error, or is not text.
    """
    try:
        target = httpx.URL(url, params=params) if params else httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError, TypeError) as error:
        raise ToolFailed(f"{url[:200]!r} is no URL: {error}") from error
    page = None
    transport = _Transport(environ)
    with trio.move_on_after(within):
        async with httpx.AsyncClient(transport=transport, timeout=within, trust_env=False) as client:
            page = await _follow(client, target, {"User-Agent": AGENT, "Accept": accept})
    if page is None:
        raise ToolFailed(f"{target.host} did not answer within {within:g} s")
    return page


async def _follow(client: httpx.AsyncClient, url: httpx.URL, headers: dict[str, str]) -> Page:
    for _ in range(REDIRECTS + 1):
        if url.scheme not in ("http", "https") or not url.host:
            raise ToolFailed(f"'{_short(url)}' is not an http or https URL")
        if is_metadata(url.host):
            raise ToolFailed(_refused(url.host))
        try:
            async with client.stream("GET", url, headers=headers) as response:
                if not response.has_redirect_location:
                    return await _page(response, url)
                url = url.join(response.headers["location"])
        except _Refused as error:
            raise ToolFailed(str(error)) from error
        except httpx.InvalidURL as error:
            raise ToolFailed(f"{url.host} redirects to something that is no URL: {error}") from error
        except (httpx.HTTPError, OSError) as error:
            why = str(error).rpartition("can't be reached: ")[2] or type(error).__name__
            raise ToolFailed(f"{url.host} is not reachable: {why}") from error
    raise ToolFailed(f"more than {REDIRECTS} redirects, the last to {_short(url)}")


async def _page(response: httpx.Response, url: httpx.URL) -> Page:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > LARGEST:
            break
    cut = len(body) > LARGEST
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if response.status_code >= 400 or response.status_code == 304:
        words = f"{response.status_code} {response.reason_phrase}".strip()
        shown = body[:SHOWN].decode(errors="replace") if _is_text(kind, body) else ""
        raise ToolFailed(f"{_short(url)} answered {words}", stderr=shown)
    if not _is_text(kind, body):
        raise ToolFailed(f"{_short(url)} is {kind or 'binary data'}, not text")
    text = bytes(body[:LARGEST]).decode(_encoding(response, body), errors="replace")
    return Page(url=str(url), kind=kind, text=text, cut=cut)


def _is_text(kind: str, body: bytearray) -> bool:
    named = kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))
    return named or (kind in ("", "application/octet-stream") and b"\0" not in body[:8192])


def _encoding(response: httpx.Response, body: bytearray) -> str:
    named = response.charset_encoding
    if named is None:
        head = bytes(body[:2048]).lower()
        at = head.find(b"charset=")
        named = head[at + 8 : at + 40].strip(b"\"' ").split(b'"')[0].split(b"'")[0].split(b">")[0].decode("latin-1")
        named = named if at >= 0 else None
    try:
        known = codecs.lookup(named or "utf-8").name
        b"a".decode(known, "replace")
    except (LookupError, ValueError):  # not there, or no charset at all: `hex`
        return "utf-8"
    return "utf-8" if known in _NO_CHARSETS else known


def _short(url: httpx.URL) -> str:
    text = str(url)
    return text if len(text) <= 200 else text[:197] + "..."


# --- where not to go --------------------------------------------------------------------------------------


class _Refused(Exception):
    """The connection leads where nobody is to go."""


class _Connections(Connections):
    """Looks at the other end of every connection before a byte is sent."""

    async def _connected(self, host: str, port: int) -> PlainWire:
        wire = await super()._connected(host, port)
        if is_metadata(peer(wire)):
            wire.close()
            raise _Refused(_refused(host))
        return wire


class _Transport(TrioTransport):
    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ=environ)
        self.connections = _Connections(
            environ, "", None, keep_alive=KEEP_ALIVE, max_idle=MAX_IDLE, max_per_origin=None
        )


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


def _refused(host: str) -> str:
    return f"'{host}' leads to an address where machines keep their credentials; it is never fetched"
