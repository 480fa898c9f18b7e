"""The few requests to authorization servers: each on a connection of its own, within bounds, redirects not followed.

A code and a refresh token are good once. So no request is sent a second time by itself, and what became of one that got
no answer is for its caller to find out.
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
from ..http.refusal import retry_after
from ..imports import imported
from .server import check_url

if TYPE_CHECKING:
    from ..http.transport import TrioTransport

Json = Any

TIMEOUT = 30.0
"""Seconds for each step of a request."""

WITHIN = 60.0
"""Seconds for all of it."""


class Answer(msgspec.Struct, frozen=True):
    """What a server said.

    Attributes:
        fields: the object in its body; None if there is none.
        retry_after: seconds that it wants us to wait, if it said.
    """

    status: int
    headers: Mapping[str, str]
    fields: dict[str, Json] | None
    retry_after: float | None = None

    def __repr__(self) -> str:
        """Without the body, which may be a token."""
        return f"Answer({self.status})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As `__repr__`, for tracebacks."""
        return [("status", self.status)]


class AuthHttp:
    """Sends them.

    Args:
        environ: for proxies and certificates.
        proxy: a URL, `-` for none, empty to go by `environ`.
    """

    def __init__(self, environ: Mapping[str, str], proxy: str = "") -> None:
        self._environ = environ
        self._proxy = proxy

    async def get(self, url: str, what: str) -> Answer:
        """Ask for a JSON object.

        Args:
            what: what is asked for, as errors call it.

        Raises:
            ConfigError: the URL can't be used.
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
    ) -> Answer:
        """Send fields as a form, or as JSON; raises as `get`."""
        body = msgspec.json.encode(fields) if json else urlencode(fields).encode()
        kind = "application/json" if json else "application/x-www-form-urlencoded"
        return await self._send("POST", url, what, body, {"content-type": kind, **(headers or {})})

    async def post_json(self, url: str, value: Json, what: str) -> Answer:
        """Send any JSON; raises as `get`."""
        return await self._send("POST", url, what, msgspec.json.encode(value), {"content-type": "application/json"})

    def _transport(self) -> TrioTransport | None:
        """What a request goes through, in place of one of that environment and proxy."""
        return None

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        check_url(url, what)
        await imported(".actors.io.http.brief")
        from ..http.brief import brief

        fields = {
            "accept": "application/json",  # some answer with a form otherwise
            "accept-encoding": "identity",
            "user-agent": "callboard",
            **headers,
        }
        with trio.move_on_after(WITHIN) as scope:
            try:
                found = await brief(
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
            except ValueError as error:  # a host that begins with `xn--` and is no name
                raise ConfigError(f"{what} is '{url}': {error}") from error
        if scope.cancelled_caught:
            raise UpstreamError(f"{what}: no whole answer within {WITHIN:g} s")
        kind = found.headers.get("content-type", "").partition(";")[0].strip().lower()
        wait = retry_after(found.headers, time.time())
        return Answer(found.status, found.headers, _fields(found.body, kind), wait)


def _fields(body: bytes, kind: str) -> dict[str, Json] | None:
    if kind == "application/x-www-form-urlencoded":
        return dict(parse_qsl(body.decode("utf-8", errors="replace")))
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
