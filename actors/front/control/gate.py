"""The interface by which a transport admits each connection before it sends anything else.

`LocalGate` is the gate of a server that only its own user reaches: one token, this machine's names, its own pages.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol
from urllib.parse import urlsplit

import trio

from ....protocol.control.caller import LOCAL, Caller
from ....protocol.errors import CallboardError, Denied, Unauthorized

SUBPROTOCOL = "callboard.v1"
BEARER_SUBPROTOCOL = "bearer."
"""How a browser, which can't set a header on a websocket, sends its token: base64url without padding after this."""


class Gate(Protocol):
    """What a transport asks."""

    async def admit(self, headers: Mapping[str, str], peer: str) -> Caller:
        """Who comes with these headers (names in lower case) from this address.

        Raises:
            Unauthorized: no token, or a bad one.
            Denied: not from this page, or not by this name.
            Saturated: too often.
        """

    def allow(self, caller: Caller, method: str) -> None:
        """Before each method: raise `Denied` or `Saturated` if the caller may not."""

    def audited(
        self, caller: Caller, method: str, target: str | None = None, error: CallboardError | None = None
    ) -> None:
        """After each method: what came of it."""

    def room(self, caller: Caller) -> AbstractContextManager[None]:
        """A block for a connection, entered before it is opened: raises `Saturated` if the caller has too many."""

    def stay(self, caller: Caller) -> AbstractContextManager[trio.CancelScope]:
        """A block for a connection, which is cancelled when the caller's key does not count any more."""

    def frame(self, direction: str) -> None:
        """A frame came `in`, or went `out`: for who counts them."""


class LocalGate:
    """See the module.

    Args:
        token: what callers have to bring.
        hosts: names that we may be called by, beside those of this machine.
        origins: pages that may connect, beside our own.
    """

    def __init__(self, token: str, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower() for origin in origins)

    async def admit(self, headers: Mapping[str, str], peer: str) -> Caller:  # noqa: ARG002 - it is all the same to us
        """See `Gate`."""
        check_host(headers, self._hosts)
        check_origin(headers, self._origins)
        token = token_of(headers)
        if token is None:
            raise Unauthorized("a token is needed: `Authorization: Bearer ...`")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Unauthorized("this is not the token of this server")
        return LOCAL

    def allow(self, caller: Caller, method: str) -> None:
        """See `Gate`: the hub looks at scopes itself."""

    def audited(
        self, caller: Caller, method: str, target: str | None = None, error: CallboardError | None = None
    ) -> None:
        """See `Gate`: there is no audit log."""

    def room(self, caller: Caller) -> AbstractContextManager[None]:  # noqa: ARG002 - it is all the same to us
        """See `Gate`: its own user may have as many as they want."""
        return nullcontext()

    def stay(self, caller: Caller) -> AbstractContextManager[trio.CancelScope]:  # noqa: ARG002 - there is one token
        """See `Gate`: the token counts as long as we live."""
        return trio.CancelScope()

    def frame(self, direction: str) -> None:
        """See `Gate`: there are no metrics."""


def token_of(headers: Mapping[str, str]) -> str | None:
    """The token that came, in the header or as a subprotocol of a websocket; None if none did."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    for offered in headers.get("sec-websocket-protocol", "").split(","):
        name = offered.strip()
        if name.startswith(BEARER_SUBPROTOCOL):
            text = name.removeprefix(BEARER_SUBPROTOCOL)
            try:
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            except (binascii.Error, UnicodeDecodeError, ValueError):
                return None
    return None


def check_host(headers: Mapping[str, str], hosts: frozenset[str]) -> None:
    """Raise `Denied` if `Host` is not ours: a foreign page may have pointed its name here."""
    host = headers.get("host", "")
    name = _name(host)
    if not is_loopback(name) and name not in hosts and host.lower() not in hosts:
        raise Denied(f"this server is not called {host[:100]!r}")


def check_origin(headers: Mapping[str, str], origins: frozenset[str]) -> None:
    """Raise `Denied` if a page that is not ours wants to connect. Programs send no origin."""
    origin = headers.get("origin")
    if origin is None or origin.lower() in origins:
        return
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or parts.netloc.lower() != headers.get("host", "").lower():
        raise Denied(f"pages of {origin[:100]!r} may not connect to this server")


def is_loopback(name: str) -> bool:
    """Whether a name or an address means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name in a `Host` header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
