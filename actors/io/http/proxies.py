"""Proxy selection by origin, from the environment or one setting, and the credentials in a proxy's URL."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from functools import lru_cache

import httpx

from ....protocol.errors import ConfigError

DIRECT = "-"
"""Proxy setting for a direct connection, whatever the environment says."""


class Proxies:
    """Proxy selection by origin, from the standard variables.

    `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case (lower case wins, as in curl). As
    in Go, requests to loopback addresses never use a proxy. So a local model server works even if `HTTP_PROXY` is set
    and `NO_PROXY` was forgotten.

    Args:
        environ: environment variables.
        fixed: one proxy for everything (a URL), `DIRECT`, or empty to use `environ`.
    """

    def __init__(self, environ: Mapping[str, str], fixed: str = "") -> None:
        self._fixed = fixed.strip()
        self._https = _variable(environ, "https_proxy") or _variable(environ, "all_proxy")
        self._http = _http_proxy(environ) or _variable(environ, "all_proxy")
        self._exceptions = [part.strip().lower() for part in _variable(environ, "no_proxy").split(",") if part.strip()]

    def of(self, scheme: str, host: str, port: int) -> httpx.URL | None:
        """Return the proxy for an origin, or None for a direct connection.

        Raises:
            ConfigError: the setting is not a usable proxy URL.
        """
        if self._fixed:
            return None if self._fixed == DIRECT else _url(self._fixed)
        chosen = self._https if scheme == "https" else self._http
        excepted = any(_matches(pattern, host.lower(), port) for pattern in self._exceptions)
        # The proxy's own loopback is another machine's, so these hosts never go through one; Go's net/http decides the
        # same.
        if not chosen or excepted or _is_loopback(host):
            return None
        return _url(chosen)


def proxy_headers(proxy: httpx.URL) -> list[tuple[bytes, bytes]]:
    """Return the authorization header for the proxy, if its URL has credentials."""
    if not proxy.userinfo:
        return []
    words = f"{proxy.username}:{proxy.password}".encode()
    return [(b"Proxy-Authorization", b"Basic " + base64.b64encode(words))]


@lru_cache(maxsize=1_024)
def as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if not host[-1:].isdigit() and ":" not in host:
        return None  # a name, by a cheap test
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip() or environ.get(name.upper(), "").strip()


def _http_proxy(environ: Mapping[str, str]) -> str:
    """Return the http proxy.

    In a CGI script a client can set HTTP_PROXY by a `Proxy:` header, so only lower case counts.
    """
    if "REQUEST_METHOD" in environ:
        return environ.get("http_proxy", "").strip()
    return _variable(environ, "http_proxy")


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL as error:
        raise ConfigError(f"the address of the proxy, '{text}', is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"the proxy '{text}' can't be used: only http:// and https:// proxies are supported")
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = as_address(host)
    return address is not None and address.is_loopback


def _matches(pattern: str, host: str, port: int) -> bool:
    """Match `*`, `host`, `.domain`, `*.domain`, `host:port`, an address, or a network such as `10.0.0.0/8`."""
    if pattern == "*":
        return True
    address = as_address(host)
    if "/" in pattern:
        try:
            return address is not None and address in ipaddress.ip_network(pattern, strict=False)
        except ValueError:
            return False
    name, colon, number = pattern.rpartition(":")
    # `[::1]:80` has a port; the last part of a bare `::1` is digits too, but belongs to the address.
    if colon and number.isdigit() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        pattern = name.strip("[]")
    pattern = pattern.removeprefix("*")
    domain = pattern if pattern.startswith(".") else f".{pattern}"
    # Only names match by suffix: `.0.0.1` must not match 10.0.0.1.
    return host == pattern.lstrip(".") or (address is None and host.endswith(domain))
