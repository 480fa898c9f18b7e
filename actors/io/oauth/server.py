"""Description of an authorization server and of the client."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ....protocol.errors import ConfigError

LOOPBACK = "http://127.0.0.1/callback"
"""Default redirect URI: without a port, any free one is used."""


class AuthServer(msgspec.Struct, frozen=True, kw_only=True):
    """Authorization server, and the client's credentials at it.

    Attributes:
        client_id, client_secret: credentials; a program on a user's machine mostly has no secret.
        private_key: PEM key that signs client assertions (RFC 7523), in place of a secret.
        basic: True sends id and secret in the `Authorization` header, False in the body.
        authorization_url: page where the user agrees; empty if there is only the device flow.
        token_url: endpoint for codes and refresh tokens.
        device_url, revocation_url: empty if there are none.
        redirect_uri: URL to which the browser is sent with the code. On loopback a listener waits there, on any port if
            it names none; otherwise the user pastes the code.
        scopes: requested scopes.
        issuer: name of the server; an answer with another one is refused (RFC 9207).
        names_issuer: True if its answers always name it, so that one without is refused.
        resource: resource of the token (RFC 8707); empty to omit it.
        body: format of token requests.
        more: further parameters of the authorization URL.
    """

    client_id: str
    token_url: str
    client_secret: str = ""
    private_key: str = ""
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
        """Return a representation without the secret."""
        return f"AuthServer(client_id={self.client_id!r}, token_url={self.token_url!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Omit secrets from rich tracebacks."""
        return [("client_id", self.client_id), ("token_url", self.token_url)]

    @property
    def mark(self) -> str:
        """Fingerprint of server and client in a token file: a token is sent only to the server that issued it."""
        return hashlib.sha256(f"{self.token_url}\n{self.client_id}".encode()).hexdigest()[:32]


def check_url(url: str, what: str) -> None:
    """Check that tokens and codes may be sent to a URL: by https, or to this machine.

    Args:
        what: name of the URL in the error.

    Raises:
        ConfigError: they may not.
    """
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"{what} is '{url}', not a URL that begins with https://")
    if not is_safe(url):
        raise ConfigError(f"{what} is '{url}': tokens are only sent by https, or to this machine itself")


def is_safe(url: str) -> bool:
    """Return True for an https URL, or one of this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_on_loopback(url: str) -> bool:
    """Return True if a listener can serve the URL: it is plain HTTP, on this machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return True if a host's name or address is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
