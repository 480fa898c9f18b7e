"""Requests to addresses that servers have named: as `AuthHttp`, and nowhere where strangers may not send us.

A server of the internet must not have us knock at this machine or a private network, so what counts is where a
connection leads (see `io.http.guarded`). A server that is private itself may name its neighbours: then the answer that
wanted a login has come from a private address, which no name that is looked up anew can pretend.
"""

from __future__ import annotations

from collections.abc import Mapping

from .....protocol.errors import ConfigError
from ....io.http.guarded import CantFetch, GuardedTransport
from ....io.oauth.http import Answer, AuthHttp


class GuardedAuthHttp(AuthHttp):
    """See the module.

    Args:
        environ: for proxies and certificates.
        private: whether the server is private itself.
    """

    def __init__(self, environ: Mapping[str, str], *, private: bool) -> None:
        super().__init__(environ)
        self._private = private

    def _transport(self) -> GuardedTransport:
        return GuardedTransport(self._environ, allow_private=self._private)

    async def _send(self, method: str, url: str, what: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            return await super()._send(method, url, what, body, headers)
        except CantFetch as error:
            raise ConfigError(f"{what}: {error}") from error
