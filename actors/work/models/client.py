"""HTTP client of the providers: one request, its answer, and an error type for every failure.

It uses httpx's URLs and responses, but not its client. Redirects, cookies and authentication schemes are never wanted
between an agent and a model, and they cost more time than the request itself. Each combination of base URL, proxy and
connect timeout has its own transport.

**Web pages** are refused (`WebPageFilter`). A wrong `api_base` often is the address of a website. The login page of a
hotel's Wi-Fi answers every request with status 200. Without the check, both look like a reply that broke off, and each
retry gets the same page.

The content type alone proves nothing: servers written in PHP send streams as `text/html`. So the first bytes decide.
JSON and server-sent events never start with `<`. A body with the type HTML must start like one of these two.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NoReturn, Self

import httpx
import trio

from ....protocol.chat import ChatReply, ChatRequest, Delta, TextDelta
from ....protocol.errors import AccountEmpty, KeyRefused, ModelError, Stalled, UpstreamError
from ...io.http.headers import message_in, retry_after
from ...io.http.http1 import unpacked, unpacker_of
from ...io.http.transport import Exchange, TrioTransport
from ...io.secret_redaction import PUT, Redactor
from .catalog import ModelTarget
from .codec import Sign, StreamOrWhole

log = logging.getLogger("callboard.models")

READ_TIMEOUT = 600.0
"""Seconds without a byte after which an answer fails. Long, since a model may reason for minutes before the first."""

WRITE_TIMEOUT = 60.0

LAST_BYTES = 5.0
"""Seconds that a stream may stay open after its reply is complete; then its connection is closed."""

MAX_REPLY = 64 * 1024 * 1024
"""Maximum size of an answer in bytes, after decompression. A longer one raises ModelError."""

_REPLIES = frozenset(
    {b"application/json", b"text/event-stream", b"application/x-ndjson", b"application/vnd.amazon.eventstream"}
)
"""Content types of replies; an answer of any other type may be a web page."""


OnHeaders = Callable[[Mapping[bytes, bytes]], None]
"""Callback for the headers of an answer, by lower-case name."""

OnBody = Callable[[bytes], None]


class Endpoint:
    """Base URL with its own transport. As a context manager it counts its users.

    Attributes:
        idle_since: time when the last request finished; `Endpoints` sets it.
        when_unused: called when the last user exits.
    """

    def __init__(self, api_base: str, proxy: str, connect_timeout: float, environ: Mapping[str, str]) -> None:
        self.idle_since = 0.0
        self.when_unused: Callable[[Endpoint], None] | None = None
        self._users = 0
        self._base = api_base
        self._transport = TrioTransport(environ=environ, proxy=proxy)
        self._urls: dict[str, httpx.URL] = {}
        self._timeouts = {"connect": connect_timeout, "read": READ_TIMEOUT, "write": WRITE_TIMEOUT, "pool": None}

    def __enter__(self) -> Self:
        self._users += 1
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._users -= 1
        if not self._users and self.when_unused is not None:
            self.when_unused(self)

    def close(self) -> None:
        """Close the connections at once."""
        self._transport.connections.close()

    async def ask(
        self,
        target: ModelTarget,
        headers: Mapping[str, str],
        request: ChatRequest,
        on_delta: Callable[[Delta], None],
        on_headers: OnHeaders,
        on_body: OnBody | None = None,
    ) -> ChatReply:
        """Send `request` and wait for the complete reply; `on_delta` receives its text in one piece.

        Args:
            on_headers: receives the headers of a successful answer, before its body.
            on_body: receives the body of the request, before it is sent.

        Raises:
            KeyRefused, AccountEmpty, ModelError, UpstreamError: see `refused` and `broken`.
            ModelError: also if the answer is a web page, longer than `MAX_REPLY`, or not in the provider's format.
        """
        outgoing = target.codec.encode(request, target.name, stream=False)
        if on_body is not None:
            on_body(outgoing.body)
        pieces: list[bytes] = []
        path, body = outgoing.path, outgoing.body
        await self._answer(target.id, headers, path, body, pieces.append, on_headers, outgoing.sign)
        reply = outgoing.decode(b"".join(pieces))
        if reply.text:
            on_delta(TextDelta(reply.text))
        return reply

    async def stream(
        self,
        target: ModelTarget,
        headers: Mapping[str, str],
        request: ChatRequest,
        on_delta: Callable[[Delta], None],
        on_headers: OnHeaders,
        on_body: OnBody | None = None,
    ) -> ChatReply:
        """Send `request`, pass every delta to `on_delta` as it arrives, and return the complete reply.

        Parameters and errors are the same as for `ask`, and in addition:

        Raises:
            Stalled: the stream stayed open for `target.idle_timeout` seconds without progress.
        """
        outgoing = target.codec.encode(request, target.name, stream=True)
        if on_body is not None:
            on_body(outgoing.body)
        answer: StreamOrWhole
        watch = trio.CancelScope()

        def begun(found: Mapping[bytes, bytes]) -> None:
            nonlocal answer
            answer = StreamOrWhole(outgoing, found.get(b"content-type", b"").decode("latin-1"))
            watch.deadline = trio.current_time() + target.idle_timeout
            on_headers(found)

        def take(piece: bytes) -> None:
            # Only deltas and token counts are progress. Servers send comments and empty events to keep a connection
            # open, even while the model behind them is dead: a timeout per byte would never expire.
            reader = answer.reader
            usage, moved = reader.builder.usage, False
            for delta in answer.feed(piece):
                moved = True
                on_delta(delta)
            if reader.ended:
                watch.deadline = trio.current_time() + LAST_BYTES
            elif moved or reader.builder.usage is not usage:
                watch.deadline = trio.current_time() + target.idle_timeout

        with watch:
            await self._answer(target.id, headers, outgoing.path, outgoing.body, take, begun, outgoing.sign)
        if watch.cancelled_caught and not answer.reader.ended:
            raise Stalled(
                f"{target.id}: the reply stopped: no data arrived for {target.idle_timeout:g} s "
                "(`model_idle_timeout` in config.yaml)"
            )
        for delta in answer.rest():
            on_delta(delta)
        return answer.finish()

    async def post(
        self,
        id: str,
        headers: Mapping[str, str],
        path: str,
        body: bytes,
        on_headers: OnHeaders | None = None,
        sign: Sign | None = None,
    ) -> bytes:
        """Send any JSON request for the model `id` and return the undecoded body of the answer. Raises like `ask`."""
        pieces: list[bytes] = []
        await self._answer(id, headers, path, body, pieces.append, on_headers, sign)
        return b"".join(pieces)

    async def _answer(
        self,
        id: str,
        headers: Mapping[str, str],
        path: str,
        body: bytes,
        take: Callable[[bytes], object],
        on_headers: OnHeaders | None,
        sign: Sign | None,
    ) -> None:
        """Pass the body of a successful answer to `take`, and release or close the connection at the end."""
        url = self._url(path)
        try:
            exchange = await self._transport.exchange(
                "POST", url, _head(id, url, headers, body, sign), body, self._timeouts
            )
            try:
                if exchange.status >= 300:
                    refused(id, exchange.response(), await _whole(exchange), signed=sign is not None)
                if on_headers is not None:
                    on_headers(exchange.fields)
                content_type = exchange.fields.get(b"content-type", b"")
                if content_type.partition(b";")[0] in _REPLIES:
                    await _each_piece(exchange, take)
                else:  # gateways, portals and wrong base URLs answer with a web page and status 200
                    where = f"{url.scheme}://{url.netloc.decode('ascii')}{url.path} (HTTP {exchange.status})"
                    checked = WebPageFilter(id, where, content_type.decode("latin-1"), take)
                    await _each_piece(exchange, checked)
                    checked.finish()
            finally:
                await exchange.aclose()
        except httpx.HTTPError as error:
            broken(id, error)

    def _url(self, path: str) -> httpx.URL:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx.URL(self._base + path)
        return url


def _head(
    id: str, url: httpx.URL, headers: Mapping[str, str], body: bytes, sign: Sign | None
) -> list[tuple[bytes, bytes]]:
    fields = {
        "host": url.netloc.decode("ascii"),
        **headers,
        "content-type": "application/json",
        "accept-encoding": "identity",
        "content-length": str(len(body)),
    }
    if sign is not None:
        fields |= sign(url, body)
    if log.isEnabledFor(logging.DEBUG):
        log_request(id, url, fields, body)
    return [(_ascii(name), _ascii(value)) for name, value in fields.items()]


@lru_cache(maxsize=512)
def _ascii(text: str) -> bytes:
    return text.encode("ascii")


async def _whole(exchange: Exchange) -> bytes:
    pieces: list[bytes] = []
    await _each_piece(exchange, pieces.append)
    return b"".join(pieces)


async def _each_piece(exchange: Exchange, take: Callable[[bytes], object]) -> None:
    """Pass the body to `take` as it arrives. Decompress it if needed: some servers ignore `accept-encoding`."""
    encoding = exchange.fields.get(b"content-encoding")
    unpacker = None if encoding is None else unpacker_of(encoding.decode("latin-1"))
    received = size = 0
    while piece := await exchange.receive():
        received += len(piece)
        for part in (piece,) if unpacker is None else unpacked(unpacker, piece):
            size += len(part)
            if size > MAX_REPLY:
                raise _too_long()
            take(part)
        if received > MAX_REPLY:  # a compressed body can grow without bound and still decompress to nothing
            raise _too_long()


def _too_long() -> ModelError:
    return ModelError(f"the provider's response is longer than {MAX_REPLY >> 20} MB")


_TRANSIENT = frozenset({408, 409, 425, 429})


def refused(id: str, response: httpx.Response, body: bytes, *, signed: bool = False) -> NoReturn:
    """Raise the error for an answer with a status of 300 or above.

    Args:
        id: id of the model, for the text.
        signed: True if the request was signed and had no API key.

    Raises:
        KeyRefused: status 401 or 403.
        AccountEmpty: status 429 with a provider's word for an exhausted account.
        UpstreamError: a status that may pass: 408, 409, 425, 429, or 500 and above.
        ModelError: any other status.
    """
    status = response.status_code
    reason = message_in(body) or response.reason_phrase or "no explanation"
    text = f"{id}: {reason} (HTTP {status})"
    if status in (401, 403):
        client = id.partition(":")[0]
        if signed:
            advice = f"check the credentials of client '{client}', and their permissions"
            raise KeyRefused(f"{text}; {advice}", said=text, status=status)
        variable = f"{client.upper().replace('-', '_')}_API_KEY"
        where = f"of client '{client}' (`api_key` in config.yaml, or {variable})"
        if "@" in client:  # named by `ModelCatalog.adopt`: a definition file describes this client
            where = "in the file that describes the client"
        raise KeyRefused(f"{text}; check the API key {where}", said=text, status=status)
    if status == 429 and (b"insufficient_quota" in body or b"API calls / month" in body):  # OpenAI, Cohere
        raise AccountEmpty(text)  # not transient: a wait does not refill an account
    if status in _TRANSIENT or status >= 500:
        raise UpstreamError(text, status=status, retry_after=retry_after(response.headers, time.time()))
    if status < 400:
        raise ModelError(f"{text}: redirects are not followed; correct `api_base`")
    error = ModelError(text)
    error.status = status
    raise error


def broken(id: str, error: httpx.HTTPError) -> NoReturn:
    """Raise the error for a request with no answer, or with a part of one.

    `sent` of the error is False if no connection was made, so the provider cannot have charged for it.

    Raises:
        ModelError: the request or the URL is invalid, or the body cannot be decompressed.
        UpstreamError: the connection failed.
    """
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.DecodingError):
        raise ModelError(f"{id}: {error}") from error
    failure = UpstreamError(f"{id}: {str(error) or type(error).__name__}")
    failure.sent = not isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError
    )
    raise failure from error


LOOKED_AT = 64 * 1024
"""Number of bytes of a page that are searched for its title."""

SHOWN = 100
"""Maximum length of a page's title or first words in an error, in characters."""

_HTML = ("text/html", "application/xhtml+xml")
_REPLY_STARTS = (b"{", b"[", b":", b"data:", b"event:", b"id:", b"retry:")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DECIDES = max(map(len, _REPLY_STARTS))


class WebPageFilter:
    """Filter that passes on the body of an answer unless it is a web page. Call it with each piece, then `finish`.

    Args:
        id: id of the model, for the error.
        where: URL and status of the answer, for the error.
        content_type: content type of the answer.
        take: receives the pieces.
    """

    def __init__(self, id: str, where: str, content_type: str, take: Callable[[bytes], object]) -> None:
        self._id = id
        self._where = where
        self._type = content_type
        self._is_html = content_type.partition(";")[0].strip().lower() in _HTML
        self._take = take
        self._head = b""
        self._page: bool | None = None

    def __call__(self, piece: bytes) -> None:
        """Process the next piece. Raises `ModelError` once enough of a page has arrived to describe it."""
        if self._page is False:
            self._take(piece)
            return
        self._head += piece
        # White space may precede the first character, so the decision needs the longest prefix after it.
        if self._page is None and len(self._start) >= _DECIDES:
            self._decide()
        # Fail now instead of reading a page to its end: the title is near its start.
        if self._page and len(self._head) >= LOOKED_AT:
            self.finish()

    def finish(self) -> None:
        """Process the end of the body. Raises `ModelError` if it is a page."""
        if self._page is None:
            self._decide()
        if self._page:
            raise ModelError(
                f"{self._id}: {self._where} answered with a web page "
                f"({self._type or 'no content type'}{_described(self._head)}) instead of a model's reply: "
                "check `api_base`; on a network with a login page, log in first"
            )

    @property
    def _start(self) -> bytes:
        return self._head.removeprefix(_BYTE_ORDER_MARK).lstrip()

    def _decide(self) -> None:
        start = self._start
        self._page = start.startswith(b"<") or (self._is_html and bool(start) and not start.startswith(_REPLY_STARTS))
        if not self._page and self._head:
            self._take(self._head)
            self._head = b""


class _Words:
    """Collector of the title and first words of a page."""

    def __init__(self) -> None:
        self.title = ""
        self.said = ""
        self._in_title = False

    def begins(self, tag: str, attributes: str) -> None:  # noqa: ARG002 - the signature that `scan` calls
        self._in_title = tag == "title"

    def ends(self, tag: str) -> None:  # noqa: ARG002 - the signature that `scan` calls
        self._in_title = False

    def says(self, text: str) -> None:
        if self._in_title:
            self.title += text
        elif len(self.said) < 4 * SHOWN:
            self.said += f" {text}"


def _described(page: bytes) -> str:
    from ...io.html import scan

    words = _Words()
    scan(page[:LOOKED_AT].decode("utf-8-sig", errors="replace"), words, lambda: None)
    for name, text in (("title", words.title), ("begins", words.said)):
        line = " ".join(text.split())
        if line:
            return f", {name} {(line if len(line) <= SHOWN else line[: SHOWN - 1] + '…')!r}"
    return ""


MOST = 20_000
"""Maximum number of characters of a body in the log."""

_SECRET = re.compile(r"auth|key|token|secret|cookie|credential|signature|password", re.IGNORECASE)
_OPEN = frozenset({"x-amz-content-sha256", "x-api-key-version"})


def log_request(model: str, url: httpx.URL, headers: Mapping[str, str], body: bytes) -> None:
    """Write a request to the log (`CALLBOARD_LOG=models=debug`). A body above `MOST` characters loses its middle.

    Values of headers with the name of a secret are redacted, also where they occur in the body or the URL. Texts with
    the form of a secret are redacted as well.
    """
    redactor = Redactor()
    for name, value in headers.items():
        if _SECRET.search(name) and name not in _OPEN:
            redactor.add(value, value.rpartition(" ")[2])
    fields = " ".join(
        f"{name}: {PUT if _SECRET.search(name) and name not in _OPEN else redactor.text(value)};"
        for name, value in headers.items()
    )
    text = redactor.text(body.decode("utf-8", "replace"))
    if len(text) > MOST:
        text = f"{text[: MOST // 2]} [... {len(text) - MOST} characters left out ...] {text[-MOST // 2 :]}"
    log.debug("request to %s: POST %s | %s | %s", model, redactor.text(str(url)), fields, text)
