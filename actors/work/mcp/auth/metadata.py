"""OAuth metadata documents: their addresses and the checks that they must pass. Pure functions.

A protected resource (the MCP server) names its authorization servers (RFC 9728). An authorization server names its
endpoints (RFC 8414, or OpenID Connect Discovery). Both documents are untrusted; nothing in them is used before these
checks:

- The resource is the requested server, or a path above it on the same origin. A document that names another resource
  would make this client get a token for that and send it here. The value is sent exactly as written, since
  authorization servers compare it byte by byte.
- The issuer is the one whose well-known address the document came from. One trailing slash may differ: both spellings
  lead to the same address, and many documents differ in it.
- Every endpoint is https, or on this machine. Browsers open only addresses that pass this check.
- PKCE with S256 is advertised.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"

OFFLINE = "offline_access"
"""Scope with which OpenID Connect issues refresh tokens."""

LONGEST_URL = 4096
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_PORTS = {"http": 80, "https": 443}


class Unusable(Exception):
    """Metadata that can't be used. The text is for users."""


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata document of an MCP server as a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] | None = None
    scopes_supported: tuple[str, ...] | None = None
    resource_name: str | None = None


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata document of an authorization server (RFC 8414, or OpenID Connect Discovery)."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    grant_types_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None


# --- addresses --------------------------------------------------------------------------------------


def resource_addresses(url: str, advertised: str = "") -> list[str]:
    """Return the possible addresses of a server's document, the likeliest first; `advertised` is from its challenge."""
    parts = urlsplit(url)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path
    paths = [path, path.rstrip("/"), ""] if path.strip("/") else [""]
    return list(dict.fromkeys([*filter(None, [advertised]), *(f"{base}{RESOURCE}{each}" for each in paths)]))


def issuer_addresses(issuer: str) -> list[str]:
    """Return the possible addresses of an authorization server's document, in the specification's order."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [f"{base}{OAUTH}", f"{base}{OPENID}"]
    return [f"{base}{OAUTH}{path}", f"{base}{OPENID}{path}", f"{base}{path}{OPENID}"]


# --- checks -----------------------------------------------------------------------------------------


def canonical(url: str) -> str:
    """Return a server's address as a resource (RFC 8707).

    Scheme and host are in lower case. A default port, the fragment, and a path that is only a slash are left out.
    """
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    query = f"?{parts.query}" if parts.query else ""
    return f"{origin(url)}{path}{query}"


def origin(url: str) -> str:
    """Return scheme, host and port of an address in lower case; the port only if it is not the default."""
    parts = urlsplit(url)
    scheme, host, port = parts.scheme.lower(), (parts.hostname or "").rstrip("."), parts.port
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}" + ("" if port is None or port == _PORTS.get(scheme) else f":{port}")


def covers(resource: str, url: str) -> bool:
    """Return True if a resource is the server at `url`, or a path above it on the same origin.

    A resource with a query covers only addresses with that query; one with a fragment or a user name covers none. May
    raise `ValueError` for invalid URLs.
    """
    claimed, ours = urlsplit(resource), urlsplit(url)
    if claimed.fragment or claimed.username is not None or origin(resource) != origin(url):
        return False
    if claimed.query and claimed.query != ours.query:
        return False
    # With the slashes, `/mcp` does not cover `/mcp-other`.
    return f"{ours.path.rstrip('/')}/".startswith(f"{claimed.path.rstrip('/')}/")


def checked_resource(document: ProtectedResource, url: str) -> ProtectedResource:
    """Return the document if it is about the server at `url`.

    Raises:
        Unusable: it is about another server.
    """
    try:
        ours = covers(document.resource, url)
    except ValueError:
        ours = False
    if not ours:
        raise Unusable(
            f"the protected resource metadata of the MCP server is for {quoted(document.resource)}, not for "
            f"{canonical(url)}; a token for the former must not be sent to the latter"
        )
    return document


def checked_issuer(document: AuthorizationServer, issuer: str, *, below: bool = False) -> AuthorizationServer:
    """Return the document if it belongs to that issuer.

    Args:
        below: accept a path below `issuer`, which is an origin and so controls everything published there.

    Raises:
        Unusable: it belongs to another issuer.
    """
    try:
        same = below and covers(issuer, document.issuer)
    except ValueError:
        same = False
    if not same and document.issuer.removesuffix("/") != issuer.removesuffix("/"):
        raise Unusable(
            f"the metadata of the authorization server {issuer} names another issuer, {quoted(document.issuer)}"
        )
    return document


def checked_endpoints(document: AuthorizationServer, *, assume_pkce: bool, browser: bool = True) -> AuthorizationServer:
    """Return the document if a login with it is safe.

    Args:
        assume_pkce: the user asserts that the server supports PKCE.
        browser: the login uses the server's page in a browser.

    Raises:
        Unusable: an endpoint is missing or unsafe, or PKCE is not supported.
    """
    who = f"the authorization server {document.issuer}"
    safe_address(document.issuer, f"the issuer of {who}")
    needed = ["token_endpoint", *(["authorization_endpoint"] if browser else [])]
    for name in (*needed, "registration_endpoint", "revocation_endpoint"):
        address = getattr(document, name)
        if address is not None:
            safe_address(address, f"`{name}` of {who}")
        elif name in needed:
            raise Unusable(f"{who} publishes no `{name}`")
    # Without PKCE another program on this machine could redeem an intercepted code.
    methods = document.code_challenge_methods_supported
    if browser and methods is None and not assume_pkce:
        raise Unusable(
            f"{who} does not declare support for PKCE (`code_challenge_methods_supported`), which MCP "
            'requires; if you know that it supports PKCE, add "oauth": {"assumePkce": true} to the entry in '
            "mcp.json"
        )
    if browser and methods is not None and "S256" not in methods:
        raise Unusable(
            f"{who} supports PKCE only with {', '.join(methods)[:100] or 'no method'}, and MCP requires S256"
        )
    return document


def safe_address(address: str, what: str) -> str:
    """Return the address if credentials may be sent to it: https, or http on this machine.

    Raises:
        Unusable: it is any other address.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if not host or len(address) > LONGEST_URL or not _ADDRESS.fullmatch(address):
        raise Unusable(f"{what} is not an http or https URL: {quoted(address)}")
    # `https://bank.example@evil.example/` shows one host and leads to another.
    if parts.username is not None or parts.fragment:
        raise Unusable(f"{what} must not contain a user name or a fragment: {quoted(address)}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise Unusable(f"{what} is {quoted(address)}; only https:// is accepted, or http:// on this machine")
    return address


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine, judged by the name alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# --- scopes -------------------------------------------------------------------------------------------------


def words(scope: str | None) -> tuple[str, ...]:
    """Return the distinct scopes in a text, which are separated by blanks."""
    return tuple(dict.fromkeys((scope or "").split()))


def union(*scopes: Iterable[str]) -> tuple[str, ...]:
    """Return all scopes without duplicates, in order."""
    return tuple(dict.fromkeys(scope for each in scopes for scope in each))


def scopes_for(
    *,
    configured: tuple[str, ...] | None,
    challenged: tuple[str, ...],
    resource: ProtectedResource | None,
    server: AuthorizationServer,
) -> tuple[str, ...]:
    """Return the scopes of a first login: the user's, else the challenge's, else the resource's.

    () leaves the choice to the authorization server. `offline_access` is added to scopes of the challenge or the
    resource if the server supports it, to get a refresh token; never to the user's.
    """
    if configured is not None:
        return configured
    chosen = challenged or (resource.scopes_supported if resource is not None else None) or ()
    return union(chosen, [OFFLINE]) if chosen and OFFLINE in (server.scopes_supported or ()) else union(chosen)


def quoted(text: str) -> str:
    """Return untrusted text quoted and shortened for messages."""
    return repr(text if len(text) <= 200 else f"{text[:197]}...")
