"""Requests to addresses that servers have named: as `AuthHttp`, and nowhere where strangers may not send us.

A server of the internet must not have us knock at this machine or a private network, so what counts is where a
connection leads (see `io.http.guarded`). A server that is private itself may name its neighbours: then the answer that
wanted a login has come from a private address, which no name that is looked up anew can pretend.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec
import trio

from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from .....protocol.json_values import UNREADABLE
from ....io.http.brief import Brief, brief
from ....io.http.guarded import CantFetch, GuardedTransport
from ....io.http.refusal import retry_after
from ....io.oauth.http import TIMEOUT, Answer, AuthHttp
from ....io.oauth.server import check_url

WITHIN = 60.0
"""Seconds for a request and all of its answer."""


class GuardedAuthHttp(AuthHttp):
    """See the module.

    Args:
        environ: for proxies and certificates.
        private: whether the server is private itself.
    """

    def __init__(self, environ: Mapping[str, str], *, private: bool) -> None:
        super().__init__(environ)
        self._private = private

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        check_url(url, what)
        fields = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "callboard", **headers}
        guarded = GuardedTransport(self._environ, allow_private=self._private)
        try:
            with trio.fail_after(WITHIN):
                found = await brief(
                    method, url, fields, body, environ=self._environ, timeout=TIMEOUT, transport=guarded
                )
        except CantFetch as error:
            raise ConfigError(f"{what}: {error}") from error
        except (CredentialsError, UpstreamError, trio.TooSlowError) as error:
            late = isinstance(error, trio.TooSlowError)
            raise UpstreamError(f"{what}: {f'no whole answer within {WITHIN:g} s' if late else error}") from error
        return Answer(found.status, found.headers, _fields(found), retry_after(found.headers, time.time()))


def _fields(found: Brief) -> dict[str, object] | None:
    if found.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(found.body.decode("utf-8", errors="replace")))
    try:
        decoded = msgspec.json.decode(found.body)
    except UNREADABLE:
        return None
    return decoded if isinstance(decoded, dict) else None
