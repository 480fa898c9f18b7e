"""Reaching a server over HTTP: which era it speaks, which transport, and what is told if it can't be reached."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from support.fake_mcp_http import Legacy, Stream, Talk, closed_port, failure, fake_mcp, result, said
from support.fake_models import Request as Sent
from support.mcp_links import opened_by_actor

from callboard.actors.work.mcp.client.connect import OfferedCapabilities, connect
from callboard.protocol.errors import ActorFailed, McpError, McpSignInNeeded
from callboard.protocol.mcp.config import Server
from callboard.protocol.mcp.model import MODERN


def connected(url: str, type: Any = "http", **options: Any) -> AbstractAsyncContextManager[Any]:
    server = Server(name="fake", type=type, url=url, **options)
    return opened_by_actor(lambda me: connect(me, server, environ={}, abilities=OfferedCapabilities()))


async def modern(request: Sent, talk: Talk) -> None:
    if said(request) == "server/discover":
        await talk.json(result(request, {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}))
    elif said(request) == "tools/call":
        await talk.json(result(request, {"content": [], "resultType": "complete"}))
    else:
        await talk.json(failure(request, -32601, "Method not found"), 404)


async def sessions(request: Sent, talk: Talk) -> None:
    """As the examples of the older SDKs have it: whatever comes without a session must be `initialize`."""
    if said(request) == "server/discover":
        await talk.json(failure(request, -32000, "Bad Request: Server not initialized"), 400)
    else:
        await Legacy()(request, talk)


@pytest.mark.parametrize(("answer", "era"), [(modern, True), (sessions, False), (Legacy(), False)])
async def test_the_era_is_found_out(nursery: trio.Nursery, answer: Any, era: bool) -> None:
    server = await fake_mcp(nursery, answer)
    async with connected(server.url) as (client, _):
        assert client.modern is era
        await client.call_tool("x", {})
    assert server.methods()[0] == "server/discover"
    assert ("initialize" in server.methods()) is not era
    assert ("DELETE" in server.methods()) is not era


async def test_an_address_of_the_older_transport_is_found_out_too(nursery: trio.Nursery) -> None:
    stream = Stream()

    async def answer(request: Sent, talk: Talk) -> None:
        if request.method == "POST" and request.path == "/mcp":
            await talk.whole(b"Method Not Allowed", 405)
        else:
            await stream(request, talk)

    server = await fake_mcp(nursery, answer)
    async with connected(server.url) as (client, _):
        assert await client.call_tool("x", {}) == {"echo": {"name": "x", "arguments": {}}}
        stream.broken.set()


@pytest.mark.parametrize(("status", "words"), [(401, "Authorization"), (404, "check its `url`"), (500, "HTTP 500")])
async def test_a_server_that_refuses_all_is_told_with_its_status(
    nursery: trio.Nursery, status: int, words: str
) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.whole(b"", status)

    server = await fake_mcp(nursery, answer)
    with pytest.raises(ActorFailed) as caught:
        async with connected(server.url):
            pass
    assert isinstance(caught.value.__cause__, McpError)
    assert words in str(caught.value.__cause__)


@pytest.mark.parametrize("type", ["http", "sse"])
async def test_nobody_there(type: str) -> None:
    with pytest.raises(ActorFailed) as caught:
        async with connected(f"http://127.0.0.1:{closed_port()}/mcp", type):
            pass
    assert (getattr(caught.value.__cause__, "code", ""), "refused" in str(caught.value.__cause__)) == ("mcp_lost", True)


@pytest.mark.parametrize("type", ["http", "sse"])
async def test_a_server_that_says_nothing_costs_its_start_timeout(nursery: trio.Nursery, type: str) -> None:
    async def answer(request: Sent, talk: Talk) -> None:
        await talk.gone()

    server = await fake_mcp(nursery, answer)
    with pytest.raises(ActorFailed) as caught:
        async with connected(server.url, type, start_timeout_seconds=0.05):
            pass
    assert "start_timeout_seconds" in str(caught.value.__cause__)
    with trio.fail_after(60):
        await server.until(lambda: server.open == 0)


async def test_a_401_to_discover_is_the_answer_of_a_server_without_initialize(nursery: trio.Nursery) -> None:
    async def gate(request: Sent, talk: Talk) -> None:
        if said(request) == "server/discover":
            await talk.json({}, 401, www_authenticate='Bearer scope="a"')
        else:
            await talk.json(failure(request, -32020, "Missing MCP-Protocol-Version header"), 400)

    server = await fake_mcp(nursery, gate)
    with pytest.raises(ActorFailed) as caught:
        async with connected(server.url):
            pytest.fail("connected")
    assert isinstance(caught.value.__cause__, McpSignInNeeded)


async def test_a_401_to_discover_alone_does_not_keep_from_initialize(nursery: trio.Nursery) -> None:
    async def gate(request: Sent, talk: Talk) -> None:
        if said(request) == "server/discover":
            await talk.json({}, 401, www_authenticate="Bearer")
        else:
            await Legacy()(request, talk)

    server = await fake_mcp(nursery, gate)
    async with connected(server.url) as (client, _):
        assert not client.modern


@pytest.mark.parametrize(("refusals", "modern_in_the_end"), [(1, True), (2, False)])
async def test_a_refusal_that_names_our_own_revision_is_tried_once_more(
    nursery: trio.Nursery, refusals: int, modern_in_the_end: bool
) -> None:
    refused: list[str] = []

    async def moody(request: Sent, talk: Talk) -> None:
        if said(request) == "server/discover" and len(refused) < refusals:
            refused.append(said(request))
            data = {"supported": [MODERN], "requested": MODERN}
            await talk.json(
                {"jsonrpc": "2.0", "id": request.json["id"], "error": {"code": -32022, "message": "?", "data": data}}
            )
        else:
            await modern(request, talk)

    server = await fake_mcp(nursery, moody)
    if modern_in_the_end:
        async with connected(server.url) as (client, _):
            assert client.modern
    else:
        with pytest.raises(ActorFailed) as caught:
            async with connected(server.url):
                pytest.fail("connected")
        assert isinstance(caught.value.__cause__, McpError)
    assert len(refused) == refusals


async def test_a_tool_whose_header_annotations_are_invalid_is_left_out(nursery: trio.Nursery) -> None:
    def tool(name: str, header: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": header}}}
        return {"name": name, "inputSchema": schema}

    async def serves(request: Sent, talk: Talk) -> None:
        if said(request) == "tools/list":
            tools = [tool("good", "Region"), tool("bad", "two words")]
            await talk.json(result(request, {"resultType": "complete", "tools": tools}))
        else:
            await modern(request, talk)

    server = await fake_mcp(nursery, serves)
    async with connected(server.url) as (client, _):
        assert [each.name for each in await client.tools()] == ["good"]
