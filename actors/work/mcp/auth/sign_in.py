"""A person signs in to an MCP server: from its address to a token on disk.

    server's challenge -> its metadata -> its authorization server's metadata      discovery
    -> as whom we ask                                                              registration
    -> the browser -> a code -> a token                                            io.oauth
    -> the disk                                                                    store

Each time all of it is found out anew, and a client registered anew: an authorization server that has moved, or has lost
what was registered, is what most sign-ins that can't succeed come from. The scopes are those of the entry, else those
that the server wants; and always those that were granted before, and those that it has refused something for since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

import httpx
import msgspec
import trio

from .....protocol.errors import ConfigError, McpLost, OAuthRefused, UpstreamError, UsageError
from .....protocol.jsonrpc import encode_request
from .....protocol.mcp.config import OAuth, Server
from .....protocol.mcp.model import HANDSHAKE
from .....protocol.version import VERSION
from ....io.http.challenges import challenge_of
from ....io.oauth.authorization import Authorization, authorization
from ....io.oauth.endpoint import TokenEndpoint
from ....io.oauth.loopback import Redirect, listening
from ....io.oauth.server import LOOPBACK, AuthServer
from ....io.oauth.token import Token
from .discovery import Found, discover
from .http import GuardedAuthHttp, ProbeTransport
from .metadata import OFFLINE, Unusable, safe_address, scopes_for, union, words
from .registration import Client, known_client, registered
from .store import Login, Store

PROBE_WITHIN = 20.0
"""Seconds for the server's first answer."""

Person: TypeAlias = Callable[[Authorization, Redirect], Awaitable[str]]
"""Has a person open `Authorization.url`, and gives back the code: what `Redirect.answer` hears, or what was pasted."""


class Wanted(msgspec.Struct, frozen=True):
    """What a server has said when it refused a request.

    Attributes:
        advertised: where its metadata lies; empty if it did not say.
        private: whether that came from a private address.
    """

    advertised: str = ""
    scopes: tuple[str, ...] = ()
    private: bool = False


async def sign_in(
    server: Server, store: Store, environ: Mapping[str, str], person: Person, *, scopes: tuple[str, ...] = ()
) -> Token:
    """Have a person sign in.

    Args:
        server: its entry, with all values put in.
        scopes: to ask for beside those that are asked for anyway.

    Raises:
        UsageError: the entry says that there is nothing to sign in to.
        ConfigError: there is no way to sign in, or none that is safe.
        OAuthRefused: the person, or the authorization server, said no.
        NobodyToAsk: the person did not do it in time.
        McpLost, UpstreamError: the server, or the authorization server, can't be reached.
    """
    oauth = _settings(server)
    try:
        safe_address(server.url, "its `url`")
        wanted = await probe(server, environ)
        old = await trio.to_thread.run_sync(store.read)
        private = wanted.private or bool(oauth.auth_server_metadata_url)
        http = GuardedAuthHttp(environ, private=private)
        found = await discover(
            server.url,
            GuardedAuthHttp(environ, private=wanted.private),
            trusted=http,
            advertised=wanted.advertised,
            configured=oauth.auth_server_metadata_url,
            assume_pkce=oauth.assume_pkce,
        )
        asked = scopes_for(
            configured=oauth.scopes, challenged=wanted.scopes, resource=found.document, server=found.server
        )
        if old is not None and old.server.issuer == found.server.issuer:
            asked = union(asked, old.server.scopes, old.wanted)
        asked = union(asked, scopes)
        async with listening(_redirect_uri(oauth)) as redirect:
            client = known_client(
                found.server,
                client_id=oauth.client_id,
                client_secret=oauth.client_secret,
                document=oauth.client_metadata_url,
            ) or await registered(found.server, http, redirect.uri, asked)
            at = _server(found, client, redirect.uri, asked)
            request = authorization(at, redirect.uri)
            code = await person(request, redirect)
        token = await TokenEndpoint(at, http).exchange(request, code)
    except Unusable as error:
        raise ConfigError(f"MCP server '{server.name}' can't be signed in to: {error}") from error
    except OAuthRefused as error:
        raise OAuthRefused(f"MCP server '{server.name}': {error}", error=error.error) from error
    async with store.tokens.locked():
        await trio.to_thread.run_sync(_keep, store, Login(url=store.url, server=at, private=private), token)
    return token


async def sign_out(store: Store, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Forget the token, and tell who gave it out.

    Returns:
        Whether there was one; and why it could not be revoked, empty if it was.

    Raises:
        ConfigError: it can't be forgotten.
    """
    login, token = None, None
    async with store.tokens.locked():
        with suppress(ConfigError):  # a file that can't be read can be forgotten all the same
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


async def probe(server: Server, environ: Mapping[str, str]) -> Wanted:
    """What the server wants of those who have no token.

    Raises:
        McpLost: it can't be reached.
    """
    transport = ProbeTransport(environ)
    url = httpx.URL(server.url)
    introduction = {
        "protocolVersion": HANDSHAKE[0],
        "capabilities": {},
        "clientInfo": {"name": "callboard", "version": VERSION},
    }
    streams = server.type == "sse"  # its address is that of a stream, and takes no messages
    body = b"" if streams else encode_request(1, "initialize", introduction)
    headers = {
        "host": url.netloc.decode("ascii"),
        "user-agent": "callboard",
        "accept": "text/event-stream" if streams else "application/json, text/event-stream",
        "content-type": "application/json",
        **server.headers,
        "content-length": str(len(body)),
    }
    timeouts = dict.fromkeys(("connect", "read", "write"), PROBE_WITHIN)
    try:
        head = list(httpx.Headers(headers).raw)
        response = await transport.send("GET" if streams else "POST", url, head, body, timeouts, once=True)
        said = response.headers.get("www-authenticate", "")
        return msgspec.structs.replace(read_challenge(said), private=transport.private)
    except httpx.HTTPError as error:
        raise McpLost(f"MCP server '{server.name}': {str(error) or type(error).__name__}") from error
    finally:
        transport.connections.close()


def read_challenge(header: str) -> Wanted:
    """What a `WWW-Authenticate` says to us."""
    challenge = challenge_of(header, "bearer")
    said = {} if challenge is None else challenge.parameters
    return Wanted(said.get("resource_metadata", ""), words(said.get("scope")))


def _settings(server: Server) -> OAuth:
    oauth = server.sign_in
    if oauth is not None:
        return oauth
    if server.type == "stdio":
        why = "it is a program that is started here, whose credentials stand in its `env`"
    elif server.oauth is False:
        why = 'its entry says "oauth": false'
    else:
        why = "its header Authorization says who we are"
    raise UsageError(f"MCP server '{server.name}' is not signed in to: {why} ({server.where})")


def _redirect_uri(oauth: OAuth) -> str:
    if oauth.redirect_uri:
        return oauth.redirect_uri
    return LOOPBACK if oauth.callback_port is None else f"http://localhost:{oauth.callback_port}/callback"


def _server(found: Found, client: Client, redirect_uri: str, scopes: tuple[str, ...]) -> AuthServer:
    server = found.server
    assert server.token_endpoint is not None, "it is checked"
    assert server.authorization_endpoint is not None, "it is checked"
    return AuthServer(
        client_id=client.id,
        client_secret=client.secret,
        basic=client.method == "client_secret_basic",
        authorization_url=server.authorization_endpoint,
        token_url=server.token_endpoint,
        revocation_url=server.revocation_endpoint or "",
        redirect_uri=redirect_uri,
        scopes=scopes,
        issuer=server.issuer,
        names_issuer=bool(server.authorization_response_iss_parameter_supported),
        resource=found.resource,
        more={"prompt": "consent"} if OFFLINE in scopes else {},  # as OpenID Connect wants it
    )


def _keep(store: Store, login: Login, token: Token) -> None:
    """The token last: what reads it finds the sign-in that it belongs to."""
    store.write(login)
    store.tokens.write(token, login.server)
