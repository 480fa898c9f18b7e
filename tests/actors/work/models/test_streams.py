"""Streams that go wrong: each ends in time, says what happened in its own words, and is begun anew at most once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing
from support.gateways import Silent, reaching
from support.messages import says
from support.raw_servers import Serve, request_of
from support.waiting import until

from callboard.protocol.chat import ChatRequest, Delta, TextDelta, UserTurn
from callboard.protocol.errors import CallboardError, ModelError, Stalled, UpstreamError
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
IDLE = 60.0
"""Seconds without progress after which an answer is given up. Tests that reach them move a `MockClock`."""

SHORT = 0.2
"""The same, for servers that make no progress at all: however slow the machine is, nothing comes before that."""

KINDS = {"openai-compatible": "/v1", "claude": "/v1", "gemini": "/v1beta"}


def said(kind: str, text: str) -> bytes:
    """An event in which the model says something."""
    data = {
        "openai-compatible": '{"choices": [{"index": 0, "delta": {"content": "%s"}}]}',
        "claude": '{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "%s"}}',
        "gemini": '{"candidates": [{"content": {"parts": [{"text": "%s"}]}}]}',
    }[kind]
    return f"data: {data % text}\n\n".encode()


def end(kind: str) -> bytes:
    """The events with which a reply ends."""
    return {
        "openai-compatible": b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
        b"data: [DONE]\n\n",
        "claude": b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}\n\n'
        b'data: {"type": "message_stop"}\n\n',
        "gemini": b'data: {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}\n\n',
    }[kind]


class Server:
    """Answers each request with what `pieces` yields, in chunks, and keeps the connection open after them.

    The answer goes on for ever, unless it `ends`.
    """

    def __init__(
        self, serve: Serve, pieces: Callable[[int], AsyncIterator[bytes]], head: bytes = HEAD, *, ends: bool = False
    ) -> None:
        self.requests = 0
        self._pieces = pieces
        self._head = head
        self._ends = ends
        self.port = serve(self._answer)

    async def _answer(self, stream: trio.abc.Stream) -> None:
        await request_of(stream)
        self.requests += 1
        await stream.send_all(self._head)
        async for piece in self._pieces(self.requests):
            await stream.send_all(b"%x\r\n%b\r\n" % (len(piece), piece))
        if self._ends:
            await stream.send_all(b"0\r\n\r\n")
        await trio.sleep_forever()


async def asked(
    server: Server, kind: str, heard: Callable[[Delta], None] = lambda delta: None, *, idle: float = IDLE
) -> str:
    """What the model said."""
    base = f"http://127.0.0.1:{server.port}{KINDS[kind]}"
    model = ModelSettings(name="m", idle_timeout=idle)
    client = ClientSettings(type=kind, name="fake", api_base=base, api_key="k", models=(model,))
    request = ChatRequest(model="fake:m", messages=(UserTurn("hello"),), max_tokens=100)
    with trio.fail_after(3600):
        async with reaching(Settings(clients=(client,)), seed=1) as models:
            return (await models.chat(Silent(), request, on_delta=heard)).text


async def nothing(_: int) -> AsyncIterator[bytes]:
    for piece in ():
        yield piece


async def comments(_: int) -> AsyncIterator[bytes]:
    while True:
        yield b": still here\n\n"
        await trio.sleep(SHORT / 10)


async def pings(_: int) -> AsyncIterator[bytes]:
    while True:
        yield b'event: ping\ndata: {"type": "ping"}\n\n'
        await trio.sleep(SHORT / 10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pieces", [nothing, comments])
async def test_a_stream_in_which_nothing_is_said_is_begun_anew_once(serve: Serve, kind: str, pieces: Any) -> None:
    server = Server(serve, pieces)
    with pytest.raises(Stalled, match=says("work.models.client.Endpoint.stream", idle_timeout="0.2")) as caught:
        await asked(server, kind, idle=SHORT)
    assert caught.value.exit_code == 6
    assert server.requests == 2


async def test_events_that_say_nothing_are_no_progress(serve: Serve) -> None:
    with pytest.raises(Stalled):
        await asked(Server(serve, pings), "claude", idle=SHORT)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_goes_silent_after_it_has_said_something_ends(
    serve: Serve, kind: str, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0

    async def pieces(_: int) -> AsyncIterator[bytes]:
        yield said(kind, "once upon")
        await until(lambda: heard)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(IDLE + 1)

    server, heard = Server(serve, pieces), list[Delta]()
    with pytest.raises(Stalled, match=says("work.models.client.Endpoint.stream")):
        await asked(server, kind, heard.append)
    assert heard == [TextDelta("once upon")]
    assert server.requests == 1, "what was said is not said a second time"


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_goes_on_may_take_as_long_as_it_likes(
    serve: Serve, kind: str, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    heard = list[Delta]()

    async def pieces(_: int) -> AsyncIterator[bytes]:
        for number in range(1, 9):
            yield said(kind, "a")
            await until(lambda number=number: len(heard) == number)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(IDLE * 0.75)
        yield end(kind)

    assert await asked(Server(serve, pieces, ends=True), kind, heard.append) == "a" * 8


@pytest.mark.parametrize("kind", KINDS)
async def test_a_whole_reply_is_taken_though_its_stream_never_ends(
    serve: Serve, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.actors.work.models.client.LAST_BYTES", 0.05)

    async def pieces(_: int) -> AsyncIterator[bytes]:
        yield said(kind, "all of it") + end(kind)

    server = Server(serve, pieces)
    assert await asked(server, kind) == "all of it"
    assert server.requests == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_character_torn_between_two_pieces_is_whole(serve: Serve, kind: str) -> None:
    async def pieces(_: int) -> AsyncIterator[bytes]:
        whole = said(kind, "schön \N{GRINNING FACE}") + end(kind)
        for start in range(len(whole)):
            yield whole[start : start + 1]

    assert await asked(Server(serve, pieces, ends=True), kind) == "schön \N{GRINNING FACE}"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_line_of_a_megabyte_is_read(serve: Serve, kind: str) -> None:
    async def pieces(_: int) -> AsyncIterator[bytes]:
        yield said(kind, "x" * 1_000_000) + end(kind)

    assert len(await asked(Server(serve, pieces, ends=True), kind)) == 1_000_000


async def test_a_web_page_in_place_of_a_stream_is_no_reply_and_not_asked_for_again(serve: Serve) -> None:
    async def pieces(_: int) -> AsyncIterator[bytes]:
        yield b"<!doctype html><title>Wi-Fi login</title>" + b" " * 100_000

    server = Server(serve, pieces, HEAD.replace(b"text/event-stream", b"text/html"))
    with pytest.raises(ModelError, match="Wi-Fi login") as caught:
        await asked(server, "openai-compatible")
    assert not isinstance(caught.value, UpstreamError)
    assert server.requests == 1


@pytest.mark.parametrize("seconds", [0, 7.5])
async def test_the_model_or_the_settings_say_how_long_an_answer_may_stand_still(seconds: float) -> None:
    client = ClientSettings(
        type="openai",
        name="c",
        api_key="k",
        models=(ModelSettings(name="own", idle_timeout=seconds), ModelSettings(name="other")),
    )
    async with reaching(Settings(clients=(client,), model_idle_timeout=60)) as models:
        assert models.catalog.target("c:own").idle_timeout == (seconds or float("inf"))
        assert models.catalog.target("c:other").idle_timeout == 60


def test_it_is_a_passing_error_with_a_code_of_its_own() -> None:
    error: CallboardError = Stalled("it stands still")
    assert (error.code, error.exit_code, error.transient) == ("stalled", 6, True)
