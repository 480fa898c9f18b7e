"""OAuth client for an MCP server: registered by the user, described by a document, or registered dynamically.

In the order of the specification:

1. `clientId` of the entry (with `clientSecret`, if there is one);
2. `clientMetadataUrl` of the entry, if the authorization server fetches such documents;
3. dynamic registration (RFC 7591), if the server has an endpoint for it.

A registration is valid for its authorization server and for the redirect address that it was made with.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from .....protocol.decoding import convert
from ....io.oauth.endpoint import OAuthResponse
from .metadata import AuthorizationServer, Unusable, quoted

Json: TypeAlias = Any
Method: TypeAlias = Literal["none", "client_secret_post", "client_secret_basic", "private_key_jwt"]

METHODS: tuple[Method, ...] = ("none", "client_secret_post", "client_secret_basic")
NAME = "Callboard"
GRANTS = ("authorization_code", "refresh_token")


class RegistrationPoster(Protocol):
    """Sender of registration requests."""

    async def post_json(self, url: str, value: Json, what: str) -> OAuthResponse:
        """Send a JSON object. Raises `CallboardError` without an answer."""
        ...


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True):
    """OAuth client identity.

    Attributes:
        secret: empty for a public client.
        private_key: PEM key that signs a JWT in place of a secret.
        method: method of client authentication.
    """

    id: str
    secret: str = ""
    private_key: str = ""
    method: Method = "none"

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"OAuthClient({self.id!r})"


class _Registered(msgspec.Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


def known_client(
    server: AuthorizationServer,
    *,
    client_id: str = "",
    client_secret: str = "",
    private_key: str = "",
    document: str = "",
) -> OAuthClient | None:
    """Return the client if no registration is needed now; None otherwise.

    Args:
        client_id, client_secret, private_key: registered by the user.
        document: address of a document that describes the client.
    """
    if client_id and private_key:
        return OAuthClient(id=client_id, private_key=private_key, method="private_key_jwt")
    if client_id:
        return OAuthClient(id=client_id, secret=client_secret, method=_method(server, client_secret))
    if document and server.client_id_metadata_document_supported:
        return OAuthClient(id=document)
    return None


async def registered(
    server: AuthorizationServer, http: RegistrationPoster, redirect_uri: str, scopes: tuple[str, ...]
) -> OAuthClient:
    """Register a client dynamically.

    Raises:
        Unusable: the server refuses, or registers a client that this program can't act as.
        UpstreamError: there was no answer.
    """
    if server.registration_endpoint is None:
        raise Unusable(
            f"the authorization server {server.issuer} does not support the registration of clients; register a"
            f' client there by hand (redirect address {redirect_uri}), and write "oauth": {{"clientId": "..."}} into'
            " the entry in mcp.json"
        )
    asked: dict[str, Json] = {
        "client_name": NAME,
        # Native clients may use a loopback redirect with any port (RFC 8252).
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
        fields = answer.fields or {}
        why = fields.get("error_description") or fields.get("error") or f"HTTP {answer.status}"
        raise Unusable(
            f"the authorization server {server.issuer} refused to register Callboard ({quoted(str(why))}); if it"
            ' requires clients that were registered by hand, write "oauth": {"clientId": "..."} into the entry in'
            " mcp.json"
        )
    try:
        made = convert(answer.fields, _Registered)
    except msgspec.ValidationError as error:
        raise Unusable(
            f"the authorization server {server.issuer} registered Callboard without a valid client id: {error}"
        ) from error
    return _usable(server, made)


def _usable(server: AuthorizationServer, made: _Registered) -> OAuthClient:
    """Return the client as registered: the server may change the request."""
    secret = made.client_secret or ""
    # RFC 7591 allows the server to replace requested values, even with ones that this client can't use.
    given = made.token_endpoint_auth_method or _method(server, secret)
    method = next((known for known in METHODS if known == given), None)
    if method is None or (method != "none" and not secret):
        raise Unusable(
            f"the authorization server {server.issuer} requires client authentication by {quoted(given)}"
            + ("" if secret else ", and sent no client secret")
        )
    if not made.client_id:
        raise Unusable(f"the authorization server {server.issuer} assigned Callboard an empty client id")
    return OAuthClient(id=made.client_id, secret="" if method == "none" else secret, method=method)


def _preferred(server: AuthorizationServer) -> Method:
    """Return the requested authentication method; without a secret if possible, which a local program can't protect."""
    offered = server.token_endpoint_auth_methods_supported
    if offered is None or "none" in offered:
        return "none"
    return "client_secret_post" if "client_secret_post" in offered else "client_secret_basic"


def _method(server: AuthorizationServer, secret: str) -> Method:
    if not secret:
        return "none"
    # The default of RFC 8414.
    offered = server.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    return "client_secret_post" if "client_secret_post" in offered else "client_secret_basic"
