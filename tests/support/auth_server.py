"""An authorization server for tests, on loopback: codes with PKCE, refresh with rotation, device codes, revocation.

    server = await auth_server(nursery)
    endpoint = TokenEndpoint(server.client(), AuthHttp({}))
    token = await endpoint.exchange(request, server.approve(request.url))
    server.lifetime = 5.0; server.revoke_all(); server.fails = 2; server.skew = 3600.0

It is as strict as a good one: a code and a refresh token are good once, the verifier has to fit the challenge, the
redirect URI has to be the same twice, and a refresh token that is used again ends its whole family.
`server.browser(url)` is the person at the browser, who says yes (or no) and is sent to what listens there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
import trio

from callboard.actors.io.oauth.authorization import AuthServer
from support.fake_models import Incoming, Request, listening

Json = Any
CLIENT = "test-client"
SECRET = "s3cret-of-client"
"""One of the texts that tests/support/secret_watch.py looks for."""

REASONS = {200: "OK", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 503: "Unavailable"}


@dataclass
class Grant:
    """A sign-in and the tokens that came of it. `used`: its refresh tokens that were exchanged already."""

    scopes: str = ""
    access: set[str] = field(default_factory=set)
    refresh: str = ""
    used: set[str] = field(default_factory=set)
    revoked: bool = False


@dataclass
class _Code:
    challenge: str
    redirect_uri: str
    scopes: str
    resource: str


Page = Callable[[Request], Awaitable[tuple[int, Json]]]


class LocalAuthServer:
    """The server. Whatever is set holds from the next request on.

    Attributes:
        url: its issuer.
        requests: all that came, in order.
        lifetime: seconds of an access token; None and `expires_in` is left out.
        rotates: each refresh gives a new refresh token, and the old one is good no more.
        gives_refresh: whether there are refresh tokens at all.
        skew: how far its clock is from ours, in seconds.
        fails: so many requests for tokens are answered with 503 first.
        delay: seconds before an answer to a request for a token.
        hold: nothing is answered at the token endpoint before this is set.
        device_says: the next answers to a device that asks, before it gets its token; `error` words.
        secret: the client has to show it, as form field or header. public_key: of a client that signs assertions; PEM.
        names_issuer: answers through the browser name the server (RFC 9207).
        answer: replaces the fields of every answer with a token.
        pages: more paths, for what is built upon this.
        most_at_once: requests under way at the same time, at most; reused: refresh tokens that came a second time.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[Request] = []
        self.grants: list[Grant] = []
        self.lifetime: float | None = 3600.0
        self.rotates = True
        self.gives_refresh = True
        self.skew = 0.0
        self.fails = 0
        self.delay = 0.0
        self.hold: trio.Event | None = None
        self.device_says: list[str] = []
        self.interval = 0.01
        self.secret = ""
        self.public_key = ""
        self.names_issuer = True
        self.answer: Callable[[dict[str, Json]], Json] = lambda fields: fields
        self.pages: dict[str, Page] = {}
        self.under_way = self.most_at_once = 0
        self.reused = 0
        self._codes: dict[str, _Code] = {}
        self._devices: dict[str, str] = {}
        self._count = 0

    def client(self, **changes: Any) -> AuthServer:
        """This server as its client knows it."""
        fields: dict[str, Any] = {
            "client_id": CLIENT,
            "authorization_url": f"{self.url}/authorize",
            "token_url": f"{self.url}/token",
            "device_url": f"{self.url}/device",
            "revocation_url": f"{self.url}/revoke",
            "issuer": self.url,
            "scopes": ("chat", "profile"),
        }
        return AuthServer(**fields | changes)

    # --- what tests look at and do

    def asked_for(self, grant_type: str) -> int:
        """How many requests for a token of that kind came."""
        return sum(self.fields(request).get("grant_type") == grant_type for request in self.requests)

    @property
    def refreshes(self) -> int:
        """How many came with a refresh token."""
        return self.asked_for("refresh_token")

    def fields(self, request: Request) -> dict[str, str]:
        """The fields of a request, form or JSON."""
        if request.headers.get("content-type") == "application/json":
            return dict(request.json)
        return dict(parse_qsl(request.body.decode()))

    def is_good(self, access_token: str) -> bool:
        """Whether a resource would take that token now."""
        return any(access_token in grant.access and not grant.revoked for grant in self.grants)

    def revoke_all(self) -> None:
        """No token that it gave out is good any more."""
        for grant in self.grants:
            grant.revoked = True

    def expire_all(self) -> None:
        """No access token is good any more; refresh tokens are."""
        for grant in self.grants:
            grant.access.clear()

    def approve(self, url: str) -> str:
        """The person says yes on that page; the code that the browser is sent away with."""
        return self._answer_to(url)["code"]

    def redirect(self, url: str, error: str = "") -> str:
        """Where the browser is sent to when the person says yes, or when that `error` happens."""
        asked = dict(parse_qsl(urlsplit(url).query))
        answer = {"error": error, "error_description": "the person said no"} if error else self._answer_to(url)
        answer |= {"state": asked["state"]}
        answer |= {"iss": self.url} if self.names_issuer else {}
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    async def browser(self, url: str, error: str = "") -> bytes:
        """A person at a browser says yes (or no), and it follows the redirect; what the page there says."""
        return await visit(self.redirect(url, error))

    def _answer_to(self, url: str) -> dict[str, str]:
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["client_id"] == CLIENT
        code = self._new("code")
        challenge, redirect_uri = asked["code_challenge"], asked["redirect_uri"]
        self._codes[code] = _Code(challenge, redirect_uri, asked.get("scope", ""), asked.get("resource", ""))
        return {"code": code}

    # --- the server

    async def serve(self, listener: trio.SocketListener) -> None:
        """Answer until cancelled."""
        await trio.serve_listeners(self._connection, [listener])

    async def _connection(self, stream: trio.SocketStream) -> None:
        incoming = Incoming(stream)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while (request := await incoming.next()) is not None:
                self.requests.append(request)
                self.under_way += 1
                self.most_at_once = max(self.under_way, self.most_at_once)
                try:
                    status, value = await self._reply(request)
                finally:
                    self.under_way -= 1
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                kind = "text/html" if isinstance(value, bytes) else "application/json"
                date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + self.skew))
                head = (
                    f"HTTP/1.1 {status} {REASONS.get(status, 'Scripted')}\r\ncontent-type: {kind}\r\ndate: {date}\r\n"
                )
                await stream.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await stream.aclose()

    async def _reply(self, request: Request) -> tuple[int, Json]:
        path = request.path.partition("?")[0]
        if path in self.pages:
            return await self.pages[path](request)
        fields = self.fields(request)
        match path:
            case "/token":
                if self.hold is not None:
                    await self.hold.wait()
                await trio.sleep(self.delay)
                if self.fails:
                    self.fails -= 1
                    return 503, {"error": "temporarily_unavailable", "error_description": "come back later"}
                return self._token(request, fields)
            case "/device":
                return self._device(fields)
            case "/revoke":
                return self._revoke(fields)
        return 404, b"<html>nothing here</html>"

    def _token(self, request: Request, fields: dict[str, str]) -> tuple[int, Json]:
        if not self._knows(request, fields):
            return 401, {"error": "invalid_client", "error_description": "unknown client"}
        match fields.get("grant_type"):
            case "authorization_code":
                return self._of_code(fields)
            case "refresh_token":
                return self._of_refresh(fields)
            case "urn:ietf:params:oauth:grant-type:device_code":
                return self._of_device(fields)
            case "client_credentials":
                return self._issue(Grant(scopes=fields.get("scope", "")))
        return 400, {"error": "unsupported_grant_type"}

    def _knows(self, request: Request, fields: dict[str, str]) -> bool:
        if header := request.headers.get("authorization"):
            shown = base64.b64decode(header.removeprefix("Basic ")).decode()
            return shown == f"{CLIENT}:{self.secret}"
        if "client_assertion" in fields and fields.get("client_id") == CLIENT:
            claims = jwt.decode(
                fields["client_assertion"], self.public_key, ["ES256", "RS256", "EdDSA"], audience=self.url
            )
            return bool(claims["iss"] == claims["sub"] == CLIENT)
        return fields.get("client_id") == CLIENT and fields.get("client_secret", "") == self.secret

    def _of_code(self, fields: dict[str, str]) -> tuple[int, Json]:
        code = self._codes.pop(fields["code"], None)
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if code is None or code.challenge != challenge or code.redirect_uri != fields["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "bad code"}
        if code.resource != fields.get("resource", ""):
            return 400, {"error": "invalid_target", "error_description": "another resource"}
        return self._issue(Grant(scopes=code.scopes))

    def _of_refresh(self, fields: dict[str, str]) -> tuple[int, Json]:
        token = fields["refresh_token"]
        for grant in self.grants:
            if token in grant.used:
                grant.revoked = True  # it was stolen, or refreshed twice
                self.reused += 1
            if token == grant.refresh and not grant.revoked:
                return self._issue(grant)
        return 400, {"error": "invalid_grant", "error_description": "the refresh token was revoked"}

    def _of_device(self, fields: dict[str, str]) -> tuple[int, Json]:
        if self.device_says:
            return 400, {"error": self.device_says.pop(0)}
        scopes = self._devices.pop(fields["device_code"], None)
        return self._issue(Grant(scopes=scopes)) if scopes is not None else (400, {"error": "invalid_grant"})

    def _device(self, fields: dict[str, str]) -> tuple[int, Json]:
        device = self._new("device")
        self._devices[device] = fields.get("scope", "")
        return 200, {
            "device_code": device,
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{self.url}/activate",
            "verification_uri_complete": f"{self.url}/activate?user_code=WDJB-MJHT",
            "expires_in": 600,
            "interval": self.interval,
        }

    def _revoke(self, fields: dict[str, str]) -> tuple[int, Json]:
        for grant in self.grants:
            if fields["token"] in {grant.refresh, *grant.access}:
                grant.revoked = True
        return 200, {}

    def _issue(self, grant: Grant) -> tuple[int, Json]:
        if grant not in self.grants:
            self.grants.append(grant)
        access = self._new("access")
        grant.access.add(access)
        fields = {"access_token": access, "token_type": "bearer", "scope": grant.scopes}
        if self.gives_refresh and (self.rotates or not grant.refresh):
            grant.used |= {grant.refresh} - {""}
            fields["refresh_token"] = grant.refresh = self._new("refresh")
        if self.lifetime is not None:
            fields["expires_in"] = self.lifetime
        return 200, self.answer(fields)

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"s3cret-{kind}-{self.port}-{self._count}"


async def auth_server(nursery: trio.Nursery) -> LocalAuthServer:
    """One that runs in the nursery."""
    listener, port = listening()
    server = LocalAuthServer(port)
    nursery.start_soon(server.serve, listener)
    return server


async def visit(url: str, method: str = "GET") -> bytes:
    """Ask for a page as a browser does; the whole answer."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    stream = await trio.open_tcp_stream(parts.hostname, parts.port or 80)
    async with stream:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        await stream.send_all(f"{method} {target} HTTP/1.1\r\nhost: {parts.netloc}\r\n\r\n".encode())
        said = b""
        while piece := await stream.receive_some():
            said += piece
        return said
