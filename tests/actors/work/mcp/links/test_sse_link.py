"""A link over HTTP with server-sent events, the transport of 2024-11-05."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from support.fake_mcp_http import FakeMcp, Stream, Talk, closed_port, fake_mcp, said
from support.fake_models import Request as Sent
from support.mcp_links import Heard, asks, opened_by_actor, shake_hands, value
from support.messages import has_message, says

from callboard.actors.work.mcp.links.http import open_sse
from callboard.protocol.errors import ActorFailed, HttpRefused, McpError, McpLost, McpSignInNeeded, McpUnsent
from callboard.protocol.mcp.config import Server


def linked(server: FakeMcp, heard: Heard | None = None, **options: Any) -> AbstractAsyncContextManager[Any]:
    entry = Server(name="fake", type="sse", url=server.url, **options)
    return opened_by_actor(lambda me: open_sse(me, entry, heard or Heard(), {}))


async def test_calls_are_posted_where_the_server_says_and_answered_on_the_stream(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Stream())
    async with linked(server, headers={"Authorization": "Bearer t"}) as (link, _):
        await shake_hands(link)
        answers: dict[int, Any] = {}

        async def call(number: int) -> None:
            answers[number] = value(await link.request(asks(n=number)))

        async with trio.open_nursery() as calls:
            for number in range(50):
                calls.start_soon(call, number)
        assert answers == {number: {"echo": {"n": number}} for number in range(50)}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer t"}
    assert server.requests[0].headers["accept"] == "text/event-stream"
    assert server.methods()[:3] == ["GET", "initialize", "notifications/initialized"]
    await server.until(lambda: server.open <= 1)  # the stream's server waits for its test


async def test_what_the_server_says_and_asks_is_received_and_answered(nursery: trio.Nursery) -> None:
    answer = Stream()
    server = await fake_mcp(nursery, answer)
    heard = Heard()
    async with linked(server, heard) as (link, _):
        heard.link = link
        await shake_hands(link)
        assert answer.talk is not None
        await answer.talk.event({"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}})
        await answer.talk.event({"jsonrpc": "2.0", "id": "q1", "method": "roots/list"})
        told = await server.heard("answer")
        assert told.json == {"jsonrpc": "2.0", "id": "q1", "result": {"action": "cancel"}}
        assert heard.notifications == [("notifications/x", {"a": 1}, None)]
        assert heard.requests[0][1] is None


async def test_a_refusal_keeps_its_number(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Stream())
    async with linked(server) as (link, _):
        with pytest.raises(McpError, match="no such tool") as caught:
            await link.request(asks(name="refused"))
        assert caught.value.rpc_code == -32602


async def test_a_cancelled_call_is_announced_and_its_late_answer_dropped(nursery: trio.Nursery) -> None:
    answer = Stream()
    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        call = asks(name="slow")
        async with trio.open_nursery() as calls:
            calls.start_soon(link.request, call)
            await server.heard("tools/call")
            await trio.testing.wait_all_tasks_blocked()
            calls.cancel_scope.cancel()
        told = await server.heard("notifications/cancelled")
        assert told.json["params"]["requestId"] == call.id
        assert answer.talk is not None
        await answer.talk.event({"jsonrpc": "2.0", "id": call.id, "result": {}})
        assert value(await link.request(asks(a=1))) == {"echo": {"a": 1}}
        assert link.stray == 1


async def test_the_end_of_the_stream_fails_every_call_and_ends_the_owner(nursery: trio.Nursery) -> None:
    answer = Stream()
    server = await fake_mcp(nursery, answer)
    failed: list[McpLost] = []

    async def call() -> None:
        try:
            await link.request(asks(name="slow"))
        except McpLost as error:
            failed.append(error)

    async with linked(server) as (link, me):
        async with trio.open_nursery() as calls:
            for _ in range(3):
                calls.start_soon(call)
            await server.until(lambda: server.methods().count("tools/call") == 3)
            await trio.testing.wait_all_tasks_blocked()
            answer.broken.set()
        assert [has_message(str(error), "io.http.http1.ResponseReader._end_of_wire") for error in failed] == [True] * 3
        assert not any(isinstance(error, McpUnsent) for error in failed)
        with trio.fail_after(60):
            assert (await me.ref.wait()).error is not None
        with pytest.raises(McpUnsent, match=says("io.http.http1.ResponseReader._end_of_wire")):
            await link.request(asks())


@pytest.mark.parametrize("first", ["http://elsewhere.test/messages", "//elsewhere.test/x", "https://127.0.0.1/x"])
async def test_messages_are_never_sent_to_another_origin(nursery: trio.Nursery, first: str) -> None:
    server = await fake_mcp(nursery, Stream(first))
    with pytest.raises(ActorFailed) as caught:
        async with linked(server):
            pass
    assert isinstance(caught.value.__cause__, McpError)
    assert has_message(str(caught.value.__cause__), "work.mcp.links.http.SseLink._allowed.2")


@pytest.mark.parametrize(
    ("whole", "kind", "words"),
    [
        ({"body": b"no", "status": 404}, HttpRefused, "check its `url`"),
        ({"body": b"", "status": 401}, McpSignInNeeded, "Authorization"),
        ({"body": json.dumps({"a": 1}).encode(), "content_type": "application/json"}, HttpRefused, "neither JSON nor"),
    ],
)
async def test_a_stream_that_is_none(nursery: trio.Nursery, whole: Any, kind: type[McpError], words: str) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.whole(**whole)

    server = await fake_mcp(nursery, answer)
    with pytest.raises(ActorFailed) as caught:
        async with linked(server):
            pass
    assert type(caught.value.__cause__) is kind
    assert words in str(caught.value.__cause__)


async def test_nobody_there(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Stream())
    server.url = f"http://127.0.0.1:{closed_port()}/sse"
    with pytest.raises(ActorFailed) as caught:
        async with linked(server):
            pass
    assert isinstance(caught.value.__cause__, McpUnsent)


async def test_a_message_without_end_is_the_end_of_the_link(nursery: trio.Nursery) -> None:
    answer = Stream()
    server = await fake_mcp(nursery, answer)
    async with linked(server, max_message_bytes=100_000) as (link, me):
        assert answer.talk is not None
        with suppress(trio.BrokenResourceError):  # nobody reads it to its end
            await answer.talk.chunk(b"data: " + b"x" * 200_000)
        with trio.fail_after(60):
            await me.ref.wait()
        assert "max_message_bytes" in str(link.lost)


async def test_a_server_that_takes_no_message(nursery: trio.Nursery) -> None:
    class Deaf(Stream):
        async def __call__(self, request: Sent, talk: Talk) -> None:
            if said(request) == "GET":
                await super().__call__(request, talk)
            else:
                await talk.whole(b"no session", 400)

    server = await fake_mcp(nursery, Deaf())
    async with linked(server) as (link, _):
        with pytest.raises(HttpRefused, match="no session"):
            await link.request(asks())
        assert link.lost is None
