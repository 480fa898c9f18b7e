"""One request to a provider and its answer, with every failure named.

httpx's URLs and responses are used, but not its client: redirects, cookies and authentication schemes have no
business between an agent and a model, and cost more than the request itself. There is one transport for each pair of
base URL and proxy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NoReturn, Self

import httpx
import trio

from ....protocol.chat import ChatReply, ChatRequest, Delta, TextDelta
from ....protocol.errors import AccountEmpty, KeyRefused, ModelError, Stalled, UpstreamError
from ...io.http.http1 import unpacked, unpacker_of
from ...io.http.refusal import message_in, retry_after
from ...io.http.transport import Exchange, TrioTransport
from .codec import Sign
from .pages import NoPage
from .target import Target

log = logging.getLogger("callboard.models")

READ_TIMEOUT = 600.0
"""Seconds without a byte after which an answer is given up: a model may think for long before the first."""

WRITE_TIMEOUT = 60.0

LAST_BYTES = 5.0
"""Seconds in which a stream has to end once its reply is complete; else its connection is closed."""

GATHER, QUICK, SMALL = 1 / 60, 20, 4096
"""Once so many pieces of fewer bytes have come within so many seconds of each other, the next ones gather for as long:
to read one costs more than to take it in, and nobody sees letters come faster than that."""

MAX_REPLY = 64 * 1024 * 1024
"""Bytes of an answer, unpacked if it is compressed, beyond which it is refused."""

_REPLIES = frozenset(
    {"application/json", "text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream"}
)
"""Content types of replies; anything else may be a web page."""


OnHeaders = Callable[[httpx.Headers], None]
OnBody = Callable[[bytes], None]


class Endpoint:
    """A base URL, reached through its own transport. As a context manager it counts who uses it.

    Attributes:
        idle_since: when the last request was over, as `Endpoints` has noted it.
        when_unused: called when the last of its users has gone.
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
        """Close its connections, now."""
        self._transport.connections.close()

    async def ask(
        self,
        target: Target,
        headers: Mapping[str, str],
        request: ChatRequest,
        on_delta: Callable[[Delta], None],
        on_headers: OnHeaders,
        on_body: OnBody | None = None,
    ) -> ChatReply:
        """Send `request` and wait for the whole reply; `on_delta` gets its text, in one piece.

        Args:
            on_headers: gets those of a good answer, before its body.
            on_body: gets the body of the request, before it is sent.

        Raises:
            CredentialsError, ModelError, UpstreamError: see `refused` and `broken`.
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
        target: Target,
        headers: Mapping[str, str],
        request: ChatRequest,
        on_delta: Callable[[Delta], None],
        on_headers: OnHeaders,
        on_body: OnBody | None = None,
    ) -> ChatReply:
        """Like `ask`, but `on_delta` gets every piece as it comes.

        Raises:
            Stalled: it went on, or stayed open, without saying any more.
        """
        outgoing = target.codec.encode(request, target.name, stream=True)
        if on_body is not None:
            on_body(outgoing.body)
        reader = outgoing.reader()
        watch = trio.CancelScope()

        def begun(found: httpx.Headers) -> None:
            watch.deadline = trio.current_time() + target.idle_timeout
            on_headers(found)

        def take(piece: bytes) -> None:
            """Progress is what the model says, and the figures at the end; comments and empty events are none."""
            usage, moved = reader.builder.usage, False
            for delta in reader.feed(piece):
                moved = True
                on_delta(delta)
            if reader.ended:
                watch.deadline = trio.current_time() + LAST_BYTES
            elif moved or reader.builder.usage is not usage:
                watch.deadline = trio.current_time() + target.idle_timeout

        with watch:
            await self._answer(target.id, headers, outgoing.path, outgoing.body, take, begun, outgoing.sign)
        if watch.cancelled_caught and not reader.ended:
            raise Stalled(
                f"{target.id}: the answer stands still: nothing was said for {target.idle_timeout:g} s "
                "(`model_idle_timeout` in config.yaml)"
            )
        return reader.finish()

    async def post(
        self,
        id: str,
        headers: Mapping[str, str],
        path: str,
        body: bytes,
        on_headers: OnHeaders | None = None,
        sign: Sign | None = None,
    ) -> bytes:
        """The whole answer to any request in JSON, for the model called `id`; raises like `ask`."""
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
        """Hand on the body of the answer to a request, if it is a good one; its connection is settled at the end."""
        url = self._url(path)
        try:
            response = await self._transport.send(
                "POST", url, _head(id, url, headers, body, sign), body, self._timeouts
            )
            try:
                if response.status_code >= 300:
                    refused(id, response, await _whole(response), signed=sign is not None)
                if on_headers is not None:
                    on_headers(response.headers)
                content_type = response.headers.get("content-type", "")
                if content_type.partition(";")[0] in _REPLIES:
                    await _each_piece(response, take)
                else:
                    where = f"{url.scheme}://{url.netloc.decode('ascii')}{url.path} (HTTP {response.status_code})"
                    checked = NoPage(id, where, content_type, take)
                    await _each_piece(response, checked)
                    checked.finish()
            finally:
                assert isinstance(response.stream, Exchange)
                await response.stream.aclose()  # httpx's own way would build two context managers
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
        from .as_sent import show

        show(id, url, fields, body)
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields.items()]


async def _whole(response: httpx.Response) -> bytes:
    pieces: list[bytes] = []
    await _each_piece(response, pieces.append)
    return b"".join(pieces)


async def _each_piece(response: httpx.Response, take: Callable[[bytes], object]) -> None:
    """Hand on the body as it comes, unpacked if it is compressed, though we asked for none of that."""
    stream = response.stream
    assert isinstance(stream, Exchange)
    unpacker = unpacker_of(response.headers.get("content-encoding", "identity"))
    received = size = quick = 0
    began = trio.current_time()
    while piece := await stream.receive():
        quick = quick + 1 if len(piece) < SMALL and trio.current_time() - began < GATHER else 0
        received += len(piece)
        for part in (piece,) if unpacker is None else unpacked(unpacker, piece):
            size += len(part)
            _check_size(size)
            take(part)
        _check_size(received)  # of a compressed one, any number of bytes may unpack to nothing
        if quick > QUICK and not stream.at_hand:
            await trio.sleep(GATHER)
        began = trio.current_time()


def _check_size(size: int) -> None:
    if size > MAX_REPLY:
        raise ModelError(f"the answer is longer than {MAX_REPLY >> 20} MB")


_TRANSIENT = frozenset({408, 409, 425, 429})


def refused(id: str, response: httpx.Response, body: bytes, *, signed: bool = False) -> NoReturn:
    """Raise the error that an answer with such a status stands for; `id` is the model's. `signed`: there is no key."""
    status = response.status_code
    said = message_in(body) or response.reason_phrase or "no explanation"
    text = f"{id}: {said} (HTTP {status})"
    if status in (401, 403):
        client = id.partition(":")[0]
        if signed:
            advice = f"check the credentials of client '{client}', and what they may do"
            raise KeyRefused(f"{text}; {advice}", said=text, status=status)
        variable = f"{client.upper().replace('-', '_')}_API_KEY"
        where = f"of client '{client}' (`api_key` in config.yaml, or {variable})"
        if "@" in client:  # `Catalog.adopt`: a file describes it
            where = "in the file that describes the client"
        raise KeyRefused(f"{text}; check the API key {where}", said=text, status=status)
    if status == 429 and (b"insufficient_quota" in body or b"API calls / month" in body):  # OpenAI, Cohere
        raise AccountEmpty(text)  # no wait mends an empty account
    if status in _TRANSIENT or status >= 500:
        raise UpstreamError(text, status=status, retry_after=retry_after(response.headers, time.time()))
    if status < 400:
        raise ModelError(f"{text}: redirects are not followed, correct `api_base`")
    error = ModelError(text)
    error.status = status
    raise error


def broken(id: str, error: httpx.HTTPError) -> NoReturn:
    """Raise the error for a request that got no answer, or only a part of one."""
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.DecodingError):
        raise ModelError(f"{id}: {error}") from error
    told = UpstreamError(f"{id}: {str(error) or type(error).__name__}")
    told.sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
    raise told from error
