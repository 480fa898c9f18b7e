"""Sign-in to an MCP server: from its address to a token on disk.

    server's challenge -> its metadata -> its authorization server's metadata      discovery
    -> OAuth client                                                                see below
    -> browser -> code -> token                                                    io.oauth
    -> files                                                                       access

With `"grantType": "client_credentials"` no user is needed: the client's secret, or a JWT signed with its private key
(RFC 7523), replaces browser and code. `ServerAccess` then calls this itself.

Each sign-in repeats discovery and registration. Most sign-ins that can't succeed fail because the authorization server
has moved or has lost the registration. The scopes come from the entry, otherwise from the server's challenge. In
addition come the scopes granted before, and the scopes for which a request was refused since.

The OAuth client is the first of these, in the order of the specification:

1. `clientId` of the entry (with `clientSecret`, if there is one);
2. `clientMetadataUrl` of the entry, if the authorization server fetches such documents;
3. dynamic registration (RFC 7591), if the server has an endpoint for it.

A registration is valid for its authorization server and for the redirect address that it was made with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import httpx
import msgspec
import trio

from .....protocol.decoding import convert
from .....protocol.errors import ConfigError, McpLost, OAuthRefused, UpstreamError, UsageError
from .....protocol.jsonrpc import encode_request
from .....protocol.mcp.config import OAuth, Server, entry_of
from .....protocol.mcp.model import HANDSHAKE, META_CAPABILITIES, META_CLIENT, META_VERSION, MODERN
from .....protocol.version import VERSION
from ....io.http.headers import challenge_of
from ....io.oauth.authorization import LOOPBACK, Authorization, AuthServer, Redirect, authorization, listening
from ....io.oauth.endpoint import OAuthResponse, TokenEndpoint
from ....io.oauth.token import OAuthToken
from .discovery import DiscoveredLogin, GuardedAuthHttp, ProbeTransport, discover
from .metadata import OFFLINE, AuthorizationServer, Unusable, quoted, safe_address, scopes_for, union, words

if TYPE_CHECKING:
    from .access import LoginStore

PROBE_WITHIN = 20.0
"""Seconds for the server's first answer."""

Person: TypeAlias = Callable[[Authorization, Redirect], Awaitable[str]]
"""Opens `Authorization.url` for the user and returns the code, from `Redirect.answer` or pasted by the user."""


class RefusedRequest(msgspec.Struct, frozen=True):
    """Challenge of a server that refused a request.

    Attributes:
        advertised: address of its metadata; empty if it names none.
        scopes: scopes that it requires; empty if it names none.
        private: True if the answer came from a private address.
    """

    advertised: str = ""
    scopes: tuple[str, ...] = ()
    private: bool = False


async def sign_in(
    server: Server, store: LoginStore, environ: Mapping[str, str], person: Person, *, scopes: tuple[str, ...] = ()
) -> OAuthToken:
    """Sign in to a server and store the token.

    Args:
        server: its entry, with resolved values.
        person: asks the user; not called with the grant `client_credentials`.
        scopes: additional scopes to request.

    Raises:
        UsageError: the entry needs no sign-in: a local program, one with a fixed header, or one with OAuth turned off.
        ConfigError: there is no way to sign in, or no safe one.
        OAuthRefused: the user or the authorization server refused.
        NobodyToAsk: the user did not sign in in time.
        McpLost, UpstreamError: the server, or the authorization server, can't be reached.
    """
    oauth = _settings(server)
    try:
        safe_address(server.url, "its `url`")
        wanted = await probe(server, environ)
        old = await trio.to_thread.run_sync(store.read)
        # The user vouches for an authorization server that the entry names.
        private = wanted.private or bool(oauth.auth_server_metadata_url)
        http = GuardedAuthHttp(environ, private=private)
        found = await discover(
            server.url,
            GuardedAuthHttp(environ, private=wanted.private),
            trusted=http,
            advertised=wanted.advertised,
            configured=oauth.auth_server_metadata_url,
            assume_pkce=oauth.assume_pkce,
            browser=not oauth.by_itself,
        )
        asked = scopes_for(
            configured=oauth.scopes, challenged=wanted.scopes, resource=found.document, server=found.server
        )
        # The new token replaces the old one, so it needs the old scopes too.
        if old is not None and old.server.issuer == found.server.issuer:
            asked = union(asked, old.server.scopes, old.wanted)
        asked = union(asked, scopes)
        client = known_client(
            found.server,
            client_id=oauth.client_id,
            client_secret=oauth.client_secret,
            private_key=oauth.private_key,
            document="" if oauth.by_itself else oauth.client_metadata_url,
        )
        if oauth.by_itself:
            if client is None:
                raise Unusable('"grantType": "client_credentials" also needs a `clientId`')
            at = _server(found, client, LOOPBACK, asked)
            token = await TokenEndpoint(at, http).client_credentials()
            at = msgspec.structs.replace(at, private_key="")  # the key is stored only in the user's own file
        else:
            async with listening(_redirect_uri(oauth)) as redirect:
                client = client or await _registered(found, http, redirect.uri, asked)
                at = _server(found, client, redirect.uri, asked)
                request = authorization(at, redirect.uri)
                code = await person(request, redirect)
            token = await TokenEndpoint(at, http).exchange(request, code)
    except Unusable as error:
        raise ConfigError(f"signing in to MCP server '{server.name}' failed: {error}") from error
    except OAuthRefused as error:
        raise OAuthRefused(f"MCP server '{server.name}': {error}", error=error.error) from error
    # Under the lock, so that a refresh in another process does not overwrite the new token.
    async with store.tokens.locked():
        await trio.to_thread.run_sync(lambda: store.write_with_token(at, token, private=private))
    return token


async def sign_out(store: LoginStore, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Remove the stored sign-in and token, then revoke the token at the authorization server.

    Returns:
        True if there was a token; and the reason why it could not be revoked, empty on success or without a token.

    Raises:
        ConfigError: the files can't be removed.
    """
    login, token = None, None
    async with store.tokens.locked():
        with suppress(ConfigError):  # an unreadable file can still be removed
            login = await trio.to_thread.run_sync(store.read)
            token = None if login is None else await trio.to_thread.run_sync(store.token, login)
        there = await trio.to_thread.run_sync(store.remove)
    if login is None or token is None:
        return there, ""
    try:
        await TokenEndpoint(login.server, GuardedAuthHttp(environ, private=login.private)).revoke(token)
    except (ConfigError, UpstreamError) as error:
        return there, str(error)
    return there, ""


async def probe(server: Server, environ: Mapping[str, str]) -> RefusedRequest:
    """Return the challenge that the server sends for a request without a token; empty if it sends none.

    `initialize` is sent first. A server of 2026-07-28 alone may answer it with 400 and no challenge, so without a
    challenge `server/discover` follows. A server of type `sse` gets one GET instead.

    Raises:
        McpLost: the server can't be reached.
    """
    transport = ProbeTransport(environ)
    introduction = {
        "protocolVersion": HANDSHAKE[0],
        "capabilities": {},
        "clientInfo": {"name": "callboard", "version": VERSION},
    }
    meta = {META_VERSION: MODERN, META_CAPABILITIES: {}, META_CLIENT: introduction["clientInfo"]}
    modern = {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}
    tries = [
        ("POST", encode_request(1, "initialize", introduction), {}),
        ("POST", encode_request(2, "server/discover", {"_meta": meta}), modern),
    ]
    if server.type == "sse":  # an address of a stream, which accepts no messages
        tries = [("GET", b"", {"accept": "text/event-stream"})]
    try:
        wanted = RefusedRequest()
        for method, body, headers in tries:
            challenge = await _answer_to(transport, server, method, body, headers)
            wanted = msgspec.structs.replace(read_challenge(challenge), private=transport.private)
            if challenge_of(challenge, "bearer") is not None:
                break
        return wanted
    except httpx.HTTPError as error:
        raise McpLost(f"MCP server '{server.name}': {str(error) or type(error).__name__}") from error
    finally:
        transport.connections.close()


async def _answer_to(
    transport: ProbeTransport, server: Server, method: str, body: bytes, more: Mapping[str, str]
) -> str:
    """Send a request without a token and return the `WWW-Authenticate` of its answer."""
    url = httpx.URL(server.url)
    headers = {
        "host": url.netloc.decode("ascii"),
        "user-agent": "callboard",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **more,
        **server.headers,
        "content-length": str(len(body)),
    }
    timeouts = dict.fromkeys(("connect", "read", "write"), PROBE_WITHIN)
    response = await transport.send(method, url, list(httpx.Headers(headers).raw), body, timeouts, once=True)
    await response.aclose()
    challenge: str = response.headers.get("www-authenticate", "")
    return challenge


def read_challenge(header: str) -> RefusedRequest:
    """Return the Bearer challenge of a `WWW-Authenticate` header; an empty one if it has none."""
    challenge = challenge_of(header, "bearer")
    parameters = {} if challenge is None else challenge.parameters
    return RefusedRequest(parameters.get("resource_metadata", ""), words(parameters.get("scope")))


def _settings(server: Server) -> OAuth:
    oauth = server.sign_in
    if oauth is not None:
        return oauth
    if server.type == "stdio":
        why = "the server is a local program, and its credentials are set in its `env`"
    elif server.oauth is False:
        why = 'the server\'s entry has "oauth": false'
    else:
        why = "the server's entry sets the header Authorization"
    raise UsageError(f"MCP server '{server.name}' needs no sign-in: {why} ({entry_of(server)})")


async def _registered(
    found: DiscoveredLogin, http: GuardedAuthHttp, redirect_uri: str, scopes: tuple[str, ...]
) -> OAuthClient:
    try:
        return await registered(found.server, http, redirect_uri, scopes)
    except Unusable:
        if found.assumed:  # the endpoints were assumed: the reason for that explains more than the failed registration
            raise Unusable(found.assumed) from None
        raise


def _redirect_uri(oauth: OAuth) -> str:
    if oauth.redirect_uri:
        return oauth.redirect_uri
    return LOOPBACK if oauth.callback_port is None else f"http://localhost:{oauth.callback_port}/callback"


def _server(found: DiscoveredLogin, client: OAuthClient, redirect_uri: str, scopes: tuple[str, ...]) -> AuthServer:
    server = found.server
    assert server.token_endpoint is not None, "it is checked"
    return AuthServer(
        client_id=client.id,
        client_secret=client.secret,
        private_key=client.private_key,
        basic=client.method == "client_secret_basic",
        authorization_url=server.authorization_endpoint or "",
        token_url=server.token_endpoint,
        revocation_url=server.revocation_endpoint or "",
        redirect_uri=redirect_uri,
        scopes=scopes,
        issuer=server.issuer,
        names_issuer=bool(server.authorization_response_iss_parameter_supported),
        resource=found.resource,
        more={"prompt": "consent"} if OFFLINE in scopes else {},  # OpenID Connect requires it
    )


Json: TypeAlias = Any
Method: TypeAlias = Literal["none", "client_secret_post", "client_secret_basic", "private_key_jwt"]

METHODS: tuple[Method, ...] = ("none", "client_secret_post", "client_secret_basic")
CLIENT_NAME = "Callboard"
GRANTS = ("authorization_code", "refresh_token")


class RegistrationPoster(Protocol):
    """Interface for sending requests that register a client."""

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
        """Return a text without secret and private key."""
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
        Unusable: the server has no endpoint for it, refuses, or registers a client that this program can't act as.
        UpstreamError: there was no answer.
    """
    if server.registration_endpoint is None:
        raise Unusable(
            f"the authorization server {server.issuer} does not support dynamic client registration; "
            f'register a client there by hand (redirect URI {redirect_uri}), and add "oauth": {{"clientId": '
            '"..."} to the entry in mcp.json'
        )
    asked: dict[str, Json] = {
        "client_name": CLIENT_NAME,
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
            f"the authorization server {server.issuer} refused to register Callboard ({quoted(str(why))}); "
            'if it accepts only clients that were registered by hand, register one, and add "oauth": '
            '{"clientId": "..."} to the entry in mcp.json'
        )
    try:
        made = convert(answer.fields, _Registered)
    except msgspec.ValidationError as error:
        raise Unusable(
            f"the authorization server {server.issuer} registered Callboard, but returned no valid client id: {error}"
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
            f"the authorization server {server.issuer} requires client authentication with {quoted(given)}"
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
