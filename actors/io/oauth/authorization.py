"""Authorization through the browser: request and possible answers (RFC 6749, 7636, 8707, 9207).

The secret `verifier` (PKCE) makes an intercepted code useless, and the `state` ties an answer to its request: an answer
with another state belongs to another sign-in, and is ignored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from ....protocol.errors import ConfigError, OAuthRefused, UsageError
from ..secret_redaction import hidden_head
from .server import AuthServer, check_url

SHOWN = 300
"""Maximum characters of a server's text in an error."""


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """Authorization request and its secrets.

    Attributes:
        url: URL for the browser.
        redirect_uri: URL to which the browser returns.
        state: value that the answer must repeat.
        verifier: secret that is sent with the code.
    """

    server: AuthServer
    url: str
    redirect_uri: str
    state: str
    verifier: str

    def __repr__(self) -> str:
        """Return a representation without secrets."""
        return f"Authorization({self.server!r}, redirect_uri={self.redirect_uri!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Omit secrets from rich tracebacks."""
        return [("server", self.server)]

    def is_ours(self, answer: Mapping[str, str]) -> bool:
        """Return True if an answer belongs to this request."""
        return hmac.compare_digest(answer.get("state", "").encode("utf-8", "replace"), self.state.encode())

    def code_of(self, answer: Mapping[str, str]) -> str:
        """Return the code of an answer to this request.

        Raises:
            OAuthRefused: the answer is a refusal, or from another server.
        """
        issuer = answer.get("iss", "")
        if self.server.issuer and issuer != self.server.issuer and (issuer or self.server.names_issuer):
            said = f"from '{issuer[:SHOWN]}'" if issuer else "from a server without a name"
            raise OAuthRefused(f"the answer is {said}, not from '{self.server.issuer}'", error="wrong_issuer")
        if error := answer.get("error", ""):
            raise refusal(answer, "the person, or the server, said no" if error == "access_denied" else "")
        if not _is_code(answer.get("code", "")):
            raise OAuthRefused("the answer has neither a code nor an error", error="no_code")
        return answer["code"]

    def code_in(self, text: str) -> str:
        """Return the code in pasted text: the code alone, `code#state`, or the final URL of the browser.

        Raises:
            UsageError: there is no code, or it belongs to another sign-in attempt.
            OAuthRefused: as `code_of`.
        """
        text = text.strip()
        answer: dict[str, str]
        if "://" in text or text.startswith("?"):
            try:
                answer = dict(parse_qsl(urlsplit(text).query))
            except ValueError:
                answer = {}
            if not answer.keys() & {"code", "error"}:
                raise UsageError("this URL has no `code`: paste the one that the browser was sent to in the end")
            if not self.is_ours(answer):
                raise UsageError("this URL belongs to another attempt to sign in (its `state` differs)")
            return self.code_of(answer)
        code, hash_, state = text.partition("#")
        if not _is_code(code):
            raise UsageError("this is no code: paste the code, or the URL that the browser was sent to")
        if hash_ and not self.is_ours({"state": state}):
            raise UsageError("this code belongs to another attempt to sign in (its `state` differs)")
        return code


def authorization(server: AuthServer, redirect_uri: str) -> Authorization:
    """Return a new authorization request.

    Raises:
        ConfigError: the server's addresses are unusable.
    """
    if not server.authorization_url:
        raise ConfigError("no `authorization_url` is known, so there is no sign-in by the browser")
    check_url(server.authorization_url, "the authorization URL")
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
    own = {
        "response_type": "code",
        "client_id": server.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(server.scopes),
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "resource": server.resource,
    }
    said = {**server.more, **{name: value for name, value in own.items() if value}}
    glue = "&" if urlsplit(server.authorization_url).query else "?"
    url = f"{server.authorization_url}{glue}{urlencode(said)}"
    return Authorization(server=server, url=url, redirect_uri=redirect_uri, state=state, verifier=verifier)


def _is_code(text: str) -> bool:
    """Return True if the text has only characters that are allowed in codes (RFC 6749, appendix A.11)."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode("ascii")


def refusal(answer: Mapping[str, object], why: str = "") -> OAuthRefused:
    """Return the error for an answer with `error`, in a redirect or a body."""
    error = answer.get("error")
    code = (error if isinstance(error, str) else "error")[:80]
    details = answer.get("error_description")
    words = details if isinstance(details, str) else ""
    if isinstance(error, dict) and isinstance(error.get("message"), str):  # contrary to the standard
        words = error["message"]
    text = ": ".join(part for part in (why, printable(words), printable(code)) if part)
    return OAuthRefused(text, error=code)


def printable(text: str) -> str:
    """Return untrusted text, redacted, as part of an error line."""
    return " ".join("".join(char if char.isprintable() else " " for char in hidden_head(text, SHOWN)).split())
