"""Servers that are silent, hang up, or lie; and callers that lose interest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import pytest
import trio
from support.messages import says

from callboard.actors.io.http.http1 import MAX_HEAD, request_head
from callboard.actors.io.http.transport import TrioTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Serve = Callable[..., int]
Read = Callable[..., Awaitable[bytes]]


def client(transport: TrioTransport, **timeouts: float | None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(5.0, **timeouts))


# --- timeouts and cancellation ----------------------------------------------------------------------------


async def test_a_silent_server_is_a_read_timeout(serve: Serve, read_request: Read) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        await trio.sleep_forever()

    port = serve(handler)
    transport = TrioTransport()
    async with client(transport, read=0.02) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"http://127.0.0.1:{port}/")
    assert transport.connections.busy == 0


async def test_a_body_that_stops_is_a_read_timeout(serve: Serve, read_request: Read) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        await stream.send_all(CHUNKED + b"2\r\nok\r\n")
        await trio.sleep_forever()

    port = serve(handler)
    async with client(TrioTransport(), read=0.02) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"http://127.0.0.1:{port}/")


async def test_a_server_that_reads_nothing_is_a_write_timeout(serve: Serve) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    port = serve(handler)
    async with client(TrioTransport(), write=0.05) as http:
        with pytest.raises(httpx.WriteTimeout):
            await http.post(f"http://127.0.0.1:{port}/", content=b"x" * 30_000_000)


async def test_nobody_listening_is_a_connect_error_that_names_the_place() -> None:
    async with client(TrioTransport()) as http:
        with pytest.raises(
            httpx.ConnectError,
            match=says("io.http.transport.Connections._connected", port="…1", error="Connection refused"),
        ):
            await http.get("http://127.0.0.1:1/")
        with pytest.raises(
            httpx.ConnectError,
            match=says("io.http.transport.Connections._connected", port="…1", error="Connection refused"),
        ):
            await http.get("http://localhost:1/")


async def test_a_connection_that_never_comes_is_a_connect_timeout() -> None:
    async with client(TrioTransport(), connect=0.02) as http:
        with pytest.raises((httpx.ConnectTimeout, httpx.ConnectError)):  # some networks refuse at once
            await http.get("http://192.0.2.1/")


@pytest.mark.parametrize("moment", ["before the headers", "in the body"])
async def test_cancelling_closes_the_connection_at_once(serve: Serve, read_request: Read, moment: str) -> None:
    busy, gone = trio.Event(), trio.Event()

    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        if moment == "in the body":
            await stream.send_all(CHUNKED + b"2\r\nok\r\n")
        busy.set()
        assert not await stream.receive_some()
        gone.set()

    port = serve(handler)
    transport = TrioTransport()
    async with client(transport) as http:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http.get, f"http://127.0.0.1:{port}/")
            await busy.wait()
            nursery.cancel_scope.cancel()
        assert (transport.connections.idle, transport.connections.busy) == (0, 0)
        await gone.wait()


async def test_a_reader_that_stops_early_closes_the_connection(serve: Serve, read_request: Read) -> None:
    gone = trio.Event()

    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        await stream.send_all(CHUNKED + b"2\r\nok\r\n")
        assert not await stream.receive_some()
        gone.set()

    port = serve(handler)
    transport = TrioTransport()
    async with client(transport) as http:
        async with http.stream("GET", f"http://127.0.0.1:{port}/") as response:
            assert response.status_code == 200
        await gone.wait()
        assert transport.connections.busy == 0


async def test_closing_the_transport_wakes_whoever_still_reads(serve: Serve, read_request: Read) -> None:
    busy = trio.Event()

    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        busy.set()
        await trio.sleep_forever()

    port = serve(handler)
    transport = TrioTransport()

    async def reader() -> None:
        with pytest.raises(httpx.ReadError):
            await client(transport).get(f"http://127.0.0.1:{port}/")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await busy.wait()
        await transport.aclose()
    with pytest.raises(httpx.ConnectError, match=says("io.http.transport.Connections.acquire")):
        await client(transport).get(f"http://127.0.0.1:{port}/")


# --- servers that lie -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "in the middle"),
        (CHUNKED + b"5\r\nab", "in the middle"),
        (CHUNKED + b"zz\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "not HTTP"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            says("io.http.http1.ResponseReader.feed"),
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * (MAX_HEAD + 10), "bytes of headers"),
        (CHUNKED + b"0\r\nTrailer: " + b"a" * 2 * MAX_HEAD, "bytes of headers"),
        (b"HTTP/1.1 200", says("io.http.http1.ResponseReader._end_of_wire.2")),
    ],
)
async def test_nonsense_is_a_protocol_error(serve: Serve, read_request: Read, answer: bytes, error: str) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        await stream.send_all(answer)

    port = serve(handler)
    transport = TrioTransport()
    async with client(transport) as http:
        with pytest.raises(httpx.RemoteProtocolError, match=error):
            await http.get(f"http://127.0.0.1:{port}/")
    assert (transport.connections.idle, transport.connections.busy) == (0, 0)


async def test_a_server_that_refuses_a_body_halfway_is_heard(serve: Serve) -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await stream.send_eof()
        while await stream.receive_some(65536):  # a reset would throw the answer away
            pass

    port = serve(handler)
    async with client(TrioTransport()) as http:
        response = await http.post(f"http://127.0.0.1:{port}/", content=b"x" * 5_000_000)
        assert (response.status_code, response.text) == (413, "no")


@pytest.mark.parametrize(("name", "value"), [(b"X", b"a\r\nEvil: 1"), (b"X Y", b"a"), (b"X", b"\0")])
def test_headers_cannot_break_out_of_their_line(name: bytes, value: bytes) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        request_head("GET", b"/", [(name, value)])


async def test_other_schemes_are_refused() -> None:
    with pytest.raises(httpx.UnsupportedProtocol):
        await TrioTransport().handle_async_request(httpx.Request("GET", "ftp://example.com/"))
