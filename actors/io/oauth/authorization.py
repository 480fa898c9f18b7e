"""Authorization through the browser: server, request, redirect listener, pasted code.

The standards are RFC 6749, 7636, 8252, 8707 and 9207.

`AuthServer` describes the server and the client, `authorization` makes a request. The secret `verifier` (PKCE) makes an
intercepted code useless, and the `state` ties an answer to its request: an answer with another state belongs to another
sign-in, and is ignored.

`listening` waits for the browser, which returns to this machine with the code. Browsers open connections that they
never use, request icons, and reload old tabs; other programs may connect too. So each connection has its own task and a
few seconds, and only a request for the right path with the right `state` counts. All others get an error page, and the
wait continues. The first that counts ends it, and closes the port. If the redirect names `localhost`, the listener uses
both loopback addresses: a browser may try either first.

`code_from` asks the user for the code at the same time (`supervisors.escalation`), because the browser may run on
another machine. The first way that yields the code ends the other. The pasted text may be the browser's final URL.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import html
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import trio

from ....protocol.errors import (
    CallboardError,
    ConfigError,
    NobodyToAsk,
    OAuthRefused,
    Saturated,
    ShuttingDown,
    UsageError,
)
from ....protocol.kernel.questions import Answer, Question
from ....supervisors import QuestionTimeout
from ..secret_redaction import hidden_head

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
        raise ConfigError(f"{what} is '{url}'; expected a URL that begins with https://")
    if not is_safe(url):
        raise ConfigError(
            f"{what} is '{url}': tokens are sent only to https:// addresses, or to this machine (http://localhost)"
        )


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


# --- request


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
            said = f"from '{issuer[:SHOWN]}'" if issuer else "from a server that did not name itself"
            raise OAuthRefused(f"the sign-in response is {said}, not from '{self.server.issuer}'", error="wrong_issuer")
        if error := answer.get("error", ""):
            raise refusal(answer, "access was denied by the user or by the server" if error == "access_denied" else "")
        if not _is_code(answer.get("code", "")):
            raise OAuthRefused("the sign-in response has neither a code nor an error", error="no_code")
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
                raise UsageError(
                    "the pasted URL has no `code`: paste the URL to which the browser was redirected at the end "
                    "of the sign-in"
                )
            if not self.is_ours(answer):
                raise UsageError(
                    "the pasted URL is of another sign-in attempt (its `state` differs): paste the one of this attempt"
                )
            return self.code_of(answer)
        code, hash_, state = text.partition("#")
        if not _is_code(code):
            raise UsageError(
                "the pasted text is not a code: paste the code, or the URL to which the browser was redirected"
            )
        if hash_ and not self.is_ours({"state": state}):
            raise UsageError(
                "the pasted code is of another sign-in attempt (its `state` differs): paste the one of this attempt"
            )
        return code


def authorization(server: AuthServer, redirect_uri: str) -> Authorization:
    """Return a new authorization request.

    Raises:
        ConfigError: the server's addresses are unusable.
    """
    if not server.authorization_url:
        raise ConfigError("the server has no `authorization_url`, so a sign-in in the browser is not possible")
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


# --- redirect listener


WITHIN = 300.0
"""Seconds that a user has to sign in."""

REQUEST_WITHIN = 5.0
"""Timeout of one request in seconds."""

LINGER = 0.5
"""Seconds for the browser to close; closing a connection with unread bytes may lose the page."""

MOST_HEAD = 16 * 1024
"""Maximum bytes of a request's head."""

MOST_AT_ONCE = 32
"""Maximum number of simultaneous connections; further ones are closed at once."""

TRIES = 10
"""Attempts to find a port that is free on both addresses."""

_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


def listening(redirect_uri: str) -> Redirect:
    """Listen at the redirect URI; on any free port if it names none. Use the result in `async with`.

    Raises:
        ConfigError: it is not on this machine, or the port is in use.
    """
    try:
        parts = urlsplit(redirect_uri)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise ConfigError(f"the redirect URI '{redirect_uri}' is not valid: {error}") from error
    if parts.scheme != "http" or not is_loopback(host):
        raise ConfigError(f"the redirect URI is '{redirect_uri}'; expected one at http://127.0.0.1 or http://localhost")
    addresses = ("127.0.0.1", "::1") if host == "localhost" else (host,)
    sockets = _listeners(addresses, port)
    port = sockets[0].getsockname()[1]
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    uri = urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, ""))
    return Redirect(uri, parts.path or "/", sockets)


class Redirect:
    """Open redirect listener.

    Attributes:
        uri: redirect URI for the authorization request.
    """

    def __init__(self, uri: str, path: str, sockets: list[trio.socket.SocketType]) -> None:
        self.uri = uri
        self._path = path
        self._sockets = sockets
        self._open = 0
        self._answer: Mapping[str, str] | None = None
        self._strange = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening for the browser's redirect."""
        for each in self._sockets:
            each.close()

    async def answer(self, request: Authorization, within: float = WITHIN) -> str:
        """Wait for the browser, and return the code. The port is closed afterwards in any case.

        Raises:
            NobodyToAsk: it did not come in time.
            OAuthRefused: the answer is a refusal.
        """
        try:
            with trio.move_on_after(within):
                async with trio.open_nursery() as nursery:
                    for each in self._sockets:
                        nursery.start_soon(self._accept, each, request, nursery)
        finally:
            self.close()
        if self._answer is None:
            strange = f" ({self._strange} redirects of other sign-in attempts were ignored)" if self._strange else ""
            raise NobodyToAsk(f"the sign-in was not completed within {within:g} s{strange}; try again")
        return request.code_of(self._answer)

    async def _accept(self, listener: trio.socket.SocketType, request: Authorization, nursery: trio.Nursery) -> None:
        while True:
            try:
                connection, _ = await listener.accept()
            except OSError as error:
                # Out of descriptors or buffers, the connection stays in the queue, and `accept` would fail again at
                # once.
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                    await trio.sleep(0.1)
                    continue
                raise
            # Any program on this machine may open connections and hold them; more than this many are refused unread.
            if self._open >= MOST_AT_ONCE:
                connection.close()
                continue
            self._open += 1
            nursery.start_soon(self._serve, trio.SocketStream(connection), request, nursery.cancel_scope)

    async def _serve(self, stream: trio.SocketStream, request: Authorization, ended: trio.CancelScope) -> None:
        try:
            with trio.move_on_after(REQUEST_WITHIN), suppress(*_BROKEN):
                head = await _head(stream)
                if head is not None:
                    status, text = self._reply(head, request)
                    await stream.send_all(_page(status, text))
                    await stream.send_eof()
                    # Closing a socket with unread input sends a reset, which can discard the page before the browser
                    # reads it.
                    with trio.move_on_after(LINGER):
                        while await stream.receive_some():
                            pass
        finally:
            self._open -= 1
            stream.socket.close()
            if self._answer is not None:
                ended.cancel()

    def _reply(self, head: bytes, request: Authorization) -> tuple[HTTPStatus, str]:
        """Return the page for a request, and record the expected answer."""
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        path, _, query = target.partition("?")
        if not version.startswith("HTTP/1.") or not path.startswith("/"):
            return HTTPStatus.BAD_REQUEST, "This is not a request for a page."
        if path != self._path:
            return HTTPStatus.NOT_FOUND, "There is no page at this address."
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "There is no page at this address."
        try:
            answer = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=64))
        except ValueError:
            answer = {}
        if not request.is_ours(answer):
            self._strange += 1
            return HTTPStatus.BAD_REQUEST, "This page is of another sign-in attempt. Start the sign-in again."
        if self._answer is None:
            self._answer = answer
        try:
            request.code_of(answer)
        except OAuthRefused as error:
            return HTTPStatus.OK, f"The sign-in failed: {error}. You can close this page."
        return HTTPStatus.OK, "You are signed in. You can close this page and go back to the terminal."


async def _head(stream: trio.SocketStream) -> bytes | None:
    """Read the head of a request; None if the peer disconnects, or sends too much."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await stream.receive_some()
        head += piece
        if not piece or len(head) > MOST_HEAD:
            return None
    return head


def _page(status: HTTPStatus, text: str) -> bytes:
    words = html.escape(printable(text))
    body = f"<!doctype html><meta charset=utf-8><title>Callboard</title><h1>Callboard</h1><p>{words}</p>\n".encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "content-type: text/html; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\n"
        # The code is in the URL of this page, so the page must be neither cached nor sent as a referrer.
        "cache-control: no-store\r\n"
        "content-security-policy: default-src 'none'\r\n"
        "referrer-policy: no-referrer\r\n"
        "x-content-type-options: nosniff\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _listeners(addresses: tuple[str, ...], port: int) -> list[trio.socket.SocketType]:
    """Return sockets that listen on the same port of all these addresses, as far as this machine has them."""
    for _ in range(TRIES):
        opened: list[socket.socket] = []
        try:
            for address in addresses:
                opened.append(_listener(address, opened[0].getsockname()[1] if opened else port))
        # With port 0 the system picks a port that is free on the first address only; another program may have it on the
        # second, so the pair is tried again.
        except OSError as error:
            if opened and error.errno != errno.EADDRINUSE:
                break  # this machine has no such address
            for each in opened:
                each.close()
            if port or not opened:
                taken = (
                    f"Callboard can't listen on port {port} of {address}"
                    if port
                    else f"Callboard can't listen on {address}"
                )
                raise ConfigError(f"{taken} for the browser's redirect: {error.strerror}") from error
        else:
            break
    else:
        raise ConfigError("no port is free on both 127.0.0.1 and ::1 for the browser's redirect")
    return [trio.socket.from_stdlib_socket(each) for each in opened]


def _listener(address: str, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if ":" in address:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # on Linux this reuses only ports of closed connections
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address, port))
        found.listen(MOST_AT_ONCE)
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


# --- the code, pasted by the user


DECLINE = "/decline"

RULE = f"an address that begins with http, or a code; {DECLINE} to leave it"


Asks = Callable[[Question], Awaitable[Answer]]


async def code_from(ask: Asks, request: Authorization, redirect: Redirect | None, text: str) -> str:
    """Return the code, from the browser or pasted by the user.

    Args:
        ask: asks the user: an actor's `ask_person`, or a chat's equivalent.
        redirect: redirect listener; None if the redirect is not on this machine.
        text: question; the URL to open is in it, or was printed before.

    Raises:
        OAuthRefused: the user or the authorization server refused.
        NobodyToAsk: there is no user, or the sign-in timed out.
    """
    ends: list[str | CallboardError] = []

    async def first(way: Callable[[], Awaitable[str]], scope: trio.CancelScope) -> None:
        try:
            ends.append(await way())
        except CallboardError as error:
            ends.append(error)
        scope.cancel()

    with trio.move_on_after(WITHIN):
        async with trio.open_nursery() as nursery:
            if redirect is not None:
                nursery.start_soon(first, partial(redirect.answer, request), nursery.cancel_scope)
            nursery.start_soon(first, partial(_pasted, ask, request, text), nursery.cancel_scope)
    if not ends:
        raise NobodyToAsk(f"the sign-in was not completed within {WITHIN:g} s; try again")
    if isinstance(ends[0], CallboardError):
        raise ends[0]
    return ends[0]


async def _pasted(ask: Asks, request: Authorization, text: str) -> str:
    problem: str | None = None
    while True:
        question = Question(
            id="", actor="", text=text, kind="text", rule=RULE, problem=problem, secret=True, people=True
        )
        try:
            answer = await ask(question)
        except (QuestionTimeout, Saturated, ShuttingDown) as error:
            raise NobodyToAsk(f"a user has to sign in, and no user can be asked: {error}") from error
        said = answer.text.strip()
        if said.casefold() == DECLINE:
            raise OAuthRefused("the user declined to sign in", error="declined")
        try:
            return request.code_in(said)
        except UsageError as error:
            problem = str(error)
