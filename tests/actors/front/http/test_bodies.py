"""Bodies that are none: too slow, too deep, cut off, of the wrong kind; and what a retry is told."""

from __future__ import annotations

import json

import pytest
import trio
from support.http_agents import HELLO
from support.http_server import ApiServer

from callboard.actors.front.http import app
from callboard.actors.front.http.call import refusal
from callboard.protocol.errors import KnowledgeBusy, RateLimited, Saturated, ShuttingDown, TimedOut


async def test_a_body_that_does_not_come_to_its_end_is_told_so(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "BODY_WITHIN", 0.05)
    stream = await trio.open_tcp_stream("127.0.0.1", api_server.port)
    host, bearer = f"127.0.0.1:{api_server.port}", f"Bearer {api_server.token}"
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\n"
    async with stream:
        await stream.send_all(f'{head}transfer-encoding: chunked\r\n\r\n9\r\n{{"prompt"\r\n'.encode())
        said = b""
        with trio.fail_after(60):
            while piece := await stream.receive_some():
                said += piece
    assert said.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in said
    assert b'"request_timeout"' in said


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b'{"prompt": "x",}', "byte 15"),
        (b'{"prompt": "\xff"}', "utf-8"),
        (b'{"prompt": 7}', "$.prompt"),
        (b'{"prompt": "x", "files": [' + b"[" * 100_000, "$.files"),
        (b'{"prompt": ' + b"[" * 100_000, "$.prompt"),
    ],
)
async def test_what_is_wrong_with_a_body_is_said_with_its_place(api_server: ApiServer, body: bytes, word: str) -> None:
    response = await api_server.client.post("/v1/completions", content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "usage"
    assert word in error["message"]


@pytest.mark.parametrize("depth", [300, 900, 100_000])
async def test_a_value_that_is_nested_without_end_crashes_nothing(api_server: ApiServer, depth: int) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    deep = "[" * depth + "]" * depth
    ask = {"model": "graph/hello", "messages": [{"role": "user", "content": "x"}], "callboard": {"state": {"a": 0}}}
    response = await api_server.client.post(
        "/v1/chat/completions", content=json.dumps(ask).replace('"a": 0', f'"a": {deep}'), timeout=60
    )
    assert response.status_code in (200, 400), response.text


@pytest.mark.parametrize(
    ("error", "status", "after"),
    [
        (Saturated("full"), 503, "1"),
        (ShuttingDown("soon"), 503, "5"),
        (RateLimited("slowly", retry_after=7.2), 429, "8"),
        (TimedOut("late"), 504, None),
        (KnowledgeBusy("built"), 409, None),
    ],
)
def test_who_may_try_again_is_told_when(error: Exception, status: int, after: str | None) -> None:
    response = refusal(error, "r")  # type: ignore[arg-type] - each is one of ours
    assert response.status_code == status
    assert response.headers.get("retry-after") == after


async def test_a_request_with_a_time_of_its_own_ends_in_it(api_server: ApiServer) -> None:
    from support.fake_models import Reply

    api_server.agent_runner.models.script(Reply(text="late", hold=trio.Event()))
    error = await api_server.post("/v1/completions", {"prompt": "x", "timeout": 0.2}, 504)
    assert error["error"]["code"] == "timeout"
