"""HTTP requests to authorization servers: each on its own connection, within limits, without redirects.

A code and a refresh token are valid once. So no request is repeated automatically, and the caller must find out what
happened to one without an answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import msgspec
import trio

from ....protocol.errors import ConfigError, CredentialsError, UpstreamError
from ....protocol.json_values import UNREADABLE
from ..http.error_response import retry_after
from ..imports import imported
from .server import check_url

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
        """Request a JSON object.

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
        await imported(".actors.io.http.simple_request")
        from ..http.simple_request import simple_request

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
            raise UpstreamError(f"{what}: no whole answer within {WITHIN:g} s")
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
