"""Finds out who gives out tokens for an MCP server, and where.

The server's challenge names its document, or the document lies at a well-known address; that names authorization
servers, whose documents lie at well-known addresses too. Servers of the first revision with a login (2025-03-26) have
no document of their own and are their own authorization server.

All of these addresses are a stranger's words. They are got within bounds (`WITHIN`, the size that `AuthHttp` allows),
a redirect is followed only within its origin, and private addresses only for servers that are private themselves (see
`http`), or where the user has named them. A page where a document should be (many sites answer everything with their
start page) counts as none.
"""

from __future__ import annotations

from typing import Protocol, TypeVar
from urllib.parse import urljoin

import msgspec
import trio

from .....protocol.decoding import convert
from .....protocol.errors import CallboardError
from ....io.oauth.http import Answer
from . import metadata
from .metadata import AuthorizationServer, ProtectedResource, Unusable

WITHIN = 30.0
"""Seconds for all of it."""

REDIRECTS = 3
ISSUERS = 4
"""Authorization servers that are tried; the first whose document can be used counts."""

T = TypeVar("T")


class Http(Protocol):
    """What gets a document."""

    async def get(self, url: str, what: str) -> Answer:
        """Ask for a JSON object. Raises `CallboardError` if there is no answer."""
        ...


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in to a server.

    Attributes:
        resource: what the token will be for, as its own document writes it.
        document: None for a server without one.
        server: who gives out the token.
    """

    resource: str
    document: ProtectedResource | None
    server: AuthorizationServer


async def discover(
    url: str,
    http: Http,
    *,
    advertised: str = "",
    configured: str = "",
    assume_pkce: bool = False,
    browser: bool = True,
    trusted: Http | None = None,
) -> Found:
    """How to log in to the server at `url`.

    Args:
        advertised: where its document lies, as its challenge says it.
        configured: where the document of the authorization server lies, as the user says it.
        assume_pkce, browser: see `metadata.checked_endpoints`.
        trusted: gets the document that the user names, in place of `http`.

    Raises:
        Unusable: there is no way, or none that is safe.
    """
    metadata.safe_address(url, "its `url`")
    with trio.move_on_after(WITHIN):
        search = _Search(http, assume_pkce=assume_pkce, browser=browser)
        document = await search.resource(url, advertised)
        resource = metadata.canonical(url) if document is None else document.resource
        if configured:
            server = await search.named(configured, trusted or http)
        else:
            issuers = document.authorization_servers if document is not None else None
            server = await search.first(issuers or (metadata.origin(url),))
        return Found(resource=resource, document=document, server=server)
    raise Unusable(f"how to log in could not be found out within {WITHIN:g} s")


class _Search:
    """Attributes: `seen`: what was looked at in vain, and why."""

    def __init__(self, http: Http, *, assume_pkce: bool, browser: bool) -> None:
        self._http = http
        self._assume_pkce = assume_pkce
        self._browser = browser
        self.seen: list[str] = []

    async def resource(self, url: str, advertised: str) -> ProtectedResource | None:
        """The server's own document; None if it has none."""
        if advertised:
            metadata.safe_address(advertised, "the address of its protected resource metadata")
        wrong: Unusable | None = None
        for address in metadata.resource_addresses(url, advertised):
            document = await self._document(address, ProtectedResource)
            if document is None:
                continue
            try:
                return metadata.checked_resource(document, url)
            except Unusable as error:  # the one at the root may be about another server of that host
                if address == advertised:
                    raise
                wrong = wrong or error
        if wrong is not None:
            raise wrong
        return None

    async def first(self, issuers: tuple[str, ...]) -> AuthorizationServer:
        """The document of the first of these that can be used."""
        wrong: Unusable | None = None
        for issuer in issuers[:ISSUERS]:
            try:
                return await self._issuer(issuer)
            except Unusable as error:
                wrong = wrong or error
        assert wrong is not None, "there is at least one issuer"
        raise wrong

    async def named(self, address: str, http: Http) -> AuthorizationServer:
        """The document at an address that the user has named: whose it is, it may say itself."""
        metadata.safe_address(address, "`authServerMetadataUrl`")
        server = await self._document(address, AuthorizationServer, http)
        if server is None:
            raise Unusable(
                f"there is no metadata of an authorization server at `authServerMetadataUrl`: {self.seen[-1]}"
            )
        return metadata.checked_endpoints(server, assume_pkce=self._assume_pkce, browser=self._browser)

    async def _issuer(self, issuer: str) -> AuthorizationServer:
        metadata.safe_address(issuer, "its authorization server")
        self.seen.clear()
        for address in metadata.issuer_addresses(issuer):
            server = await self._document(address, AuthorizationServer)
            if server is not None:
                metadata.checked_issuer(server, issuer)
                return metadata.checked_endpoints(server, assume_pkce=self._assume_pkce, browser=self._browser)
        raise Unusable(f"{issuer} publishes no metadata of an authorization server: {'; '.join(self.seen)}")

    async def _document(self, address: str, kind: type[T], http: Http | None = None) -> T | None:
        """What is at an address, if that is a document of this kind."""
        what, http = "the metadata of its login", http or self._http
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
            self.seen.append(f"{address}: {f'HTTP {answer.status}' if answer.status != 200 else 'no JSON'}")
            return None
        try:
            return convert(answer.fields, kind)
        except msgspec.ValidationError as error:
            self.seen.append(f"{address}: {error}")
            return None


def _redirected(address: str, answer: Answer) -> str | None:
    """Where an answer leads, if that is on the same origin."""
    location = answer.headers.get("location", "")
    if answer.status not in (301, 302, 303, 307, 308) or not location:
        return None
    try:
        target = urljoin(address, location)
        return target if metadata.origin(target) == metadata.origin(address) else None
    except ValueError:
        return None
