"""Discovery of the authorization server of an MCP server, and requests to the addresses that servers name.

The server's challenge names its document, or the document is at a well-known address. That document names authorization
servers, whose documents are at well-known addresses too. Servers of the first revision with a login (2025-03-26) have
no document of their own and are their own authorization server. Their metadata may name an issuer below a path of the
same origin. Without metadata the endpoints are `/authorize`, `/token` and `/register` of the origin, as that revision
defines. That applies only if every well-known address answers 404, and only until registration fails.

A public server must not make this process connect to this machine or to a private network. The address of the
connection decides, not the name (see `io.http.guarded`). A private server may name its neighbours. A server counts as
private if the answer that demanded a login came from a private address. A later DNS answer can't forge that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar
from urllib.parse import urljoin

import msgspec
import trio

from .....protocol.decoding import convert
from .....protocol.errors import CallboardError, ConfigError
from ....io.http.guarded import CantFetch, GuardedTransport, is_private
from ....io.http.transport import (
    KEEP_ALIVE,
    MAX_IDLE,
    ConnectionRoute,
    Connections,
    PlainWire,
    TrioTransport,
    Wire,
    peer,
)
from ....io.oauth.endpoint import AuthHttp, OAuthResponse
from . import metadata
from .metadata import AuthorizationServer, ProtectedResource, Unusable

WITHIN = 30.0
"""Seconds for the whole discovery."""

REDIRECTS = 3
ISSUERS = 4
"""Authorization servers that are tried; the first with a usable document is taken."""

T = TypeVar("T")


class DocumentGetter(Protocol):
    """Interface for downloading OAuth metadata documents."""

    async def get(self, url: str, what: str) -> OAuthResponse:
        """Return the answer to a GET for a JSON object, of any status. Raises `CallboardError` without an answer."""
        ...


class DiscoveredLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Result of discovery.

    Attributes:
        resource: resource of the token, spelled as in the server's document; without one, the server's canonical URL.
        document: the server's document; None for a server without one.
        server: the authorization server.
        assumed: reason why the endpoints are the unpublished defaults of 2025-03-26; empty if they were published.
    """

    resource: str
    document: ProtectedResource | None
    server: AuthorizationServer
    assumed: str = ""


async def discover(
    url: str,
    http: DocumentGetter,
    *,
    advertised: str = "",
    configured: str = "",
    assume_pkce: bool = False,
    browser: bool = True,
    trusted: DocumentGetter | None = None,
) -> DiscoveredLogin:
    """Discover the authorization server for the MCP server at `url`.

    Args:
        advertised: address of its document, from its challenge.
        configured: address of the authorization server's document, from the user's entry.
        assume_pkce, browser: see `metadata.checked_endpoints`.
        trusted: getter for the document that the user names, used in place of `http`.

    Raises:
        Unusable: there is no authorization server, or no safe one, or none was found within `WITHIN` seconds.
    """
    metadata.safe_address(url, "its `url`")
    with trio.move_on_after(WITHIN):
        search = _Search(http, assume_pkce=assume_pkce, browser=browser)
        document = await search.resource(url, advertised)
        resource = metadata.canonical(url) if document is None else document.resource
        if configured:
            # The user vouches for this address, so it may be private.
            server = await search.named(configured, trusted or http)
        elif document is not None and document.authorization_servers:
            server = await search.first(document.authorization_servers)
        else:
            server = await search.own(metadata.origin(url), undocumented=document is None and search.all_absent)
        return DiscoveredLogin(resource=resource, document=document, server=server, assumed=search.assumed)
    raise Unusable(f"the authorization server of the MCP server was not found within {WITHIN:g} s")


class _Search:
    """State of one discovery.

    Attributes:
        seen: unsuccessful addresses, with the reasons.
        absent: number of addresses that answered 404.
        assumed: see `DiscoveredLogin`.
    """

    def __init__(self, http: DocumentGetter, *, assume_pkce: bool, browser: bool) -> None:
        self._http = http
        self._assume_pkce = assume_pkce
        self._browser = browser
        self.seen: list[str] = []
        self.absent = 0
        self.assumed = ""

    async def resource(self, url: str, advertised: str) -> ProtectedResource | None:
        """Return the server's own document; None if it has none."""
        if advertised:
            metadata.safe_address(advertised, "the address of its protected resource metadata")
        wrong: Unusable | None = None
        for address in metadata.resource_addresses(url, advertised):
            document = await self._document(address, ProtectedResource)
            if document is None:
                continue
            try:
                return metadata.checked_resource(document, url)
            except Unusable as error:  # the document at the root may describe another server of that host
                if address == advertised:
                    raise
                wrong = wrong or error
        if wrong is not None:
            raise wrong
        return None

    @property
    def all_absent(self) -> bool:
        """True if addresses were asked without success, and all of them answered 404."""
        return 0 < len(self.seen) == self.absent

    async def first(self, issuers: tuple[str, ...]) -> AuthorizationServer:
        """Return the first usable document of these issuers."""
        wrong: Unusable | None = None
        # The list is untrusted: without a limit a server could cause any number of requests.
        for issuer in issuers[:ISSUERS]:
            try:
                return await self._issuer(issuer)
            except Unusable as error:
                wrong = wrong or error
        assert wrong is not None, "there is at least one issuer"
        raise wrong

    async def own(self, origin: str, *, undocumented: bool) -> AuthorizationServer:
        """Return the server's own origin as authorization server, with the defaults of 2025-03-26 if `undocumented`."""
        try:
            return await self._issuer(origin, below=undocumented)
        except Unusable as error:
            if not undocumented or not self.all_absent:
                raise
            self.assumed = str(error)
        return AuthorizationServer(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            token_endpoint_auth_methods_supported=("none", "client_secret_post", "client_secret_basic"),
        )

    async def named(self, address: str, http: DocumentGetter) -> AuthorizationServer:
        """Return the document at an address that the user names; it may declare any issuer."""
        metadata.safe_address(address, "`authServerMetadataUrl`")
        server = await self._document(address, AuthorizationServer, http)
        if server is None:
            raise Unusable(
                f"no metadata of an authorization server was found at `authServerMetadataUrl`: {self.seen[-1]}"
            )
        return metadata.checked_endpoints(server, assume_pkce=self._assume_pkce, browser=self._browser)

    async def _issuer(self, issuer: str, *, below: bool = False) -> AuthorizationServer:
        """Return the issuer's document; with `below` also one whose issuer is a path of this origin."""
        metadata.safe_address(issuer, "its authorization server")
        # `all_absent` and the error concern the addresses of this issuer only.
        self.seen.clear()
        self.absent = 0
        for address in metadata.issuer_addresses(issuer):
            server = await self._document(address, AuthorizationServer)
            if server is not None:
                metadata.checked_issuer(server, issuer, below=below)
                return metadata.checked_endpoints(server, assume_pkce=self._assume_pkce, browser=self._browser)
        raise Unusable(f"{issuer} publishes no authorization server metadata: {'; '.join(self.seen)}")

    async def _document(self, address: str, kind: type[T], http: DocumentGetter | None = None) -> T | None:
        """Return the document of this kind at an address; None if there is none."""
        what, http = "the authorization server metadata", http or self._http
        try:
            answer = await http.get(address, what)
            for _ in range(REDIRECTS):
                target = _redirected(address, answer)
                if target is None:
                    break
                answer = await http.get(target, what)
        except CallboardError as error:
            self.seen.append(f"{address}: {error}")
            return None
        if answer.status != 200 or answer.fields is None:
            self.absent += answer.status == 404
            self.seen.append(f"{address}: {f'HTTP {answer.status}' if answer.status != 200 else 'no JSON'}")
            return None
        try:
            return convert(answer.fields, kind)
        except msgspec.ValidationError as error:
            self.seen.append(f"{address}: {error}")
            return None


def _redirected(address: str, answer: OAuthResponse) -> str | None:
    """Return the redirect target of an answer if it is on the same origin."""
    location = answer.headers.get("location", "")
    if answer.status not in (301, 302, 303, 307, 308) or not location:
        return None
    try:
        target = urljoin(address, location)
        return target if metadata.origin(target) == metadata.origin(address) else None
    except ValueError:
        return None


class ProbeTransport(TrioTransport):
    """Transport without restrictions that records the address of the peer.

    Args:
        environ: for proxies and certificates.

    Attributes:
        private: True if the last connection leads directly to a private address, not to a proxy.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ=environ)
        self.connections = self._seen = _Seen(environ)

    @property
    def private(self) -> bool:
        return bool(self._seen.peer) and is_private(self._seen.peer)


class _Seen(Connections):
    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ, "", None, keep_alive=KEEP_ALIVE, max_idle=MAX_IDLE)
        self.peer = ""

    async def _wire(self, route: ConnectionRoute) -> Wire:
        wire = await super()._wire(route)
        # The peer is the proxy then, whose address says nothing about the server's.
        if route.proxy:
            self.peer = ""
        return wire

    async def _connected(self, host: str, port: int) -> PlainWire:
        wire = await super()._connected(host, port)
        self.peer = peer(wire)
        return wire


class GuardedAuthHttp(AuthHttp):
    """HTTP client for OAuth that refuses connections to private addresses with `ConfigError`.

    Args:
        environ: for proxies and certificates.
        private: True if the server is private itself; then private addresses are allowed.
    """

    def __init__(self, environ: Mapping[str, str], *, private: bool) -> None:
        super().__init__(environ)
        self._private = private

    def _transport(self) -> GuardedTransport:
        return GuardedTransport(self._environ, allow_private=self._private)

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> OAuthResponse:
        try:
            return await super()._send(method, url, what, body, headers)
        except CantFetch as error:
            raise ConfigError(f"{what}: {error}") from error
