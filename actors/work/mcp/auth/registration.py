"""As whom we ask for tokens: a client that the user has registered, a document that describes us, or one made now.

In this order, as the specification has it:

1. `clientId` of the entry (with `clientSecret`, where there is one);
2. `clientMetadataUrl` of the entry, if the authorization server fetches such documents;
3. dynamic registration (RFC 7591), if it has an endpoint for that.

What was registered belongs to its authorization server and to the redirect address that was registered with it.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from .....protocol.decoding import convert
from ....io.oauth.http import Answer
from .metadata import AuthorizationServer, Unusable, quoted

Json: TypeAlias = Any
Method: TypeAlias = Literal["none", "client_secret_post", "client_secret_basic"]

METHODS: tuple[Method, ...] = ("none", "client_secret_post", "client_secret_basic")
NAME = "Callboard"
GRANTS = ("authorization_code", "refresh_token")


class Http(Protocol):
    """What posts a registration."""

    async def post_json(self, url: str, value: Json, what: str) -> Answer:
        """Send a JSON object. Raises `CallboardError` if there is no answer."""
        ...


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """As whom we ask.

    Attributes:
        secret: empty for a public client.
        method: how it shows that it is that client.
    """

    id: str
    secret: str = ""
    method: Method = "none"

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Client({self.id!r})"


class _Registered(msgspec.Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


def known_client(
    server: AuthorizationServer, *, client_id: str = "", client_secret: str = "", document: str = ""
) -> Client | None:
    """The client that needs no registration now; None if there is none.

    Args:
        client_id, client_secret: what the user has registered.
        document: where a document that describes us lies.
    """
    if client_id:
        return Client(id=client_id, secret=client_secret, method=_method(server, client_secret))
    if document and server.client_id_metadata_document_supported:
        return Client(id=document)
    return None


async def registered(server: AuthorizationServer, http: Http, redirect_uri: str, scopes: tuple[str, ...]) -> Client:
    """A client that is registered now.

    Raises:
        Unusable: it can't be, or not as one that we can be.
        UpstreamError: there was no answer.
    """
    if server.registration_endpoint is None:
        raise Unusable(
            f"the authorization server {server.issuer} takes no registrations; register a client there by hand"
            f' (redirect address {redirect_uri}), and write "oauth": {{"clientId": "..."}} into the entry in mcp.json'
        )
    asked: dict[str, Json] = {
        "client_name": NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": list(GRANTS),
        "response_types": ["code"],
        "token_endpoint_auth_method": _preferred(server),
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    answer = await http.post_json(server.registration_endpoint, asked, f"registering with {server.issuer}")
    if answer.status not in (200, 201) or answer.fields is None:
        said = answer.fields or {}
        why = said.get("error_description") or said.get("error") or f"HTTP {answer.status}"
        raise Unusable(
            f"the authorization server {server.issuer} refused to register us ({quoted(str(why))}); if it wants clients"
            ' that were registered by hand, write "oauth": {"clientId": "..."} into the entry in mcp.json'
        )
    try:
        made = convert(answer.fields, _Registered)
    except msgspec.ValidationError as error:
        raise Unusable(
            f"the authorization server {server.issuer} registered us without saying as whom: {error}"
        ) from error
    return _usable(server, made)


def _usable(server: AuthorizationServer, made: _Registered) -> Client:
    """What the server has made of our wish, which it may change."""
    secret = made.client_secret or ""
    given = made.token_endpoint_auth_method or _method(server, secret)
    method = next((known for known in METHODS if known == given), None)
    if method is None or (method != "none" and not secret):
        raise Unusable(
            f"the authorization server {server.issuer} registered us as a client that has to show who it is by"
            f" {quoted(given)}" + ("" if secret else ", and gave us no secret")
        )
    if not made.client_id:
        raise Unusable(f"the authorization server {server.issuer} registered us under an empty name")
    return Client(id=made.client_id, secret="" if method == "none" else secret, method=method)


def _preferred(server: AuthorizationServer) -> Method:
    """How we would show who we are: without a secret, which no program on a person's machine can keep."""
    offered = server.token_endpoint_auth_methods_supported
    if offered is None or "none" in offered:
        return "none"
    return "client_secret_post" if "client_secret_post" in offered else "client_secret_basic"


def _method(server: AuthorizationServer, secret: str) -> Method:
    if not secret:
        return "none"
    offered = server.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    return "client_secret_post" if "client_secret_post" in offered else "client_secret_basic"
