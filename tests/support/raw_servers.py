"""Raw servers: a test writes what happens on the socket, byte by byte."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

import pytest
import trio

from support.fake_models import listening

Handler = Callable[[trio.abc.Stream], Awaitable[None]]
Serve = Callable[..., int]


@pytest.fixture
async def serve(nursery: trio.Nursery) -> Serve:
    """`port = serve(handler)` runs `handler(stream)` for every connection to that loopback port."""

    def start(handler: Handler, *, tls: ssl.SSLContext | None = None) -> int:
        listener, port = listening()

        async def connection(stream: trio.SocketStream) -> None:
            try:
                if tls is None:
                    await handler(stream)
                    return
                secured = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
                await secured.do_handshake()
                await handler(secured)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client hung up, which many of these tests are about
            finally:
                stream.socket.close()

        nursery.start_soon(trio.serve_listeners, connection, [listener])
        return port

    return start


async def request_of(stream: trio.abc.ReceiveStream, rest: bytes = b"") -> bytes:
    """Read one request (its body by content-length); empty when the client has closed."""
    data = bytearray(rest)
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65536)
        if not more:
            return b""
        data += more
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += await stream.receive_some(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def read_request() -> Callable[..., Awaitable[bytes]]:
    """`await read_request(stream)`: one whole request."""
    return request_of


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Counting:
    """A handler that answers every request; it counts them and their connections."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.accepted = 0
        self.requests = 0
        self.closed = trio.Event()

    async def __call__(self, stream: trio.abc.Stream) -> None:
        self.accepted += 1
        while await request_of(stream):
            self.requests += 1
            await stream.send_all(self.answer)
        self.closed.set()


@pytest.fixture
def counting() -> type[Counting]:
    """`serve(counting())`: see `Counting`."""
    return Counting
