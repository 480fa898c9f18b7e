"""Token endpoint: exchange of codes, refresh, device flow, revocation (RFC 6749, 7009, 7523, 8628); its HTTP client.

Each request has its own connection, limits, and no redirects. A code and a refresh token are valid once. So no request
is repeated automatically, and the caller must find out what happened to one without an answer.
"""

from __future__ import annotations

import base64
import math
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
import trio

from ....protocol.errors import ConfigError, CredentialsError, NobodyToAsk, OAuthRefused, UpstreamError
from ....protocol.json_values import UNREADABLE
from ....supervisors.installation import install_command
from ..http.headers import retry_after
from ..imports import imported
from .authorization import Authorization, AuthServer, check_url, is_safe, printable, refusal
from .token import LONGEST_LIFETIME, OAuthToken

if TYPE_CHECKING:
    from ..http.transport import TrioTransport


Json = Any

TIMEOUT = 30.0
"""Timeout of each step of a request, in seconds."""

WITHIN = 60.0
"""Timeout of a whole request, in seconds."""


class OAuthResponse(msgspec.Struct, frozen=True):
    """Response of an authorization server.

    Attributes:
        fields: JSON object of the body; None if there is none.
        retry_after: seconds that the server asks to wait, if it does.
    """

    status: int
    headers: Mapping[str, str]
    fields: dict[str, Json] | None
    retry_after: float | None = None

    def __repr__(self) -> str:
        """Return a representation without the body, which may be a token."""
        return f"OAuthResponse({self.status})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Omit the body from rich tracebacks."""
        return [("status", self.status)]


class AuthHttp:
    """HTTP client for authorization servers.

    Args:
        environ: environment for proxies and certificates.
        proxy: a URL, `-` for none, empty to use `environ`.
    """

    def __init__(self, environ: Mapping[str, str], proxy: str = "") -> None:
        self._environ = environ
        self._proxy = proxy

    async def get(self, url: str, what: str) -> OAuthResponse:
        """Send a GET request and return the response, whatever its status. `fields` is its JSON object.

        Args:
            what: name of the requested object in errors.

        Raises:
            ConfigError: the URL is unusable.
            UpstreamError: there was no answer.
        """
        return await self._send("GET", url, what, b"", {})

    async def post(
        self,
        url: str,
        fields: Mapping[str, str],
        what: str,
        *,
        json: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> OAuthResponse:
        """Post fields as a form, or as JSON; raises as `get`."""
        body = msgspec.json.encode(fields) if json else urlencode(fields).encode()
        kind = "application/json" if json else "application/x-www-form-urlencoded"
        return await self._send("POST", url, what, body, {"content-type": kind, **(headers or {})})

    async def post_json(self, url: str, value: Json, what: str) -> OAuthResponse:
        """Post any JSON value; raises as `get`."""
        return await self._send("POST", url, what, msgspec.json.encode(value), {"content-type": "application/json"})

    def _transport(self) -> TrioTransport | None:
        """Return a transport that replaces the default one."""
        return None

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> OAuthResponse:
        check_url(url, what)
        await imported(".actors.io.http.transport")
        from ..http.transport import simple_request

        fields = {
            "accept": "application/json",  # some servers answer with a form otherwise
            "accept-encoding": "identity",
            "user-agent": "callboard",
            **headers,
        }
        with trio.move_on_after(WITHIN) as scope:
            try:
                found = await simple_request(
                    method,
                    url,
                    fields,
                    body,
                    environ=self._environ,
                    timeout=TIMEOUT,
                    proxy=self._proxy,
                    transport=self._transport(),
                )
            except (CredentialsError, UpstreamError) as error:
                raise UpstreamError(f"{what}: {error}") from error
            except ValueError as error:  # an invalid host that begins with `xn--`
                raise ConfigError(f"{what} is '{url}': {error}") from error
        if scope.cancelled_caught:
            raise UpstreamError(f"{what}: no complete response within {WITHIN:g} s")
        kind = found.headers.get("content-type", "").partition(";")[0].strip().lower()
        wait = retry_after(found.headers, time.time())
        return OAuthResponse(found.status, found.headers, _fields(found.body, kind), wait)


def _fields(body: bytes, kind: str) -> dict[str, Json] | None:
    if kind == "application/x-www-form-urlencoded":
        return dict(parse_qsl(body.decode("utf-8", errors="replace")))
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


# --- token endpoint


INTERVAL = 5.0
"""Seconds between two polls of the device flow, unless the server gives another interval."""

SLOWER = 5.0
"""Additional seconds for each `slow_down` of the server."""

MOST_WAIT = 60.0
"""Maximum seconds between two polls, whatever the server says."""

_MAY_PASS = ("temporarily_unavailable", "server_error", "slow_down")
"""Error codes of temporary conditions."""


class DeviceGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions of the device flow for the user.

    Attributes:
        verification_uri: page to open; `complete_uri` includes the code, or is empty.
        user_code: code to type there.
        lifetime, interval: seconds of validity, and seconds between polls.
    """

    device_code: str
    user_code: str
    verification_uri: str
    complete_uri: str = ""
    lifetime: float = 600.0
    interval: float = INTERVAL

    def __repr__(self) -> str:
        """Return a representation without the codes."""
        return f"DeviceGrant({self.verification_uri!r})"


class TokenEndpoint:
    """Requests of an OAuth client to a token endpoint: exchange, refresh, device flow, revocation.

    Args:
        server: authorization server and client.
        http: HTTP client.
        clock: seconds since 1970.
    """

    def __init__(self, server: AuthServer, http: AuthHttp, clock: Callable[[], float] = time.time) -> None:
        self.server = server
        self.clock = clock
        self._http = http

    async def exchange(self, request: Authorization, code: str) -> OAuthToken:
        """Exchange a code for a token.

        Raises:
            OAuthRefused: the server refuses the code, or the client.
            UpstreamError: it can't be reached, or fails temporarily.
            ConfigError: its address, or its answer, is unusable.
        """
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": request.redirect_uri,
            "code_verifier": request.verifier,
        }
        if self.server.body == "json":  # a nonstandard server, which also wants the state
            fields["state"] = request.state
        return await self._token(fields, "the exchange of the code")

    async def client_credentials(self) -> OAuthToken:
        """Return a token for the client itself, without a user. Raises as `exchange`.

        A refresh token that comes with it is dropped (RFC 6749, 4.4.3): the credentials can get another token at any
        time.
        """
        fields = {"grant_type": "client_credentials"}
        if self.server.scopes:
            fields["scope"] = " ".join(self.server.scopes)
        token = await self._token(fields, "the request for a client credentials token")
        return msgspec.structs.replace(token, refresh_token="")

    async def refresh(self, token: OAuthToken) -> OAuthToken:
        """Return a new token, with the old refresh token unless the server gives a new one. Raises as `exchange`."""
        fields = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        fresh = await self._token(fields, "the refresh of the token")
        return msgspec.structs.replace(
            fresh,
            refresh_token=fresh.refresh_token or token.refresh_token,
            scopes=fresh.scopes or token.scopes,
        )

    async def device(self) -> DeviceGrant:
        """Start the device flow. Raises as `exchange`."""
        if not self.server.device_url:
            raise ConfigError("the server has no `device_url`, so a sign-in on another device is not possible")
        fields = {"client_id": self.server.client_id, "scope": " ".join(self.server.scopes)}
        if self.server.resource:
            fields["resource"] = self.server.resource
        what = "the request for a device code"
        answer = await self._http.post(
            self.server.device_url, {name: value for name, value in fields.items() if value}, what
        )
        said = _good(answer, what)
        texts = {
            "device_code": said.get("device_code"),
            "user_code": said.get("user_code"),
            "verification_uri": said.get("verification_uri") or said.get("verification_url"),  # Google's name
        }
        given = {name: value for name, value in texts.items() if isinstance(value, str) and value}
        if given.keys() != texts.keys():
            raise ConfigError(f"{what}: the response of {self.server.device_url} has no device code")
        complete = said.get("verification_uri_complete")
        check_url(given["verification_uri"], "the page where the code is entered")
        return DeviceGrant(
            **given,
            complete_uri=complete if isinstance(complete, str) and is_safe(complete) else "",
            lifetime=_seconds(said.get("expires_in")) or 600.0,
            interval=min(_seconds(said.get("interval")) or INTERVAL, MOST_WAIT),
        )

    async def device_token(self, grant: DeviceGrant) -> OAuthToken:
        """Poll until the user has agreed; raises as `exchange`.

        Raises:
            NobodyToAsk: the code expired first.
        """
        fields = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": grant.device_code}
        wait, end = grant.interval, trio.current_time() + grant.lifetime
        while True:
            if trio.current_time() + wait > end:
                raise NobodyToAsk(
                    f"the code was not entered on the other device within {grant.lifetime:g} s; sign in again"
                )
            await trio.sleep(wait)
            try:
                return await self._token(fields, "the sign-in on the other device")
            except OAuthRefused as refused:
                if refused.error == "slow_down":
                    wait = min(wait + SLOWER, MOST_WAIT)
                elif refused.error == "expired_token":
                    raise NobodyToAsk(
                        "the code expired before it was entered on the other device; sign in again"
                    ) from refused
                elif refused.error != "authorization_pending":
                    raise
            except UpstreamError:  # RFC 8628, 3.5: poll later; the lifetime of the code limits the retries
                wait = min(wait * 2, MOST_WAIT)

    async def revoke(self, token: OAuthToken) -> None:
        """Revoke the token; do nothing if the server has no revocation endpoint.

        Raises:
            OAuthRefused, UpstreamError, ConfigError: it was not revoked.
        """
        if not self.server.revocation_url:
            return
        kind = "refresh_token" if token.refresh_token else "access_token"
        fields = {"token": token.refresh_token or token.access_token, "token_type_hint": kind}
        what = "the revocation of the token"
        headers = self._identify(fields)
        answer = await self._http.post(self.server.revocation_url, fields, what, headers=headers)
        if answer.status != 200:
            _good(answer, what)

    async def _token(self, fields: dict[str, str], what: str) -> OAuthToken:
        headers = self._identify(fields)
        if self.server.resource:
            fields["resource"] = self.server.resource
        asked = self.clock()
        json = self.server.body == "json"
        said = _good(await self._http.post(self.server.token_url, fields, what, json=json, headers=headers), what)
        kind = said.get("token_type", "Bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise ConfigError(
                f"{what}: the server issues tokens of type '{printable(str(kind))}', and Callboard supports Bearer only"
            )
        access, again, scope = said.get("access_token"), said.get("refresh_token"), said.get("scope")
        if not isinstance(access, str) or not _is_sendable(access):
            raise ConfigError(f"{what}: the response of {self.server.token_url} has no access token")
        return OAuthToken(
            access_token=access,
            refresh_token=again if isinstance(again, str) else "",
            scopes=tuple(scope.split()) if isinstance(scope, str) else self.server.scopes,
            lifetime=_seconds(said.get("expires_in")),
            received=asked,
        )

    def _identify(self, fields: dict[str, str]) -> Mapping[str, str]:
        """Add the client's credentials to the fields, or return headers with them."""
        server = self.server
        if server.client_secret and server.basic:
            pair = f"{quote(server.client_id, safe='')}:{quote(server.client_secret, safe='')}"
            return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        fields["client_id"] = server.client_id
        if server.private_key:
            fields["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            fields["client_assertion"] = assertion(server, self.clock())
        elif server.client_secret:
            fields["client_secret"] = server.client_secret
        return {}


def _good(answer: OAuthResponse, what: str) -> dict[str, Json]:
    """Return the fields of a successful answer; raise the error of any other."""
    said, status = answer.fields, answer.status
    if said is not None and said.get("error"):
        error = refusal(said)
        if error.error in _MAY_PASS[:2] or status >= 500 or (status == 429 and error.error != "slow_down"):
            raise UpstreamError(f"{what}: {error} (HTTP {status})", status=status, retry_after=answer.retry_after)
        raise OAuthRefused(f"{what}: {error} (HTTP {status})", error=error.error)
    if status == 429 or status >= 500:
        raise UpstreamError(f"{what} failed (HTTP {status})", status=status, retry_after=answer.retry_after)
    if status != 200 and status != 201:
        raise ConfigError(
            f"{what}: the server answered with HTTP {status} and without a known OAuth error; check its URL"
        )
    if said is None:
        raise ConfigError(f"{what}: the server's response is not JSON; check its URL")
    return said


def _seconds(value: Json) -> float | None:
    """Parse a duration: a number, or a number as text; None for other values."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) or seconds < 0 else min(seconds, LONGEST_LIFETIME)


def _is_sendable(token: str) -> bool:
    """Return True if the token can be part of a header."""
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


# --- JWT client assertions: a client proves possession of a private key (RFC 7523, section 2.2)
#
# The audience is the issuer of the authorization server, as the drafts that followed RFC 7523 demand: an assertion for
# one server is useless at another. If the issuer is unknown, it is the token endpoint. The algorithm depends on the
# key: RS256 for RSA, ES256, ES384 or ES512 for elliptic curves, EdDSA for Ed25519.


ASSERTION_LIFETIME = 120
"""Lifetime of an assertion in seconds; it is used at once."""


def assertion(server: AuthServer, now: float) -> str:
    """Return a JWT, signed with the client's private key, that authenticates one request.

    Args:
        now: seconds since 1970.

    Raises:
        ConfigError: the key is unusable, or the signing libraries are not installed.
    """
    try:
        import jwt
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(f"signing with a private key needs PyJWT; run: {install_command('server')}") from error
    try:
        key = load_pem_private_key(server.private_key.encode(), None)
        algorithm = _algorithm(key)
    except (ValueError, TypeError) as error:  # not PEM, or with a passphrase
        raise ConfigError(
            f"the private key of the client {server.client_id!r} can't be used ({error}); expected a PEM text without a"
            " passphrase that begins with -----BEGIN PRIVATE KEY-----"
        ) from error
    claims = {
        "iss": server.client_id,
        "sub": server.client_id,
        "aud": server.issuer or server.token_url,
        "iat": int(now),
        "exp": int(now) + ASSERTION_LIFETIME,
        "jti": secrets.token_urlsafe(16),
    }
    return jwt.encode(claims, server.private_key, algorithm=algorithm)


def _algorithm(key: object) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        found = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}.get(key.curve.name)
        if found is not None:
            return found
    raise ValueError("the key is not RSA, Ed25519, or on one of the curves P-256, P-384, P-521")
