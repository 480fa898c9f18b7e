"""What servers publish of how to log in: documents, where they lie, and what has to be true of them. Pure.

A protected resource (the MCP server) names its authorization servers (RFC 9728); an authorization server its endpoints
(RFC 8414, or OpenID Connect Discovery). Both are a stranger's documents: nothing in them counts before it is checked:

- the resource is the server that was asked for, or a path above it on the same origin: a document that names another
  one would have us get a token for that, and hand it over here. What it says is sent as it is written, since
  authorization servers compare letters;
- the issuer is the one whose well-known address the document came from. One terminating slash may differ: both
  spellings lead to that same address, and many documents have one where the other has none;
- every endpoint is https, or this machine's; browsers open what is checked here, so nothing else gets that far;
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
"""The scope by which OpenID Connect gives out refresh tokens."""

LONGEST_URL = 4096
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_PORTS = {"http": 80, "https": 443}


class Unusable(Exception):
    """What a server publishes can't be used. The text says what, and is fit for people."""


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9728."""

    resource: str
    authorization_servers: tuple[str, ...] | None = None
    scopes_supported: tuple[str, ...] | None = None
    resource_name: str | None = None


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 8414, and OpenID Connect Discovery."""

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


# --- where they lie -----------------------------------------------------------------------------------------


def resource_addresses(url: str, advertised: str = "") -> list[str]:
    """Where the document about a server may lie, the likeliest first; `advertised` is what its challenge says."""
    parts = urlsplit(url)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path
    paths = [path, path.rstrip("/"), ""] if path.strip("/") else [""]
    return list(dict.fromkeys([*filter(None, [advertised]), *(f"{base}{RESOURCE}{each}" for each in paths)]))


def issuer_addresses(issuer: str) -> list[str]:
    """Where the document of an authorization server may lie, in the order of the specification."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [f"{base}{OAUTH}", f"{base}{OPENID}"]
    return [f"{base}{OAUTH}{path}", f"{base}{OPENID}{path}", f"{base}{path}{OPENID}"]


# --- what has to be true ------------------------------------------------------------------------------------


def canonical(url: str) -> str:
    """The address of a server as a resource (RFC 8707): small letters, no fragment, no slash where there is no path."""
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    query = f"?{parts.query}" if parts.query else ""
    return f"{origin(url)}{path}{query}"


def origin(url: str) -> str:
    """Scheme, host and port of an address, in small letters; the port only where it is not the usual one."""
    parts = urlsplit(url)
    scheme, host, port = parts.scheme.lower(), (parts.hostname or "").rstrip("."), parts.port
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}" + ("" if port is None or port == _PORTS.get(scheme) else f":{port}")


def covers(resource: str, url: str) -> bool:
    """Whether a resource is the server at `url`, or a path above it. May raise `ValueError` for what is no URL."""
    claimed, ours = urlsplit(resource), urlsplit(url)
    if claimed.fragment or claimed.username is not None or origin(resource) != origin(url):
        return False
    if claimed.query and claimed.query != ours.query:
        return False
    return f"{ours.path.rstrip('/')}/".startswith(f"{claimed.path.rstrip('/')}/")


def checked_resource(document: ProtectedResource, url: str) -> ProtectedResource:
    """The document, if it is about the server at `url`.

    Raises:
        Unusable: it is about another.
    """
    try:
        ours = covers(document.resource, url)
    except ValueError:
        ours = False
    if not ours:
        raise Unusable(
            f"its protected resource metadata is about {quoted(document.resource)}, and not about {canonical(url)};"
            " a token for that must not be sent here"
        )
    return document


def checked_issuer(document: AuthorizationServer, issuer: str) -> AuthorizationServer:
    """The document, if it is that issuer's.

    Raises:
        Unusable: it is another's.
    """
    if document.issuer != issuer and document.issuer.removesuffix("/") != issuer.removesuffix("/"):
        raise Unusable(f"the metadata of the authorization server {issuer} says that it is {quoted(document.issuer)}")
    return document


def checked_endpoints(document: AuthorizationServer, *, assume_pkce: bool, browser: bool = True) -> AuthorizationServer:
    """The document, if a login by it is safe.

    Args:
        assume_pkce: the user knows that it does PKCE.
        browser: a person will log in at its page.

    Raises:
        Unusable: an endpoint is missing, or not to be used; or there is no PKCE.
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
    methods = document.code_challenge_methods_supported
    if browser and methods is None and not assume_pkce:
        raise Unusable(
            f"{who} does not say that it supports PKCE (`code_challenge_methods_supported`), which MCP demands;"
            ' if you know that it does, write "oauth": {"assumePkce": true} into the entry in mcp.json'
        )
    if browser and methods is not None and "S256" not in methods:
        raise Unusable(f"{who} supports PKCE only by {', '.join(methods)[:100] or 'no method'}, and not by S256")
    return document


def safe_address(address: str, what: str) -> str:
    """The address, if credentials may go there: https, or http on this machine.

    Raises:
        Unusable: it is something else.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if not host or len(address) > LONGEST_URL or not _ADDRESS.fullmatch(address):
        raise Unusable(f"{what} is no address on the web: {quoted(address)}")
    if parts.username is not None or parts.fragment:
        raise Unusable(f"{what} has a name or a fragment in it: {quoted(address)}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise Unusable(f"{what} is {quoted(address)}; only https:// is safe, or http:// on this machine")
    return address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# --- scopes -------------------------------------------------------------------------------------------------


def words(scope: str | None) -> tuple[str, ...]:
    """The scopes in a text, each once."""
    return tuple(dict.fromkeys((scope or "").split()))


def union(*scopes: Iterable[str]) -> tuple[str, ...]:
    """All of them, each once, the earlier first."""
    return tuple(dict.fromkeys(scope for each in scopes for scope in each))


def scopes_for(
    *,
    configured: tuple[str, ...] | None,
    challenged: tuple[str, ...],
    resource: ProtectedResource | None,
    server: AuthorizationServer,
) -> tuple[str, ...]:
    """The scopes of a first login: what the user says, else what the challenge wants, else what the resource has.

    None at all leaves the choice to the authorization server. To be given a refresh token, `offline_access` goes with
    the others where it is known.
    """
    if configured is not None:
        return configured
    chosen = challenged or (resource.scopes_supported if resource is not None else None) or ()
    return union(chosen, [OFFLINE]) if chosen and OFFLINE in (server.scopes_supported or ()) else union(chosen)


def quoted(text: str) -> str:
    """What a stranger wrote, for messages."""
    return repr(text if len(text) <= 200 else f"{text[:197]}...")
