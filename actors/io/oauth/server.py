"""An authorization server, and as whom we ask it for tokens."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ....protocol.errors import ConfigError

LOOPBACK = "http://127.0.0.1/callback"
"""Where the browser comes back to unless something else is registered: without a port, any free one is taken."""


class AuthServer(msgspec.Struct, frozen=True, kw_only=True):
    """Who gives out tokens, and as whom we ask.

    Attributes:
        client_id, client_secret: as whom; a program on a person's machine mostly has no secret.
        basic: id and secret go into the `Authorization` header, not into the body.
        authorization_url: where the person says yes; empty if there is only the device flow.
        token_url: where codes become tokens, and old tokens new ones.
        device_url, revocation_url: empty where there are none.
        redirect_uri: where the browser is sent to with the code. On loopback we listen there, on any port if it names
            none; elsewhere the person brings the code back by hand.
        scopes: what is asked for.
        issuer: the server's name; an answer that names another one is refused (RFC 9207).
        names_issuer: its answers always name it, so one that does not is refused.
        resource: what the token is for (RFC 8707); empty if that is not said.
        body: in which format requests for tokens are.
        more: further parameters of the authorization URL.
    """

    client_id: str
    token_url: str
    client_secret: str = ""
    basic: bool = False
    authorization_url: str = ""
    device_url: str = ""
    revocation_url: str = ""
    redirect_uri: str = LOOPBACK
    scopes: tuple[str, ...] = ()
    issuer: str = ""
    names_issuer: bool = False
    resource: str = ""
    body: Literal["form", "json"] = "form"
    more: dict[str, str] = {}

    def __repr__(self) -> str:
        """Without the secret."""
        return f"AuthServer(client_id={self.client_id!r}, token_url={self.token_url!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As `__repr__`, for tracebacks."""
        return [("client_id", self.client_id), ("token_url", self.token_url)]

    @property
    def mark(self) -> str:
        """Stands for server and client in the file of a token: it goes back only to whom it is from."""
        return hashlib.sha256(f"{self.token_url}\n{self.client_id}".encode()).hexdigest()[:32]


def check_url(url: str, what: str) -> None:
    """See that tokens and codes may travel there: by https, or to this machine itself.

    Args:
        what: what the URL is, for the error.

    Raises:
        ConfigError: they may not.
    """
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"{what} is '{url}', not a URL that begins with https://")
    if not is_safe(url):
        raise ConfigError(f"{what} is '{url}': tokens are only sent by https, or to this machine itself")


def is_safe(url: str) -> bool:
    """Whether it is an https URL, or one of this machine itself."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_on_loopback(url: str) -> bool:
    """Whether we can listen at a URL: it is plain HTTP, on this machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether a host's name, or its address, is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
