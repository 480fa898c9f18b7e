"""Where codes become tokens, and old tokens new ones (RFC 6749, 7009, 8628)."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from ....protocol.errors import ConfigError, NobodyToAsk, OAuthRefused, UpstreamError
from .authorization import Authorization, printable, refusal
from .http import Answer, AuthHttp
from .server import AuthServer, check_url, is_safe
from .token import LONGEST, Token

Json = Any

INTERVAL = 5.0
"""Seconds between two questions whether the person has said yes, unless the server says otherwise."""

SLOWER = 5.0
"""Seconds more, each time the server says `slow_down`."""

MOST_WAIT = 60.0
"""Seconds between two questions, whatever the server says."""

_MAY_PASS = ("temporarily_unavailable", "server_error", "slow_down")
"""Words of servers that speak of now, and not of us."""


class DeviceGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has to do elsewhere.

    Attributes:
        verification_uri: the page to open; `complete_uri` the same with the code in it, or empty.
        user_code: what to type there.
        lifetime, interval: seconds: how long that is good, and how often to ask.
    """

    device_code: str
    user_code: str
    verification_uri: str
    complete_uri: str = ""
    lifetime: float = 600.0
    interval: float = INTERVAL

    def __repr__(self) -> str:
        """Without the codes."""
        return f"DeviceGrant({self.verification_uri!r})"


class TokenEndpoint:
    """Asks a server for tokens.

    Args:
        server: which, and as whom.
        http: sends the requests.
        clock: seconds since 1970.
    """

    def __init__(self, server: AuthServer, http: AuthHttp, clock: Callable[[], float] = time.time) -> None:
        self.server = server
        self.clock = clock
        self._http = http

    async def exchange(self, request: Authorization, code: str) -> Token:
        """The token for a code.

        Raises:
            OAuthRefused: the server does not take the code, or us.
            UpstreamError: it can't be reached, or fails in a way that may pass.
            ConfigError: its address, or what it answers, can't be used.
        """
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": request.redirect_uri,
            "code_verifier": request.verifier,
        }
        if self.server.body == "json":  # a server that is this far from the standard wants it back
            fields["state"] = request.state
        return await self._token(fields, "the exchange of the code")

    async def refresh(self, token: Token) -> Token:
        """Another token; keeps the refresh token where the server gives no new one. Raises as `exchange`."""
        fields = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        fresh = await self._token(fields, "the refresh of the token")
        return msgspec.structs.replace(
            fresh,
            refresh_token=fresh.refresh_token or token.refresh_token,
            scopes=fresh.scopes or token.scopes,
        )

    async def device(self) -> DeviceGrant:
        """Begin the device flow. Raises as `exchange`."""
        if not self.server.device_url:
            raise ConfigError("no `device_url` is known, so there is no sign-in on another device")
        fields = {"client_id": self.server.client_id, "scope": " ".join(self.server.scopes)}
        if self.server.resource:
            fields["resource"] = self.server.resource
        what = "the request for a device code"
        answer = await self._http.post(self.server.device_url, _without_gaps(fields), what)
        said = _good(answer, what)
        texts = {
            "device_code": said.get("device_code"),
            "user_code": said.get("user_code"),
            "verification_uri": said.get("verification_uri") or said.get("verification_url"),  # as Google has it
        }
        given = {name: value for name, value in texts.items() if isinstance(value, str) and value}
        if given.keys() != texts.keys():
            raise ConfigError(f"{what}: the answer of {self.server.device_url} has no device code")
        complete = said.get("verification_uri_complete")
        check_url(given["verification_uri"], "the page for the code")
        return DeviceGrant(
            **given,
            complete_uri=complete if isinstance(complete, str) and is_safe(complete) else "",
            lifetime=_seconds(said.get("expires_in")) or 600.0,
            interval=min(_seconds(said.get("interval")) or INTERVAL, MOST_WAIT),
        )

    async def device_token(self, grant: DeviceGrant) -> Token:
        """Wait until the person has said yes; raises as `exchange`, and

        Raises:
            NobodyToAsk: the code expired before that.
        """
        fields = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": grant.device_code}
        wait, end = grant.interval, trio.current_time() + grant.lifetime
        while True:
            if trio.current_time() + wait > end:
                raise NobodyToAsk(f"the code was not entered within {grant.lifetime:g} s")
            await trio.sleep(wait)
            try:
                return await self._token(fields, "the sign-in on the other device")
            except OAuthRefused as refused:
                if refused.error == "slow_down":
                    wait = min(wait + SLOWER, MOST_WAIT)
                elif refused.error == "expired_token":
                    raise NobodyToAsk("the code was not entered before it expired") from refused
                elif refused.error != "authorization_pending":
                    raise
            except UpstreamError:  # RFC 8628, 3.5: the next question comes later, and the code's end ends it all
                wait = min(wait * 2, MOST_WAIT)

    async def revoke(self, token: Token) -> None:
        """Tell the server that the token is not needed any more; nothing if it takes no such messages.

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

    async def _token(self, fields: dict[str, str], what: str) -> Token:
        headers = self._identify(fields)
        if self.server.resource:
            fields["resource"] = self.server.resource
        asked = self.clock()
        json = self.server.body == "json"
        said = _good(await self._http.post(self.server.token_url, fields, what, json=json, headers=headers), what)
        kind = said.get("token_type", "Bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise ConfigError(f"{what}: the server gives tokens of type '{printable(str(kind))}', not Bearer")
        access, again, scope = said.get("access_token"), said.get("refresh_token"), said.get("scope")
        if not isinstance(access, str) or not _is_sendable(access):
            raise ConfigError(f"{what}: the answer of {self.server.token_url} has no access token")
        return Token(
            access_token=access,
            refresh_token=again if isinstance(again, str) else "",
            scopes=tuple(scope.split()) if isinstance(scope, str) else self.server.scopes,
            lifetime=_seconds(said.get("expires_in")),
            received=asked,
        )

    def _identify(self, fields: dict[str, str]) -> Mapping[str, str]:
        """Say who we are, in the fields or in headers."""
        server = self.server
        if server.client_secret and server.basic:
            pair = f"{quote(server.client_id, safe='')}:{quote(server.client_secret, safe='')}"
            return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        fields["client_id"] = server.client_id
        if server.client_secret:
            fields["client_secret"] = server.client_secret
        return {}


def _good(answer: Answer, what: str) -> dict[str, Json]:
    """The fields of a good answer; every other one as the error that it stands for."""
    said, status = answer.fields, answer.status
    if said is not None and said.get("error"):
        error = refusal(said)
        if error.error in _MAY_PASS[:2] or status >= 500 or (status == 429 and error.error != "slow_down"):
            raise UpstreamError(f"{what}: {error} (HTTP {status})", status=status, retry_after=answer.retry_after)
        raise OAuthRefused(f"{what}: {error} (HTTP {status})", error=error.error)
    if status == 429 or status >= 500:
        raise UpstreamError(f"{what} failed (HTTP {status})", status=status, retry_after=answer.retry_after)
    if status != 200 and status != 201:
        raise ConfigError(f"{what}: the server answered with HTTP {status}, and no reason that we know; check its URL")
    if said is None:
        raise ConfigError(f"{what}: the server answered with something else than JSON; check its URL")
    return said


def _seconds(value: Json) -> float | None:
    """A time as servers tell it: a number, or a number as text; None for what is no time."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) or seconds < 0 else min(seconds, LONGEST)


def _is_sendable(token: str) -> bool:
    """Whether it can stand in a header."""
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def _without_gaps(fields: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
