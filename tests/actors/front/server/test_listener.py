"""The one port: bytes that come in odd pieces, too early, together, or not at all stall nobody."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing
from support.http_server import ApiServer

from callboard.actors.front.access.limits import ConnectionLimiter
from callboard.actors.front.server import listener
from callboard.protocol.settings.api import ApiSettings

SOON = 60.0


def asked(api_server: ApiServer, path: str = "/healthz/live") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{api_server.port}\r\n\r\n".encode()


def upgrade(api_server: ApiServer) -> bytes:
    """A request for a websocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        *("GET /ws HTTP/1.1", f"Host: 127.0.0.1:{api_server.port}", "Upgrade: websocket", "Connection: Upgrade"),
        *(
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: Bearer {api_server.token}",
            "",
            "",
        ),
    ]
    return "\r\n".join(lines).encode()


def frame() -> bytes:
    """A masked frame that asks who the server is."""
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "_server/info"}).encode()
    assert len(text) < 126
    return struct.pack("!BB4x", 0x81, 0x80 | len(text)) + text


@asynccontextmanager
async def connected(api_server: ApiServer) -> AsyncIterator[trio.SocketStream]:
    async with await trio.open_tcp_stream("127.0.0.1", api_server.port) as stream:
        yield stream


async def until_told(stream: trio.SocketStream, what: bytes, times: int = 1) -> bytes:
    """What comes, up to the moment in which this has come so often."""
    got = b""
    with trio.fail_after(SOON):
        while got.count(what) < times:
            more = await stream.receive_some()
            assert more, got
            got += more
    return got


@pytest.mark.parametrize("pieces", [[slice(None)], [slice(3), slice(3, None)], [slice(0), slice(None)]])
async def test_frames_that_come_before_the_answer_to_the_handshake_are_heard(
    api_server: ApiServer, pieces: list[slice]
) -> None:
    first, *rest = pieces
    async with connected(api_server) as stream:
        await stream.send_all(upgrade(api_server) + frame()[first])
        for piece in rest:
            await trio.sleep(0.01)
            await stream.send_all(frame()[piece])
        assert b" 101 " in await until_told(stream, b'"name":"callboard"')


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_a_handshake_that_comes_byte_by_byte_is_answered(api_server: ApiServer, size: int) -> None:
    text = upgrade(api_server)
    async with connected(api_server) as stream:
        stream.setsockopt(6, 1, True)  # TCP_NODELAY: each piece is a packet
        for begin in range(0, len(text), size):
            await stream.send_all(text[begin : begin + size])
            await trio.lowlevel.checkpoint()
        assert b" 101 " in await until_told(stream, b"\r\n\r\n")


async def test_requests_that_come_at_once_are_answered_in_order(api_server: ApiServer) -> None:
    async with connected(api_server) as stream:
        await stream.send_all(asked(api_server) * 3)
        await until_told(stream, b'{"status":"ok"}', 3)


ALIVE = b"GET /healthz/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PRI = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and settings, none
POST = b" /v1/runs HTTP/1.1\r\nX: "
HEADS = {
    "the first, a GET": (b"", b"GET" + POST),
    "the first, a POST": (b"", b"POST" + POST),
    "a later one": (ALIVE, b"POST" + POST),
    "half a frame of HTTP/2": (b"", PRI + bytes((0, 64, 0, 1, 4, 0, 0, 0, 1))),
    "a head of HTTP/2 without an end": (b"", PRI + bytes((0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82))),
}


@pytest.mark.parametrize(("before", "begins"), HEADS.values(), ids=HEADS)
async def test_a_head_that_comes_byte_by_byte_has_its_time_and_no_more_whatever_it_asks_for(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, before: bytes, begins: bytes
) -> None:
    limit = partial(monkeypatch.setattr, listener, "HEAD_WITHIN", 0.5)
    if not before:
        limit()
    async with connected(api_server) as stream, trio.open_nursery() as nursery:
        if before:  # has the usual time
            await stream.send_all(before)
            await until_told(stream, b'{"status":"ok"}')
            limit()

        async def drip() -> None:
            await stream.send_all(begins)
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(b"x")
                    await trio.sleep(0.05)

        nursery.start_soon(drip)
        with trio.fail_after(SOON), contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        nursery.cancel_scope.cancel()


async def test_a_connection_between_two_requests_may_be_idle_for_longer_than_a_head_may_take(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(api_server) as stream:
        for _ in range(4):  # the time of the first head begins with the connection: it has the usual one
            await stream.send_all(asked(api_server))
            await until_told(stream, b'{"status":"ok"}')
            monkeypatch.setattr(listener, "HEAD_WITHIN", 0.05)
            await trio.sleep(0.2)


async def test_clients_that_ask_for_much_at_once_and_leave_are_no_errors(
    api_server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        for number in range(60):
            async with connected(api_server) as stream:
                await stream.send_all(asked(api_server, ("/openapi.json", "/v1/info")[number % 2]) * (number % 20 + 2))
                if number % 3:
                    await stream.send_eof()
        assert (await api_server.get("/v1/info"))["name"] == "callboard"
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("together", [True, False])
async def test_a_websocket_on_a_connection_that_spoke_http_is_refused_with_a_word(
    api_server: ApiServer, together: bool
) -> None:
    async with connected(api_server) as stream:
        await stream.send_all(asked(api_server) + (upgrade(api_server) if together else b""))
        got = await until_told(stream, b'{"status":"ok"}')
        if not together:
            await stream.send_all(upgrade(api_server))
            got = b""
        if b"of its own" not in got:
            got += await until_told(stream, b"of its own")
        assert b"HTTP/1.1 400 " in got


async def test_many_who_say_nothing_or_half_a_word_keep_nobody_waiting(api_server: ApiServer) -> None:
    answered = 0

    async def shake_hands() -> None:
        nonlocal answered
        async with connected(api_server) as stream:
            await stream.send_all(upgrade(api_server))
            assert b" 101 " in await until_told(stream, b"\r\n\r\n")
            answered += 1

    idle = [await trio.open_tcp_stream("127.0.0.1", api_server.port) for _ in range(100)]
    for number, stream in enumerate(idle):
        await stream.send_all((b"", b"G", b"GET /ws HTTP/1.1\r\nHost", b"POST /v1/runs HTTP/1.1\r\n")[number % 4])
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(shake_hands)
    assert answered == 100
    assert (await api_server.get("/v1/info"))["name"] == "callboard"
    for stream in idle:
        await stream.aclose()


class _Broken(trio.abc.Clock):
    """Has the event loop fail when it is told to."""

    fails = False

    def start_clock(self) -> None:
        """There is nothing to start."""

    def current_time(self) -> float:
        return time.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if self.fails:
            raise MemoryError
        return deadline - self.current_time()


@pytest.mark.filterwarnings("ignore:Trio guest run got abandoned:RuntimeWarning")
@pytest.mark.parametrize("head", [b"", b"GET /wo", b"GET /words HTTP/1.1\r\n\r\n"], ids=["nothing", "half", "whole"])
def test_a_connection_of_a_run_that_was_abandoned_is_none_that_crashed(
    caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    """What is left of its task is closed by Python's collector, outside of trio."""
    clock = _Broken()

    async def answer(_: listener.InspectedStream) -> None:
        with trio.CancelScope():
            await trio.sleep_forever()

    async def body() -> None:
        here = listener.listen("127.0.0.1", 0)
        limiter = ConnectionLimiter(ApiSettings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(listener.serve_port, here, limiter, http=answer))
            client = await trio.open_tcp_stream(*here.socket.getsockname())
            await client.send_all(head)
            while limiter.open == 0:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked(0)
            clock.fails = True

    with contextlib.suppress(trio.TrioInternalError):
        trio.run(body, clock=clock)
    gc.collect()
    assert not caplog.records
