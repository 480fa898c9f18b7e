"""A link over Streamable HTTP, as both eras use it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.fake_mcp_http import SESSION, Answer, Legacy, Talk, failure, fake_mcp, result, said
from support.fake_models import Request as Sent
from support.mcp_links import Heard, asks, linked, shake_hands, value
from support.messages import has_message, says

from callboard.actors.work.mcp.links import http
from callboard.actors.work.mcp.links.http import HttpLink
from callboard.actors.work.mcp.links.link import OutgoingCall
from callboard.actors.work.mcp.links.mirrored import header_value
from callboard.protocol.errors import McpError, McpUnsent
from callboard.protocol.mcp.model import MODERN

# --- what is sent


@pytest.mark.parametrize("streams", [True, False])
async def test_a_call_is_answered_by_json_or_by_events(nursery: trio.Nursery, streams: bool) -> None:
    server = await fake_mcp(nursery, Legacy(streams=streams))
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks(name="echo", arguments={"a": "ü"}))) == {
            "echo": {"name": "echo", "arguments": {"a": "ü"}}
        }


async def test_a_session_goes_with_every_request_and_is_deleted_at_the_end(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    async with linked(server, headers={"Authorization": "Bearer t", "X-Mine": "1"}) as (link, _):
        await shake_hands(link)
        await link.request(asks(name="echo"))
    first, *rest = server.requests
    assert "mcp-session-id" not in first.headers
    assert "mcp-protocol-version" not in first.headers
    assert re.fullmatch(says("work.mcp.auth.sign_in._answer_to"), first.headers["accept"])
    assert first.headers["content-type"] == "application/json"
    assert {request.headers["mcp-session-id"] for request in rest} == {SESSION}
    assert {request.headers["mcp-protocol-version"] for request in rest} == {"2025-11-25"}
    assert {(request.headers["authorization"], request.headers["x-mine"]) for request in server.requests} == {
        ("Bearer t", "1")
    }
    assert server.methods()[-1] == "DELETE"
    await server.until(lambda: server.open == 0)


async def test_no_request_overtakes_the_end_of_the_handshake(nursery: trio.Nursery) -> None:
    slow = trio.Event()

    async def answer(request: Sent, talk: Talk) -> None:
        if said(request) == "notifications/initialized":
            await slow.wait()
        await Legacy()(request, talk)

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        await shake_hands(link)
        nursery.start_soon(link.request, asks("tools/list"))
        await server.heard("notifications/initialized")
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert "tools/list" not in server.methods()
        slow.set()
        await server.heard("tools/list")


async def test_a_modern_request_tells_in_its_headers_what_its_body_says(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.json(result(request, {}))

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        await link.request(asks("server/discover", modern=True))
        await link.request(asks("tools/call", modern=True, name="grüße"))
        await link.request(asks("resources/read", modern=True, uri="file:///a"))
    told = [
        [request.headers.get(f"mcp-{name}") for name in ("protocol-version", "method", "name", "session-id")]
        for request in server.requests
    ]
    assert told == [
        [MODERN, "server/discover", None, None],
        [MODERN, "tools/call", "=?base64?Z3LDvMOfZQ==?=", None],
        [MODERN, "resources/read", "file:///a", None],
    ]


@given(st.text())
def test_a_header_s_value_arrives_as_it_was(text: str) -> None:
    wrapped = header_value(text)
    assert wrapped.isascii()
    assert wrapped.isprintable()
    assert wrapped == wrapped.strip()
    if wrapped.startswith("=?base64?") and wrapped.endswith("?="):
        assert base64.b64decode(wrapped[9:-2]).decode() == text
    else:
        assert wrapped == text


async def test_headers_of_the_request_are_sent_too(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    async with linked(server) as (link, _):
        await shake_hands(link)
        await link.request(OutgoingCall(id=77, method="tools/call", params={}, headers={"Mcp-Param-Region": "eu"}))
    assert (await server.heard("tools/call")).headers["mcp-param-region"] == "eu"


async def test_calls_one_after_the_other_use_one_connection(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy(streams=False))
    async with linked(server) as (link, _):
        for _ in range(20):
            with pytest.raises(McpError):
                await link.request(asks("server/discover"))
        assert server.accepted == 1


async def test_calls_answered_by_streams_use_few_connections(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    async with linked(server) as (link, _):
        await shake_hands(link)
        for _ in range(20):
            await link.request(asks())
        assert server.accepted < 6


async def test_a_hundred_calls_at_once_are_all_answered(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    async with linked(server) as (link, _):
        await shake_hands(link)
        answers: dict[int, Any] = {}

        async def call(number: int) -> None:
            answers[number] = value(await link.request(asks(n=number)))

        async with trio.open_nursery() as calls:
            for number in range(100):
                calls.start_soon(call, number)
        assert answers == {number: {"echo": {"n": number}} for number in range(100)}


# --- what comes beside the answer


async def test_what_the_server_says_in_an_answer_is_about_that_request(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        await talk.event(kind="message", id="1")
        await talk.chunk(b": still there\n\n")
        await talk.event("unknown kinds are skipped", kind="ping")
        await talk.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
        await talk.event({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}})
        await server.heard("answer")
        await talk.event({"jsonrpc": "2.0", "id": 999, "result": "somebody else's"})
        await talk.event(result(request, "done"))
        await talk.end()

    server = await fake_mcp(nursery, Legacy(answer))
    heard = Heard()
    async with linked(server, heard) as (link, _):
        heard.link = link
        await shake_hands(link)
        call = asks(name="x")
        assert value(await link.request(call)) == "done"
        assert heard.notifications == [("notifications/progress", {"progress": 1}, call.id)]
        (request, about), *_ = heard.requests
        assert (request.method, about) == ("elicitation/create", call)
        assert (await server.heard("answer")).json == {"jsonrpc": "2.0", "id": 1, "result": {"action": "cancel"}}


async def test_a_batch_is_taken_apart(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.json([{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, result(request, 5)])

    server = await fake_mcp(nursery, Legacy(answer))
    heard = Heard()
    async with linked(server, heard) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks())) == 5
        assert len(heard.notifications) == 1


async def test_a_server_that_speaks_by_itself_is_listened_to_again_where_it_broke_off(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MIN_RETRY", 0.0)
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        if "last-event-id" not in request.headers:
            await talk.event(changed, id="e7", retry=1)
        elif server.methods().count("GET") == 2:
            await talk.event(changed, id="e8")
        else:
            await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer, listens=True))
    heard = Heard()
    async with linked(server, heard) as (link, _):
        await shake_hands(link)
        await server.until(lambda: server.methods().count("GET") == 3)
        gets = [request for request in server.requests if request.method == "GET"]
        assert [get.headers.get("last-event-id") for get in gets] == [None, "e7", "e8"]
        assert {get.headers["accept"] for get in gets} == {"text/event-stream"}
        assert heard.notifications == [("notifications/tools/list_changed", {}, None)] * 2


async def test_a_server_without_a_stream_of_its_own_is_not_asked_again(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, Legacy())
    async with linked(server) as (link, _me):
        await shake_hands(link)
        await server.heard("GET")
        await link.request(asks())
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert server.methods().count("GET") == 1
        assert link.own.child_count == 0


# --- cancelling


async def test_cancelling_tells_a_server_of_the_first_era(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        if request.json["params"].get("name") == "quick":
            await Legacy().echo(request, talk)
        else:
            await talk.stream()
            await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        call = asks(name="slow")
        async with trio.open_nursery() as calls:
            calls.start_soon(link.request, call)
            await server.heard("tools/call")
            calls.cancel_scope.cancel()
        told = await server.heard("notifications/cancelled")
        assert told.json["params"]["requestId"] == call.id
        assert told.headers["mcp-session-id"] == SESSION
        assert value(await link.request(asks(name="quick")))


async def test_cancelling_hangs_up_on_a_modern_server_and_says_nothing(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        await talk.gone()

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        link.modern, link.version = True, MODERN
        async with trio.open_nursery() as calls:
            calls.start_soon(link.request, asks(modern=True))
            await server.heard("tools/call")
            calls.cancel_scope.cancel()
        with trio.fail_after(60):
            await server.until(lambda: server.open == 0)
        await trio.testing.wait_all_tasks_blocked(0.02)
    assert server.methods() == ["tools/call"]


async def test_a_cancelled_initialize_is_not_announced(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.gone()

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _), trio.open_nursery() as calls:
        calls.start_soon(link.request, asks("initialize"))
        await server.heard("initialize")
        calls.cancel_scope.cancel()
    assert server.methods() == ["initialize"]


async def test_the_end_of_the_owner_ends_the_calls(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.stream()
        await talk.gone()

    server = await fake_mcp(nursery, Legacy(answer))
    errors: list[McpError] = []

    async def call(link: HttpLink) -> None:
        try:
            await link.request(asks())
        except McpError as error:
            errors.append(error)

    async with linked(server) as (link, _):
        await shake_hands(link)
        for _ in range(3):
            nursery.start_soon(call, link)
        await server.until(lambda: server.methods().count("tools/call") == 3)
    await trio.testing.wait_all_tasks_blocked()
    assert [(error.code, has_message(str(error), "work.mcp.links.http.HttpLink.close.2")) for error in errors] == [
        ("mcp_lost", True)
    ] * 3
    with pytest.raises(McpUnsent, match=says("work.mcp.links.http.HttpLink.close.2")):
        await link.request(asks())
    await server.until(lambda: server.open == 0)


# --- refusals


async def test_the_server_s_refusal_is_told_with_its_number(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        status = request.json["params"]["status"]
        await talk.json({"jsonrpc": "2.0", "id": "server-error", **refused(request)}, status)

    def refused(request: Sent) -> Any:
        return {"error": {"code": -32602, "message": "no such tool", "data": {"x": 1}}}

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        for status in (200, 400, 404, 500):
            with pytest.raises(McpError, match="no such tool") as caught:
                await link.request(asks(status=status))
            assert (caught.value.rpc_code, caught.value.data) == (-32602, {"x": 1})
            assert caught.value.code == "mcp"
            assert link.lost is None


Whole = Callable[[Sent, Talk], Any]


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ({"body": b"<html>nope</html>", "status": 200, "content_type": "text/html"}, ["text/html", "`url`"]),
        ({"body": b"hello", "status": 200, "content_type": "application/json"}, ["an invalid MCP message", "'hello'"]),
        ({"body": b"", "status": 202}, ["HTTP 202", "`url`"]),
        ({"body": b"<html>", "status": 502, "content_type": "text/html"}, ["HTTP 502", "Scripted"]),
        ({"body": b"no such page", "status": 404, "content_type": "text/plain"}, ["HTTP 404", "no such page", "`url`"]),
        ({"body": b'{"error": "slow down"}', "status": 429, "content_type": "application/json"}, ["slow down", "429"]),
        ({"body": b"{}", "content_type": "application/json", "content_encoding": "br"}, ["'br'"]),
        ({"body": b"not gzip", "content_type": "application/json", "content_encoding": "gzip"}, ["decompressing"]),
    ],
)
async def test_an_answer_that_is_none_says_what_it_is(nursery: trio.Nursery, whole: Any, words: list[str]) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.whole(**whole)

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        with pytest.raises(McpError) as caught:
            await link.request(asks("tools/list"))
        text = str(caught.value)
        assert text.startswith("MCP server 'fake'")
        assert "tools/list" in text or "decompressing" in text or "'br'" in text
        assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("headers", "hint"),
    [({}, '"Authorization": "Bearer ${TOKEN}"'), ({"Authorization": "Bearer secret-1"}, "header Authorization")],
)
async def test_missing_or_wrong_credentials_say_where_they_belong(
    nursery: trio.Nursery, headers: dict[str, str], hint: str
) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.json({"error": "invalid_token"}, 401, www_authenticate="Bearer realm=x")

    server = await fake_mcp(nursery, answer)
    async with linked(server, headers=headers) as (link, _):
        with pytest.raises(McpError) as caught:
            await link.request(asks("initialize"))
        assert (caught.value.code, caught.value.exit_code) == ("mcp_unauthorized", 3)
        assert hint in str(caught.value)
        assert (has_message(str(caught.value), "work.mcp.auth.access.remedy", name="fake…")) == (not headers)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "forgotten",
    [
        (404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}),
        (404, "gone"),
        (400, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Bad: No valid session ID"}}),
    ],
)
async def test_a_forgotten_session_ends_the_link_and_its_owner(nursery: trio.Nursery, forgotten: Any) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.json(forgotten[1], forgotten[0])

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, me):
        await shake_hands(link)
        with pytest.raises(McpError, match=says("work.mcp.links.texts.refusal.2")) as caught:
            await link.request(asks())
        assert caught.value.code == "mcp_lost"
        assert link.lost is not None
        with trio.fail_after(60):
            end = await me.ref.wait()
        assert has_message(repr(end.error), "work.mcp.links.texts.refusal.2")
        assert "DELETE" not in server.methods()


async def test_whoever_is_told_that_the_session_is_forgotten_may_ask_again(nursery: trio.Nursery) -> None:
    both = trio.Event()

    async def answer(request: Sent, talk: Talk) -> None:
        if server.methods().count("tools/call") == 2:
            both.set()
        await both.wait()
        await talk.json("gone", 404)

    server = await fake_mcp(nursery, Legacy(answer))
    unsent: list[McpUnsent] = []

    async def call(link: HttpLink) -> None:
        try:
            await link.request(asks())
        except McpUnsent as error:
            unsent.append(error)

    async with linked(server) as (link, _):
        await shake_hands(link)
        link._web.close = lambda: None  # so that the second answer is read as well
        async with trio.open_nursery() as calls:
            calls.start_soon(call, link)
            calls.start_soon(call, link)
        assert len(unsent) == 2
        assert unsent[0] is not unsent[1]


async def test_a_tool_that_knows_sessions_of_its_own_ends_none_of_ours(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.json(failure(request, -32602, "session_id must be a number"), 400)

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with pytest.raises(McpError, match="must be a number"):
            await link.request(asks())
        assert link.lost is None


async def test_an_unknown_method_under_404_is_not_the_end_of_the_session(nursery: trio.Nursery) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.json(failure(request, -32601, "Method not found"), 404)

    server = await fake_mcp(nursery, Legacy(answer))
    async with linked(server) as (link, _):
        await shake_hands(link)
        with pytest.raises(McpError, match="Method not found"):
            await link.request(asks("prompts/list"))
        assert link.lost is None


# --- redirects


def redirects(status: int, location: str) -> Answer:
    async def answer(request: Sent, talk: Talk) -> None:
        if request.path == "/mcp":
            await talk.whole(b"", status, location=location)
        else:
            await Legacy()(request, talk)

    return answer


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed(nursery: trio.Nursery, status: int) -> None:
    server = await fake_mcp(nursery, redirects(status, "/mcp/"))
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks(a=1))) == {"echo": {"a": 1}}


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_lose_the_message_is_not(nursery: trio.Nursery, status: int) -> None:
    server = await fake_mcp(nursery, redirects(status, "/mcp/"))
    async with linked(server) as (link, _):
        with pytest.raises(McpError, match=f"HTTP {status}"):
            await link.request(asks("initialize"))
    assert server.methods() == ["initialize"]


async def test_a_redirect_to_another_origin_is_never_followed(nursery: trio.Nursery) -> None:
    other = await fake_mcp(nursery, Legacy())
    server = await fake_mcp(nursery, redirects(307, f"{other.origin}/x?token=1"))
    async with linked(server, headers={"Authorization": "Bearer secret"}) as (link, _):
        with pytest.raises(McpError, match=rf"redirects to {other.origin}/x\."):
            await link.request(asks("initialize"))
    assert other.requests == []


async def test_a_circle_of_redirects_ends(nursery: trio.Nursery) -> None:
    server = await fake_mcp(nursery, redirects(307, "/mcp"))
    async with linked(server) as (link, _):
        with pytest.raises(McpError, match=says("work.mcp.links.http.HttpServerAccess._sent")):
            await link.request(asks("initialize"))


async def test_the_server_s_own_stream_is_open_before_anything_is_asked_of_it(nursery: trio.Nursery) -> None:
    """What a server wants to know because of a request has nowhere to go before that."""
    server = await fake_mcp(nursery, Legacy())
    async with linked(server) as (link, _):
        await shake_hands(link)
        await link.request(asks(name="echo"))
    methods = server.methods()
    assert methods.index("GET") < methods.index("notifications/initialized") < methods.index("tools/call")


@pytest.mark.parametrize("body", [b"", b"{}", b"null"])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_notification_may_be_answered_by_200_with_anything(
    nursery: trio.Nursery, body: bytes, streams: bool
) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        if request.body and "id" not in request.json:
            await talk.whole(body, content_type="application/json; charset=utf-8")
        else:
            await Legacy(streams=streams)(request, talk)

    server = await fake_mcp(nursery, answer)
    async with linked(server) as (link, _):
        await shake_hands(link)
        assert value(await link.request(asks(name="echo")))
