"""The same over HTTP: streams, sessions of the older era, headers of the newer, and who is let in."""

from __future__ import annotations

import base64
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from support.agent_runs import AgentRunner, at_work
from support.mcp_guest import ASKER, HELLO, LEGACY, META, MODERN, SLOW, SOON
from support.messages import says
from support.waiting import until

import callboard.actors.front.mcp_server.asgi as asgi
from callboard.actors.front.mcp_server.service import ServiceOptions, read_agents
from callboard.actors.front.mcp_server.serving import serve_http
from callboard.actors.io.http import sse
from callboard.protocol.errors import ConfigError, UsageError

Site = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
BOTH = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def site(agent_runner: AgentRunner) -> Site:
    """`site(...)`, the arguments of `serve_http`, is a context: an HTTP client of a server of the stage's agents."""

    @asynccontextmanager
    async def served(**arguments: Any) -> AsyncIterator[httpx.AsyncClient]:
        offers, _ = read_agents(agent_runner.root)
        urls: list[str] = []

        async def run() -> None:
            await serve_http(agent_runner.root, offers, on_listening=urls.append, **arguments)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until(lambda: urls)
            async with httpx.AsyncClient(
                base_url=urls[0], headers=BOTH, trust_env=False, verify=False, timeout=SOON
            ) as client:
                yield client
            nursery.cancel_scope.cancel()
        assert at_work(agent_runner.root) == []

    return served


def modern(method: str, id: int = 1, **params: Any) -> dict[str, Any]:
    """The arguments of a POST of the newer era."""
    meta = {**META, **params.pop("_meta", {})}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}
    return {"url": "", "json": body, "headers": headers}


def legacy(method: str, id: int | None = 1, session: str = "", **params: Any) -> dict[str, Any]:
    """The arguments of a POST of the older era."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if id is not None:
        body["id"] = id
    return {"url": "", "json": body, "headers": {"mcp-session-id": session} if session else {}}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The messages of a stream."""
    assert response.headers["content-type"] == "text/event-stream"
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


async def begun(client: httpx.AsyncClient) -> str:
    """A session's id."""
    response = await client.post(**legacy("initialize", **LEGACY))
    assert response.json()["result"]["protocolVersion"] == "2025-11-25"
    session: str = response.headers["mcp-session-id"]
    assert (await client.post(**legacy("notifications/initialized", id=None, session=session))).status_code == 202
    return session


# --- the newer era -------------------------------------------------------------------------------------------


async def test_a_request_that_says_nothing_before_its_answer_is_answered_in_json(
    agent_runner: AgentRunner, site: Site
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        found = (await client.post(**modern("server/discover"))).json()
        assert found["result"]["supportedVersions"] == [MODERN]
        listed = (await client.post(**modern("tools/list"))).json()
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["hello"]
        response = await client.post(**modern("tools/call", name="hello", arguments={"prompt": "x"}))
    assert response.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in response.headers
    assert response.json()["result"]["content"][0]["text"] == "hello x"


async def test_progress_makes_the_answer_a_stream(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        response = await client.post(**modern("tools/call", name="hello", _meta={"progressToken": 9}))
    *told, answer = events(response)
    assert [each["params"]["progress"] for each in told] == [1, 2, 3]
    assert {each["params"]["progressToken"] for each in told} == {9}
    assert answer["result"]["content"][0]["text"] == "hello "


async def test_a_question_ends_the_request_and_the_answer_comes_with_another(
    agent_runner: AgentRunner, site: Site
) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with site() as client:
        result = (await client.post(**modern("tools/call", name="asker"))).json()["result"]
        ((id, _),) = result["inputRequests"].items()
        answers = {id: {"action": "accept", "content": {"answer": "red"}}}
        again = modern("tools/call", 2, name="asker", requestState=result["requestState"], inputResponses=answers)
        assert (await client.post(**again)).json()["result"]["content"][0]["text"] == "chose red"


async def test_closing_the_stream_cancels_the_run(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    async with site() as client:
        async with client.stream("POST", **modern("tools/call", name="slow", _meta={"progressToken": 1})) as response:
            lines = response.aiter_lines()
            await anext(lines)
            await until(lambda: (agent_runner.config_dir / "started").exists())
        await until(lambda: len(at_work(agent_runner.root)) == 1)


async def test_a_client_that_hangs_up_before_there_is_a_stream_cancels_the_run_too(
    agent_runner: AgentRunner, site: Site
) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    async with site() as client:
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                await client.post(**modern("tools/call", name="slow"))

            nursery.start_soon(post)
            await until(lambda: (agent_runner.config_dir / "started").exists())
            nursery.cancel_scope.cancel()
        await until(lambda: len(at_work(agent_runner.root)) == 1)


async def test_a_long_silence_is_filled_so_that_nobody_hangs_up(
    agent_runner: AgentRunner, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "PING_EVERY", 0.01)
    enough = agent_runner.config_dir / "enough"
    agent_runner.agent(SLOW, name="slow", work=f"while [ ! -e {enough} ]; do sleep 0.01; done; echo {{}}")
    said = ""
    async with site() as client, client.stream("POST", **modern("tools/call", name="slow")) as response:
        async for piece in response.aiter_text():
            said += piece
            if said.count(": ping") > 1:
                enough.touch()
    (result,) = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
    assert json.loads(result)["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method", "mcp-name"])
@pytest.mark.parametrize("value", [None, "other"])
async def test_headers_must_say_what_the_body_says(
    agent_runner: AgentRunner, site: Site, header: str, value: str | None
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        request = modern("tools/call", name="hello")
        del request["headers"][header]
        if value is not None:
            request["headers"][header] = value
        response = await client.post(**request)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32020
    assert header in response.json()["error"]["message"]
    assert response.json()["id"] == 1


async def test_a_name_in_a_header_may_be_encoded(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        request = modern("tools/call", name="hello")
        request["headers"]["mcp-name"] = f"=?base64?{base64.b64encode(b'hello').decode()}?="
        assert (await client.post(**request)).status_code == 200
        request["headers"]["mcp-name"] = "=?base64?!!?="
        assert (await client.post(**request)).status_code == 400


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("tools/list", {"_meta": {"io.modelcontextprotocol/clientCapabilities": None}}, 400, -32602),
        ("tools/call", {"name": "nobody"}, 400, -32602),
        ("resources/list", {}, 404, -32601),
    ],
)
async def test_an_error_has_its_status(
    agent_runner: AgentRunner, site: Site, method: str, params: dict[str, Any], status: int, code: int
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        response = await client.post(**modern(method, **params))
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_an_unknown_version_is_told_which_one_is_spoken(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        request = modern("server/discover", _meta={"io.modelcontextprotocol/protocolVersion": "2099-01-01"})
        request["headers"]["mcp-protocol-version"] = "2099-01-01"
        response = await client.post(**request)
    assert response.status_code == 400
    assert response.json()["error"]["data"]["supported"] == [MODERN]


# --- the older era -------------------------------------------------------------------------------------------


async def test_a_session_lists_calls_and_ends(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        session = await begun(client)
        listed = (await client.post(**legacy("tools/list", session=session))).json()
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["hello"]
        call = legacy("tools/call", session=session, name="hello", arguments={"prompt": "x"})
        assert (await client.post(**call)).json()["result"]["content"][0]["text"] == "hello x"
        wrong = await client.post(**legacy("tools/nothing", session=session))
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (200, -32601)
        assert (await client.delete("", headers={"mcp-session-id": session})).status_code == 204
        assert (await client.post(**call)).status_code == 404


async def test_without_a_session_nothing_but_initialize_is_heard(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        assert (await client.post(**legacy("tools/list"))).status_code == 400
        assert (await client.post(**legacy("tools/list", session="made-up"))).status_code == 404
        assert (await client.post(**legacy("notifications/initialized", id=None))).status_code == 400
        strange = legacy("tools/list", session=await begun(client))
        strange["headers"]["mcp-protocol-version"] = "1999-01-01"
        assert (await client.post(**strange)).status_code == 400


async def test_a_question_comes_on_the_calls_own_stream(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with site() as client:
        session = await begun(client)
        async with client.stream("POST", **legacy("tools/call", session=session, name="asker")) as response:
            lines = response.aiter_lines()
            while not (line := await anext(lines)).startswith("data: "):
                pass
            question = json.loads(line[6:])
            assert question["method"] == "elicitation/create"
            answer = {"action": "accept", "content": {"answer": "blue"}}
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
            assert (await client.post("", json=reply, headers={"mcp-session-id": session})).status_code == 202
            while not (line := await anext(lines)).startswith("data: "):
                pass
        assert json.loads(line[6:])["result"]["content"][0]["text"] == "chose blue"


async def test_one_session_can_neither_cancel_nor_answer_for_another(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with site() as client:
        mine, other = await begun(client), await begun(client)
        async with client.stream("POST", **legacy("tools/call", session=mine, name="asker")) as response:
            lines = response.aiter_lines()
            while not (line := await anext(lines)).startswith("data: "):
                pass
            question = json.loads(line[6:])["id"]
            await client.post(**legacy("notifications/cancelled", id=None, session=other, requestId=1))
            forged = {"jsonrpc": "2.0", "id": question, "result": {"action": "accept", "content": {"answer": "red"}}}
            await client.post("", json=forged, headers={"mcp-session-id": other})
            forged["result"]["content"]["answer"] = "blue"
            await client.post("", json=forged, headers={"mcp-session-id": mine})
            rest = [line async for line in lines if line.startswith("data: ")]
        assert json.loads(rest[-1][6:])["result"]["content"][0]["text"] == "chose blue"


@pytest.mark.parametrize("how", ["notification", "hang up", "delete"])
async def test_a_call_of_a_session_is_cancelled(agent_runner: AgentRunner, site: Site, how: str) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    async with site() as client:
        session = await begun(client)
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                response = await client.post(**legacy("tools/call", 7, session, name="slow"))
                assert (response.status_code, response.content) == (202, b"")

            nursery.start_soon(post)
            await until(lambda: (agent_runner.config_dir / "started").exists())
            if how == "notification":
                await client.post(**legacy("notifications/cancelled", None, session, requestId=7))
            elif how == "delete":
                await client.delete("", headers={"mcp-session-id": session})
            else:
                nursery.cancel_scope.cancel()
        await until(lambda: len(at_work(agent_runner.root)) == 1)


async def test_sessions_are_bounded_and_the_longest_unused_goes_first(
    agent_runner: AgentRunner, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "MAX_SESSIONS", 2)
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        first, second = await begun(client), await begun(client)
        assert (await client.post(**legacy("ping", session=first))).status_code == 200
        third = await begun(client)
        statuses = [(await client.post(**legacy("ping", session=each))).status_code for each in (first, second, third)]
    assert statuses == [200, 404, 200]


async def test_a_session_that_nobody_uses_is_forgotten(
    agent_runner: AgentRunner, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "SESSION_TTL", -1.0)
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site() as client:
        first = await begun(client)
        await begun(client)
        assert (await client.post(**legacy("ping", session=first))).status_code == 404


# --- who and what is let in ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:80"}, 421),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:1"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "https://friend.example"}, 200),
        ({"accept": "application/json"}, 406),
        ({"accept": "*/*"}, 200),
        ({"content-type": "text/plain"}, 415),
    ],
)
async def test_web_pages_and_strange_requests_are_kept_out(
    agent_runner: AgentRunner, site: Site, headers: dict[str, str], status: int
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site(origins=("https://friend.example",)) as client:
        request = modern("tools/list")
        request["headers"] |= headers
        assert (await client.post(**request)).status_code == status


@pytest.mark.parametrize(
    ("shown", "status"),
    [(None, 401), ("Bearer wrong", 401), ("Basic sesame", 401), ("sesame", 401), ("Bearer sesame", 200)],
)
async def test_a_token_is_asked_for(agent_runner: AgentRunner, site: Site, shown: str | None, status: int) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site(token="sesame") as client:
        request = modern("tools/list")
        if shown is not None:
            request["headers"]["authorization"] = shown
        response = await client.post(**request)
    assert response.status_code == status
    assert ("www-authenticate" in response.headers) is (status == 401)


async def test_beyond_this_machine_nobody_is_served_without_a_token(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    with pytest.raises(UsageError, match=says("front.mcp_server.serving.serve_http")):
        await serve_http(agent_runner.root, read_agents(agent_runner.root)[0], host="0.0.0.0")


async def test_without_hypercorn_the_way_to_get_it_is_told(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    monkeypatch.setitem(sys.modules, "hypercorn.trio.tcp_server", None)
    with pytest.raises(ConfigError, match=says("front.mcp_server.serving.serve_http.2")):
        await serve_http(agent_runner.root, read_agents(agent_runner.root)[0])


async def test_an_address_that_is_taken_is_told(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=f"can't listen on 127.0.0.1:{port}: Address already in use; choose another port"
        ):
            await serve_http(agent_runner.root, read_agents(agent_runner.root)[0], port=port)


async def test_what_is_no_message_is_refused(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    json_body = {"content-type": "application/json"}
    async with site() as client:
        for body, code in ((b"{", -32700), (b"[]", -32600), (b"[1]", -32600), (b'{"a":1}', -32600), (b"", -32700)):
            response = await client.post("", content=body, headers=json_body)
            assert (response.status_code, response.json()["error"]["code"]) == (400, code)
        assert (await client.get("")).status_code == 405
        assert (await client.post("/elsewhere", json={})).status_code == 404


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65_536

    async with site() as client:
        try:
            response = await client.post("", content=endless(), headers={"content-type": "application/json"})
        except httpx.TransportError:  # it hung up while we were still talking
            return
    assert response.status_code == 413


async def test_a_client_that_never_reads_does_not_hold_up_the_end(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(f"start: a\nnodes: {{a: {{type: end, output: '{'{{initial_prompt}}' * 20}'}}}}", name="echo")
    async with site() as client:
        request = modern("tools/call", name="echo", arguments={"prompt": "x" * 1_000_000})
        body = json.dumps(request["json"]).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in {**request["headers"], **BOTH}.items())
        head += f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        stream = await trio.open_tcp_stream("127.0.0.1", client.base_url.port or 0)
        await stream.send_all(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        with trio.fail_after(SOON):
            assert await stream.receive_some(10) == b"HTTP/1.1 2"
    await stream.aclose()


async def test_runs_are_bounded_over_all_clients(agent_runner: AgentRunner, site: Site) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with site(options=ServiceOptions(max_runs=1)) as client:
        assert "inputRequests" in (await client.post(**modern("tools/call", name="asker"))).json()["result"]
        session = await begun(client)
        result = (await client.post(**legacy("tools/call", session=session, name="asker"))).json()["result"]
    assert result["isError"] is True


CONNECT = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # ... and settings, and CONNECT:
CONNECT += b"\x00\x00\x0c\x01\x05\x00\x00\x00\x01" + b"\x02\x07CONNECT\x41\x01a"


async def test_bytes_that_crash_the_http_below_us_cost_their_own_connection_only(
    agent_runner: AgentRunner, site: Site
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with site(token="secret") as client:
        stream = await trio.open_tcp_stream("127.0.0.1", client.base_url.port or 0)
        async with stream:
            await stream.send_all(CONNECT)
            with trio.fail_after(SOON):
                while await stream.receive_some():
                    pass
        answer = await client.post("", json={}, headers={"authorization": "Bearer secret"})
        assert answer.status_code == 400
