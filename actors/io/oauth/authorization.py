"""The way of a person through the browser: what it is sent to, and what may come back (RFC 6749, 7636, 8707, 9207).

The secret `verifier` (PKCE) makes a code useless to others who see it, and the `state` shows that an answer belongs to
our question: one with another state belongs to another sign-in, and changes nothing.
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
from .server import AuthServer, check_url

SHOWN = 300
"""Characters of a server's words that become part of an error."""


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a person, and the secrets that go with it.

    Attributes:
        url: for the browser.
        redirect_uri: where that comes back to.
        state: has to come back.
        verifier: goes along when the code becomes a token.
    """

    server: AuthServer
    url: str
    redirect_uri: str
    state: str
    verifier: str

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Authorization({self.server!r}, redirect_uri={self.redirect_uri!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As `__repr__`, for tracebacks."""
        return [("server", self.server)]

    def is_ours(self, answer: Mapping[str, str]) -> bool:
        """Whether an answer belongs to this question."""
        return hmac.compare_digest(answer.get("state", "").encode("utf-8", "replace"), self.state.encode())

    def code_of(self, answer: Mapping[str, str]) -> str:
        """The code in an answer of ours.

        Raises:
            OAuthRefused: the answer is no, or from another server.
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
        """The code in what a person has pasted: it alone, `code#state`, or the URL that the browser was sent to.

        Raises:
            UsageError: there is none, or it belongs to another attempt to sign in.
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
    """A new question to a person.

    Raises:
        ConfigError: the server's addresses can't be used.
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
    """Whether it is made of what codes may be made of (RFC 6749, appendix A.11)."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def challenge_of(verifier: str) -> str:
    """The hash of a secret that the server sees first; the secret itself it sees later (S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode("ascii")


def refusal(answer: Mapping[str, object], why: str = "") -> OAuthRefused:
    """The error for an answer with `error`, as servers put it into redirects and bodies."""
    error = answer.get("error")
    code = (error if isinstance(error, str) else "error")[:80]
    details = answer.get("error_description")
    words = details if isinstance(details, str) else ""
    if isinstance(error, dict) and isinstance(error.get("message"), str):  # not as the standard has it
        words = error["message"]
    text = ": ".join(part for part in (why, printable(words), printable(code)) if part)
    return OAuthRefused(text, error=code)


def printable(text: str) -> str:
    """A stranger's words as part of a line of ours."""
    return " ".join("".join(char if char.isprintable() else " " for char in text[:SHOWN]).split())
