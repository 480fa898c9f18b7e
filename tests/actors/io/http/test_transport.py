"""The transport against servers that behave, and servers that don't."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_models import FakeModels, Reply
from support.messages import says

from callboard.actors.io.http.http1 import ResponseReader
from callboard.actors.io.http.transport import TrioTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


Serve = Callable[..., int]
Read = Callable[..., Awaitable[bytes]]
Counting = Callable[..., Any]


def client(transport: TrioTransport, **timeouts: float | None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(5.0, **timeouts))


# --- answers of every shape -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (OK, "ok"),
        (CHUNKED + b"2\r\nok\r\n3\r\n...\r\n0\r\n\r\n", "ok..."),
        (CHUNKED + b"2;ext=1\r\nok\r\n0\r\nTrailer: x\r\n\r\n", "ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", "old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, "ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "ok"),
        (b"HTTP/1.1 200 OK\r\nEmpty:\r\nContent-Length: 2\r\n\r\nok", "ok"),
    ],
)
async def test_every_framing_is_read_even_byte_by_byte(
    serve: Serve, read_request: Read, answer: bytes, text: str
) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        for position in range(len(answer)):
            await stream.send_all(answer[position : position + 1])

    port = serve(handler)
    async with client(TrioTransport()) as http:
        response = await http.get(f"http://127.0.0.1:{port}/")
        assert response.text == text


BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


@settings(deadline=None)
@given(body=BODIES, cuts=st.lists(st.integers(0, 400), max_size=6))
def test_chunks_are_put_together_wherever_the_bytes_are_split(body: list[bytes], cuts: list[int]) -> None:
    raw = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in body) + b"0\r\n\r\n"
    places = sorted({0, len(raw), *[cut for cut in cuts if cut < len(raw)]})
    reader = ResponseReader()
    for start, stop in pairwise(places):
        reader.feed(raw[start:stop])
    assert reader.complete
    assert reader.reusable
    assert b"".join(reader.chunks) == b"".join(body)


async def test_headers_status_and_reason_arrive_as_they_were_sent(serve: Serve, read_request: Read) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 418 I'm a teapot\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 0\r\n\r\n")

    port = serve(handler)
    async with client(TrioTransport()) as http:
        response = await http.get(f"http://127.0.0.1:{port}/")
        assert (response.status_code, response.reason_phrase) == (418, "I'm a teapot")
        assert response.headers.get_list("x-a") == ["1", "2"]


async def test_a_head_request_has_no_body_to_wait_for(serve: Serve, read_request: Read) -> None:
    async def handler(stream: trio.abc.Stream) -> None:
        while await read_request(stream):
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")

    port = serve(handler)
    transport = TrioTransport()
    async with client(transport) as http:
        for _ in range(2):
            assert (await http.head(f"http://127.0.0.1:{port}/")).headers["content-length"] == "1000"
        assert transport.connections.idle == 1


async def test_a_large_request_body_arrives_whole(serve: Serve) -> None:
    seen = bytearray()

    async def handler(stream: trio.abc.Stream) -> None:
        while not seen.endswith(b"END"):
            seen.extend(await stream.receive_some(65536))
        await stream.send_all(OK)

    port = serve(handler)
    async with client(TrioTransport()) as http:
        url = f"http://127.0.0.1:{port}/"
        await http.post(url, content=b"x" * 3_000_000 + b"END")
        assert seen.endswith(b"x" * 3_000_000 + b"END")


async def test_a_streamed_answer_is_handed_on_as_it_comes(serve: Serve, read_request: Read) -> None:
    second = trio.Event()

    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        await stream.send_all(CHUNKED + b"5\r\nfirst\r\n")
        await second.wait()
        await stream.send_all(b"6\r\nsecond\r\n0\r\n\r\n")

    port = serve(handler)
    pieces = []
    async with client(TrioTransport()) as http, http.stream("GET", f"http://127.0.0.1:{port}/") as response:
        async for piece in response.aiter_raw():
            pieces.append(piece)
            second.set()
    assert pieces == [b"first", b"second"]


# --- connections are kept, and closed ---------------------------------------------------------------------


async def test_one_connection_serves_one_request_after_the_other(serve: Serve, counting: Counting) -> None:
    server = counting()
    port = serve(server)
    transport = TrioTransport()
    async with client(transport) as http:
        for _ in range(5):
            await http.get(f"http://127.0.0.1:{port}/")
        assert (server.accepted, server.requests) == (1, 5)
        assert (transport.connections.idle, transport.connections.busy) == (1, 0)
    await server.closed.wait()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"surplus",
        OK + OK,
    ],
)
async def test_a_connection_that_may_not_be_used_again_is_not(serve: Serve, counting: Counting, answer: bytes) -> None:
    server = counting(answer)
    port = serve(server)
    transport = TrioTransport()
    async with client(transport) as http:
        for _ in range(2):
            assert (await http.get(f"http://127.0.0.1:{port}/")).text == "ok"
        assert server.accepted == 2
        assert transport.connections.idle == 0


async def test_an_idle_connection_that_the_server_closed_is_not_taken(serve: Serve, read_request: Read) -> None:
    closed = trio.Event()
    accepted = 0

    async def handler(stream: trio.SocketStream) -> None:
        nonlocal accepted
        accepted += 1
        await read_request(stream)
        await stream.send_all(OK)
        if accepted == 1:
            await stream.aclose()
            closed.set()

    port = serve(handler)
    async with client(TrioTransport()) as http:
        await http.get(f"http://127.0.0.1:{port}/")
        await closed.wait()
        await http.get(f"http://127.0.0.1:{port}/")
    assert accepted == 2


async def test_a_connection_that_dies_under_the_next_request_is_replaced_once(serve: Serve, read_request: Read) -> None:
    """The server reads the second request and closes: nobody could have known before."""
    accepted = 0
    bodies: list[bytes] = []

    async def handler(stream: trio.abc.Stream) -> None:
        nonlocal accepted
        accepted += 1
        first = accepted == 1
        while request := await read_request(stream):
            bodies.append(request.partition(b"\r\n\r\n")[2])
            if first and len(bodies) == 2:
                return
            await stream.send_all(OK)

    port = serve(handler)
    async with client(TrioTransport()) as http:
        for number in range(2):
            response = await http.post(f"http://127.0.0.1:{port}/", content=b"%d" % number)
            assert response.text == "ok"
    assert accepted == 2
    assert bodies == [b"0", b"1", b"1"]


async def test_a_new_connection_that_dies_is_an_error_at_once(serve: Serve, read_request: Read) -> None:
    accepted = 0

    async def handler(stream: trio.abc.Stream) -> None:
        nonlocal accepted
        accepted += 1
        await read_request(stream)

    port = serve(handler)
    async with client(TrioTransport()) as http:
        with pytest.raises(httpx.RemoteProtocolError, match=says("io.http.http1.ResponseReader._end_of_wire.2")):
            await http.get(f"http://127.0.0.1:{port}/")
    assert accepted == 1


async def test_idle_connections_expire(serve: Serve, counting: Counting, mock_clock: trio.testing.MockClock) -> None:
    server = counting()
    port = serve(server)
    transport = TrioTransport(keep_alive=30)
    async with client(transport) as http:
        await http.get(f"http://127.0.0.1:{port}/")
        mock_clock.jump(29)
        await http.get(f"http://127.0.0.1:{port}/")
        assert server.accepted == 1
        mock_clock.jump(31)
        await http.get(f"http://127.0.0.1:{port}/")
        assert server.accepted == 2
        assert transport.connections.idle == 1


async def test_what_is_idle_at_one_origin_is_closed_when_another_is_used(
    serve: Serve, counting: Counting, mock_clock: trio.testing.MockClock
) -> None:
    old, new = counting(), counting()
    ports = serve(old), serve(new)
    transport = TrioTransport(keep_alive=30)
    async with client(transport) as http:
        await http.get(f"http://127.0.0.1:{ports[0]}/")
        mock_clock.jump(31)
        await http.get(f"http://127.0.0.1:{ports[1]}/")
        await old.closed.wait()
        assert transport.connections.idle == 1


async def test_no_more_than_max_idle_are_kept(serve: Serve, counting: Counting) -> None:
    server = counting()
    port = serve(server)
    transport = TrioTransport(max_idle=3)
    async with client(transport) as http:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(http.get, f"http://127.0.0.1:{port}/")
        assert transport.connections.idle == 3


async def test_a_thousand_at_once(fake_model: FakeModels) -> None:
    hold = trio.Event()
    fake_model.answer_with(lambda request: Reply("held", hold=hold))
    transport = TrioTransport()
    texts = []

    async def one(http: httpx.AsyncClient) -> None:
        response = await http.post(f"{fake_model.url}/v1/chat/completions", content=b'{"model": "m", "messages": []}')
        texts.append(response.json()["choices"][0]["message"]["content"])

    async with httpx.AsyncClient(transport=transport, timeout=60) as http, trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(one, http)
        await fake_model.arrived(1000)
        assert transport.connections.busy == 1000
        hold.set()
    assert texts == ["held"] * 1000
    assert transport.connections.busy == 0
