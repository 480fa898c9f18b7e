"""What goes wrong between a client and a server over HTTP, and what is left of it."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.fake_mcp_http import Legacy, Talk, closed_port, fake_mcp, result, said
from support.fake_models import Request as Sent
from support.mcp_links import Heard, asks, linked, shake_hands, value
from support.messages import has_message, says

from callboard.actors.work.mcp.links import http
from callboard.actors.work.mcp.links.http import HttpServerAccess, ResponseReading
from callboard.protocol.errors import ConfigError, McpError, McpLost, McpUnsent
from callboard.protocol.mcp.config import Server

MIB = 1024 * 1024


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long before trying again."""
    monkeypatch.setattr(http, "RETRY", 0.001)
    monkeypatch.setattr(http, "MIN_RETRY", 0.0)


async def test_nobody_there(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    server.url = f"http://127.0.0.1:{closed_port()}/mcp"
    async with linked(server) as (link, _):
        with pytest.raises(
            McpUnsent,
            match=says("io.http.transport.Connections._connected", host="MCP server 'fake'", error="…refused"),
        ) as caught:
            await link.request(asks("initialize"))
        assert (caught.value.code, caught.value.exit_code) == ("mcp_lost", 6)
        assert link.lost is None, "it may come"


@pytest.mark.parametrize("url", ["http://[", "ftp://x/y", "http://x:99999/"])
async def test_an_address_that_is_none(nursery: trio.Nursery, url: str) -> None:
    server = await fake_mcp(nursery, Legacy())
    server.url = url
    with pytest.raises((McpError, ConfigError), match="fake"):
        async with linked(server) as (link, _):
            await link.request(asks("initialize"))


async def test_a_header_that_can_t_be_sent(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    async with linked(server, headers={"X": "a\r\nb: c"}) as (link, _):
        with pytest.raises(McpError, match=says("io.http.http1._field")):
            await link.request(asks("initialize"))
    assert server.requests == []


# --- a server that dies


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"


@pytest.mark.parametrize("sent", [b"", HEAD[:30], HEAD])
async def test_a_server_that_dies_in_the_middle_leaves_it_open_whether_the_call_was_done(
    nursery: trio.Nursery, sent: bytes
) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.raw(sent)

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with pytest.raises(McpLost) as caught:
            await link.request(asks(name="pay"))
        assert not isinstance(caught.value, McpUnsent)
        assert "tools/call 'pay'" in str(caught.value)
        assert server.methods().count("tools/call") == 1


async def test_a_call_is_not_repeated_on_another_connection_but_a_list_is(nursery: trio.Nursery) -> None:
    dying = True

    async def answer(request: Sent, talk: Talk) -> None:
        nonlocal dying
        if dying and request.json["params"].get("dies"):
            dying = False
            return
        await talk.json(result(request, "fine"))

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        await link.request(asks("tools/list"))
        assert value(await link.request(asks("tools/list", dies=True))) == "fine"
        assert server.methods() == ["tools/list"] * 3
        dying = True
        with pytest.raises(McpLost, match=says("work.mcp.links.http")):
            await link.request(asks("tools/call", dies=True))
        assert server.methods()[3:] == ["tools/call"]


async def test_ids_of_sessions_and_events_come_back_as_they_were_whatever_their_letters(
    nursery: trio.Nursery, quick: None
) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        what = said(request)
        if what == "initialize":
            await talk.json(result(request, {}), mcp_session_id="séance")
        elif what == "tools/call":
            await talk.stream()
            await talk.event(id="événement")
            await talk.end()
        elif what == "GET" and "last-event-id" in request.headers:
            [call] = [each for each in server.requests if said(each) == "tools/call"]
            await talk.stream()
            await talk.event(result(call, {"taken": "up"}))
            await talk.end()
        else:
            await talk.whole(b"", 405 if what == "GET" else 202)

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks())) == {"taken": "up"}
    assert server.methods()[-1] == "DELETE"
    for request in server.requests[1:]:
        assert _as_sent(request, "mcp-session-id") == "séance".encode()
    assert [_as_sent(each, "last-event-id") for each in server.requests if "last-event-id" in each.headers] == [
        "événement".encode()
    ]


def _as_sent(request: Sent, name: str) -> bytes:
    return request.headers[name].encode("latin-1")


async def test_a_stream_that_ends_without_an_answer_and_without_ids_is_lost(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        await talk.event({"jsonrpc": "2.0", "method": "notifications/x"})
        await talk.end()

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with pytest.raises(McpLost, match=says("work.mcp.links.http.HttpLink._until_answered")):
            await link.request(asks())
        assert link.lost is None


@pytest.mark.parametrize("politely", [True, False])
async def test_a_stream_that_breaks_is_taken_up_behind_its_last_whole_event(
    nursery: trio.Nursery, quick: None, politely: bool
) -> None:
    def progress(n: int) -> Any:
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": n}}

    asked: list[Sent] = []

    async def answer(request: Sent, talk: Talk) -> None:
        if said(request) == "tools/call":
            asked.append(request)
            await talk.stream()
            await talk.event(progress(1), id="a")
            if politely:
                await talk.end()
            else:
                await talk.chunk(b"id: b\ndata: {")  # never complete, so not seen
        elif request.headers.get("last-event-id") == "a":
            await talk.stream()
            await talk.event(progress(2), id="b")
        elif request.headers.get("last-event-id") == "b":
            await talk.stream()
            if server.methods().count("GET") < 4:
                return  # it breaks again before there is anything new
            await talk.event(result(asked[0], "late"), id="c")
            await talk.end()
        else:
            await talk.whole(b"", 405)

    server = await fake_mcp(nursery, Legacy(answer, listens=True))
    heard = Heard()
    async with linked(server, heard) as (link, _):
        await shake_hands(link)
        call = asks()
        assert value(await link.request(call)) == "late"
        assert [(params["progress"], about) for _, params, about in heard.notifications] == [(1, call.id), (2, call.id)]
        assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize("status", [500, 405, 0])
async def test_a_stream_that_can_t_be_taken_up_is_lost(nursery: trio.Nursery, quick: None, status: int) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        if said(request) == "tools/call":
            await talk.stream()
            await talk.event(id="a")
        elif "last-event-id" in request.headers:
            if status:
                await talk.whole(b"", status)
        else:
            await talk.whole(b"", 405)

    server = await fake_mcp(nursery, Legacy(answer, listens=True))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with pytest.raises(McpLost, match="resuming the response failed as well") as caught:
            await link.request(asks())
        assert caught.value.exit_code == 6
        assert server.methods().count("GET") <= 2 + http.STREAM_TRIES


async def test_a_forgotten_session_fails_every_call_under_way(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        if request.json["params"].get("name") == "late":
            await talk.json("unknown", 404)
        else:
            await talk.stream()
            await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer))
    failed: list[str] = []

    async def call(link: http.HttpLink, name: str) -> None:
        try:
            await link.request(asks(name=name))
        except McpLost as error:
            failed.append(str(error))

    async with linked(server) as (link, _):
        await shake_hands(link)
        async with trio.open_nursery() as calls:
            for _ in range(3):
                calls.start_soon(call, link, "slow")
            await server.until(lambda: server.methods().count("tools/call") == 3)
            with trio.fail_after(60):
                await call(link, "late")
        assert len(failed) == 4
        assert all(has_message(text, "work.mcp.links.texts.refusal.2") for text in failed)


# --- too much


@pytest.mark.parametrize("kind", ["event", "json", "gzip"])
async def test_a_message_without_end_is_refused_before_it_fills_the_memory(nursery: trio.Nursery, kind: str) -> None:
    sent = 0

    async def answer(request: Sent, talk: Talk) -> None:
        nonlocal sent
        piece = b"x" * 65536
        if kind == "event":
            await talk.stream()
            await talk.chunk(b"data: ")
        elif kind == "json":
            await talk.stream(content_type="application/json")
        else:
            await talk.stream(content_type="application/json", content_encoding="gzip")
            packer = zlib.compressobj(wbits=31)
            piece = packer.compress(bytes(64 * MIB)) + packer.flush()
        while sent < 100 * MIB:
            await talk.chunk(piece)
            sent += len(piece)

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server, max_message_bytes=MIB) as (link, _):
        await shake_hands(link)
        with pytest.raises(
            McpError, match=says("work.mcp.links.http.HttpServerAccess.too_long", max_message_bytes=1048576)
        ):
            await link.request(asks())
        await server.until(lambda: server.open <= 1)
        assert sent < 20 * MIB
        assert link.lost is None


@pytest.mark.parametrize("streams", [True, False])
async def test_a_compressed_answer_is_understood_though_nobody_asked_for_it(
    nursery: trio.Nursery, streams: bool
) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        assert request.headers["accept-encoding"] == "identity"
        text = json.dumps(result(request, "packed")).encode()
        if not streams:
            await talk.whole(gzip.compress(text), content_type="application/json", content_encoding="gzip")
            return
        await talk.stream(content_encoding="gzip")
        packer = zlib.compressobj(wbits=31)
        await talk.chunk(packer.compress(b"data: %b\n\n" % text) + packer.flush(zlib.Z_SYNC_FLUSH))
        await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks())) == "packed"


async def test_junk_in_a_stream_is_told(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        await talk.event("junk")
        await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with pytest.raises(McpError, match=says("work.mcp.links.http.HttpServerAccess.messages", begins="junk")):
            await link.request(asks())


async def test_more_messages_than_can_wait_are_dropped_and_counted(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "WAITING", 20)
    free = trio.Event()

    async def answer(request: Sent, talk: Talk) -> None:
        await free.wait()
        await talk.whole(b"", 202)

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        for _ in range(25):
            link.notify("notifications/x", {})
        assert link.dropped == 5
        await server.until(lambda: len(server.requests) == http.AT_ONCE)
        await trio.testing.wait_all_tasks_blocked()
        assert len(server.requests) == http.AT_ONCE
        free.set()
        await server.until(lambda: len(server.requests) == 20)


# --- silence


async def test_a_server_that_never_answers_costs_its_caller_s_time_only(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        if request.json["params"].get("name") == "quick":
            await Legacy().echo(request, talk)
        else:
            await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with trio.move_on_after(0.02) as scope:
            await link.request(asks(name="slow"))
        assert scope.cancelled_caught
        assert value(await link.request(asks(name="quick")))


async def test_a_stream_that_stays_open_behind_its_answer_holds_nobody_up(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LINGER", 0.01)
    hung_up = trio.Event()

    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        await talk.event(result(request, "there"))
        await talk.gone()
        hung_up.set()

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks())) == "there"
        with trio.fail_after(60):
            await hung_up.wait()


async def test_a_server_that_won_t_end_its_session_holds_up_the_end_for_a_moment_only(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "DELETE_WITHIN", 0.02)

    async def answer(request: Sent, talk: Talk) -> None:
        if said(request) == "DELETE":
            await talk.gone()
        else:
            await Legacy()(request, talk)

    server = await fake_mcp(nursery, answer)
    with trio.fail_after(60):
        async with linked(server) as (link, _):
            await shake_hands(link)
    await server.until(lambda: server.open == 0)


async def test_a_refused_notification_is_counted_and_holds_no_request_up(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        if said(request).startswith("notifications/"):
            await talk.whole(b"no", 500)
        else:
            await Legacy()(request, talk)

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks(a=1))) == {"echo": {"a": 1}}
        assert link.dropped == 1


# --- laws


@given(st.data())
def test_an_answer_is_found_however_its_stream_is_split(data: st.DataObject) -> None:
    call = asks()
    said = [{"jsonrpc": "2.0", "method": f"m{n}", "params": {"ü": "\u2028"}} for n in range(3)]
    messages = [*said, {"jsonrpc": "2.0", "id": call.id, "result": {"ok": "é"}}]
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = "".join(
        f"id: {n}{end}data: {json.dumps(m, ensure_ascii=False)}{end}{end}" for n, m in enumerate(messages)
    ).encode()
    # In thousandths: the text is a little longer whenever the id has one digit more.
    cuts = sorted(len(text) * part // 1000 for part in data.draw(st.lists(st.integers(0, 1000), max_size=8)))
    heard = Heard()
    reading = ResponseReading(HttpServerAccess(Server(name="fake", type="http", url="http://x"), {}), heard, call)
    pieces = [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found = [reading.take(piece) for piece in pieces]
    assert found[-1] or any(found)
    assert json.loads(bytes(reading.result())) == {"ok": "é"}
    assert [method for method, _, _ in heard.notifications] == ["m0", "m1", "m2"]


async def cancel_at_any_moment(nursery: trio.Nursery, seed: int) -> None:
    rand = random.Random(seed)
    lag = rand.choice([0.0, 0.002])

    async def answer(request: Sent, talk: Talk) -> None:
        await trio.sleep(lag * rand.random())
        await talk.stream()
        await trio.sleep(lag * rand.random())
        await talk.event(result(request, request.json["params"]["n"]))
        await talk.end()

    server = await fake_mcp(nursery, Legacy(answer))
    done: list[int] = []

    async def call(link: http.HttpLink, n: int) -> None:
        with trio.move_on_after(rand.random() * 0.006), suppress(McpLost):
            assert value(await link.request(asks(n=n))) == n
            done.append(n)

    async with linked(server) as (link, _):
        await shake_hands(link)
        async with trio.open_nursery() as calls:
            for n in range(20):
                calls.start_soon(call, link, n)
        assert value(await link.request(asks(n=99))) == 99
        assert link.lost is None
    with trio.fail_after(60):
        await server.until(lambda: server.open == 0)


async def test_calls_cancelled_at_any_moment_leave_a_link_that_works(nursery: trio.Nursery) -> None:
    for seed in range(5):
        await cancel_at_any_moment(nursery, seed)


@pytest.mark.soak
async def test_calls_cancelled_at_any_moment_fifty_times(nursery: trio.Nursery) -> None:
    for seed in range(50):
        await cancel_at_any_moment(nursery, seed)
