"""Tells whether a page is there, without going where it must not.

Addresses come from strangers, so none of them leads into the network that we are in: a host's addresses are looked at
before one of them is connected to, at every redirect anew, and private ones are left alone unless the agent's variable
`private_sources` is "yes". Those where clouds hand out credentials always are. A proxy is exempt: whoever runs us set
it up. It decides where its requests go, and only addresses that are written out are refused then.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import socket
import ssl
import urllib.error
import urllib.request
from urllib.parse import quote, urljoin, urlsplit

SECONDS = 10.0
"""For every step of a connection."""

REDIRECTS = 5
CLOSED = (401, 402, 403, 407, 429, 451)
"""Such a page is there; it wants no programs to come, or money."""

PRIVATE_TOO = os.environ.get("LLM_AGENT_VAR_PRIVATE_SOURCES", "").lower() in ("yes", "true", "1")

_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; callboard/0.1)", "Accept": "*/*"}
_METADATA = [ipaddress.ip_address(address) for address in ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")]
_PRIVATE_TOO = [ipaddress.ip_network(net) for net in ("192.0.0.0/24", "::/96", "64:ff9b:1::/48", "fec0::/10")]
"""What is of no public use, though not every Python says so."""

_WRAPPING = [ipaddress.ip_network(net) for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")]
"""Networks whose addresses end with one of the old kind: compatible ones, and those of NAT64."""


def looked_up(url: str) -> tuple[str, str]:
    """What is with a page, "found", "broken" or "not checked", and why.

    HEAD is asked first; GET, of which nothing but the beginning is read, if that brought nothing.
    """
    try:
        try:
            _followed("HEAD", url)
        except (OSError, http.client.HTTPException):
            _followed("GET", url)
    except _Refused as refused:
        return "not checked", str(refused)
    except urllib.error.HTTPError as error:
        return ("found", "") if error.code in CLOSED else ("broken", f"{error.code} {error.reason}".strip())
    except urllib.error.URLError as error:
        return "broken", str(getattr(error.reason, "strerror", None) or error.reason)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return "broken", str(error) or type(error).__name__
    return "found", ""


def _followed(method: str, url: str) -> None:
    """Raises whatever keeps the page from being found."""
    for _ in range(REDIRECTS + 1):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError(f"it leads to {url}")
        _check(parts.hostname or "")
        request = urllib.request.Request(_in_ascii(url), method=method, headers=_HEADERS)  # noqa: S310 - http and https only
        try:
            _opener().open(request, timeout=SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
            # By hand: the library would read what a redirect says, however much that is.
            if error.code not in (301, 302, 303, 307, 308) or not error.headers.get("Location"):
                raise
            url = urljoin(url, error.headers["Location"])
        else:
            return
    raise ValueError(f"more than {REDIRECTS} redirects")


def _in_ascii(url: str) -> str:
    if url.isascii():
        return url
    parts = urlsplit(url)
    host = parts.netloc.encode("idna").decode("ascii")
    return quote(parts._replace(netloc=host).geturl(), safe=":/?#[]@!$&'()*+,;=%~")


# --- where not to go --------------------------------------------------------------------------------------


class _Refused(Exception):
    """Nobody is to go there."""


def _check(text: str) -> None:
    """Refuse an address that is private; a name is none, and passes."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return
    for each in (address, *_wrapped(address)):
        if each.is_link_local or each in _METADATA:
            raise _Refused("an address where machines keep their credentials")
        inside = not each.is_global or each.is_multicast or any(each in network for network in _PRIVATE_TOO)
        if inside and not PRIVATE_TOO:
            raise _Refused("a private address")


def _wrapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The addresses of the old kind that one of the new kind leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _WRAPPING):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def _connected(host: str, port: int) -> socket.socket:
    """A connection to one of the addresses that were looked at; the name is looked up once."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, address in found:
        _check(str(address[0]))
    problem = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(SECONDS)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            problem = error
        else:
            return sock
    raise problem


# --- the library, told to go through there ----------------------------------------------------------------


def _proxies() -> set[tuple[str | None, int | None]]:
    urls = (url if "://" in url else "http://" + url for url in urllib.request.getproxies().values())
    return {(parts.hostname, parts.port or 80) for parts in map(urlsplit, urls)}


class _Http(http.client.HTTPConnection):
    def connect(self) -> None:
        if (self.host, self.port) in _proxies():
            super().connect()
        else:
            self.sock = _connected(self.host, self.port)


class _Https(http.client.HTTPSConnection):
    def connect(self) -> None:
        if (self.host, self.port) in _proxies():
            super().connect()
        else:
            sock = _connected(self.host, self.port)
            self.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=self.host)


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Http, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Https, request)


def _opener() -> urllib.request.OpenerDirector:
    """Knows http and https: no files, no FTP, no cookies, no redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Handler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener
