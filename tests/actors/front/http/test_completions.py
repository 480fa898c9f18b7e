"""`/v1/completions`: what comes back, as JSON and as a stream; and what becomes of a run whose client leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from support.descendants import is_alive
from support.fake_models import Reply
from support.http_agents import HELLO, LOOP
from support.http_server import ApiServer, Serve
from support.waiting import jump_when, until

NAP = '# @cmd Sleeps.\nnap() { echo $$ > "$PIDS/nap"; sleep 60; }\n'
ADD = '# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n'


def team(api_server: ApiServer, tools: str = ADD, name: str = "clerk") -> Path:
    home = api_server.agent_runner.plain(LOOP, name=name)
    (home / "tools.sh").write_text(tools)
    return home


async def test_a_prompt_to_an_agent_is_answered_with_all_that_came_of_it(api_server: ApiServer) -> None:
    team(api_server)
    api_server.agent_runner.models.script(Reply(text="Let me see.", calls=[("add", {})]), "It is three.")
    reply = await api_server.post("/v1/completions", {"prompt": "1+2?", "agent": "clerk"})
    (call,) = reply["tool_calls"]
    assert call["name"] == "add"
    assert call["result"] == '{"output":"3"}'
    assert call["is_error"] is False
    assert reply["final_message"] == "Let me see.\nIt is three."
    assert reply["session_id"] is None
    assert reply["turns"] == 2
    assert reply["usage"]["input_tokens"] == 20
    assert (await api_server.get(f"/v1/runs/{reply['run']}"))["status"] == "done"


async def test_a_prompt_to_nobody_is_answered_by_the_model_itself(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("ok")
    reply = await api_server.post("/v1/completions", {"prompt": "hi", "temperature": 0.5})
    assert reply["final_message"] == "ok"
    request = api_server.agent_runner.models.requests[-1]
    assert request.json["temperature"] == 0.5
    assert request.offered == []


async def test_case_106_a_stream_begins_with_started_and_ends_with_finished(api_server: ApiServer) -> None:
    team(api_server)
    api_server.agent_runner.models.script(Reply(text="Let me see.", calls=[("add", {})]), "It is three.")
    events = await api_server.events("POST", "/v1/completions", {"prompt": "1+2?", "agent": "clerk", "stream": True})
    names = [name for _, name, _ in events]
    assert names[0] == "started"
    assert names[-1] == "finished"
    assert [name for name in names if name != "assistant_delta"] == [
        "started",
        "assistant_message_end",
        "tool_call",
        "tool_result",
        "assistant_message_end",
        "finished",
    ]
    assert "".join(data["text"] for _, name, data in events if name == "assistant_delta") == "Let me see.It is three."
    assert events[-1][2]["outcome"]["turns"] == 2
    numbers = [int(id) for id, _, _ in events if id]
    assert numbers == sorted(numbers)


async def test_what_accept_says_is_as_good_as_stream(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    events = await api_server.events("POST", "/v1/completions", {"prompt": "you", "agent": "hello"})
    assert [(name, data.get("text")) for _, name, data in events][1] == ("assistant_delta", "hello you")


@pytest.mark.parametrize("stream", [False, True])
async def test_case_106_a_client_that_leaves_ends_its_run_and_its_tools(
    api_server: ApiServer, stream: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path))
    team(api_server, NAP)
    api_server.agent_runner.models.script(Reply(calls=[("nap", {})]))
    body = {"prompt": "sleep", "agent": "clerk", "stream": stream}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask, api_server, body)
        await until(lambda: (tmp_path / "nap").exists() and (tmp_path / "nap").read_text().strip())
        pid = int((tmp_path / "nap").read_text())
        assert is_alive(pid)
        nursery.cancel_scope.cancel()
    await until(lambda: not is_alive(pid))
    (run,) = (await api_server.get("/v1/runs"))["runs"]
    await _status(api_server, run["run"], "cancelled")


async def _ask(api_server: ApiServer, body: dict[str, object]) -> None:
    async with api_server.client.stream("POST", "/v1/completions", json=body) as response:
        async for _ in response.aiter_lines():
            pass


async def _status(api_server: ApiServer, run: str, wanted: str) -> None:
    with trio.fail_after(60):
        while (await api_server.get(f"/v1/runs/{run}"))["status"] != wanted:
            await trio.sleep(0.01)


async def test_a_request_that_takes_too_long_ends_its_run_too(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path))
    mock_clock.rate = 1.0
    async with serve(api={"request_timeout_seconds": 60}) as api_server:
        team(api_server, NAP)
        api_server.agent_runner.models.script(Reply(calls=[("nap", {})]))
        nursery.start_soon(jump_when, mock_clock, (tmp_path / "nap").exists, 60)
        error = await api_server.post("/v1/completions", {"prompt": "sleep", "agent": "clerk"}, 504)
        assert error["error"]["code"] == "timeout"
        (run,) = (await api_server.get("/v1/runs"))["runs"]
        await _status(api_server, run["run"], "cancelled")


async def test_a_run_that_fails_is_the_requests_error(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    error = await api_server.post("/v1/completions", {"prompt": "hi"}, 502)
    assert error["error"]["code"] == "model"
    assert "no such thing" in error["error"]["message"]


async def test_a_stream_tells_that_its_run_has_failed(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    events = await api_server.events("POST", "/v1/completions", {"prompt": "hi", "stream": True})
    assert [name for _, name, _ in events][-2:] == ["error", "finished"]
    assert events[-2][2]["code"] == "model"
    assert events[-1][2]["outcome"]["status"] == "failed"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"prompt": "x", "agent": "nobody"}, 400, "usage"),
        ({"prompt": "x", "role": "explain"}, 400, "usage"),
        ({"prompt": "x", "role": "../config"}, 400, "usage"),
        ({"prompt": "x", "role": "code#x"}, 400, "usage"),
        ({"prompt": "x", "role": "code", "agent": "coder"}, 400, "usage"),
        ({"prompt": "x", "temperature": 9}, 400, "usage"),
        ({"prompt": "x", "surprise": 1}, 400, "usage"),
        ({}, 400, "usage"),
        ({"prompt": "x", "files": [{}]}, 400, "usage"),
        ({"prompt": "x", "files": [{"url": "file:///etc/passwd"}]}, 400, "usage"),
        ({"prompt": "x", "model": "nobody:nothing"}, 400, "usage"),
    ],
)
async def test_what_can_not_be_asked_is_refused(api_server: ApiServer, body: object, status: int, code: str) -> None:
    error = (await api_server.post("/v1/completions", body, status))["error"]
    assert error["code"] == code
    assert error["message"]
    assert error["request_id"]


async def test_files_are_put_before_the_prompt(api_server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the sky is green")
    api_server.agent_runner.models.script("ok")
    await api_server.post("/v1/completions", {"prompt": "colour?", "files": [{"path": str(tmp_path / "notes.txt")}]})
    assert "the sky is green" in api_server.agent_runner.models.requests[-1].prompt


async def test_requests_side_by_side_have_nothing_in_common(api_server: ApiServer) -> None:
    team(api_server)
    api_server.agent_runner.models.answer_with(
        lambda request: "got " + request.prompt if request.results else Reply(calls=[("add", {})])
    )
    replies: list[dict[str, object]] = []

    async def ask(number: int) -> None:
        replies.append(await api_server.post("/v1/completions", {"prompt": f"p{number}", "agent": "clerk"}))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(ask, number)
    assert sorted(str(reply["final_message"]) for reply in replies) == [f"got p{number}" for number in range(10)]
    assert all(len(reply["tool_calls"]) == 1 for reply in replies)


async def test_curl_says_that_json_is_a_form(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    headers = {"content-type": "application/x-www-form-urlencoded"}
    body = b'{"prompt":"you","agent":"hello"}'
    response = await api_server.client.post("/v1/completions", content=body, headers=headers)
    assert response.json()["final_message"] == "hello you"
    response = await api_server.client.post("/v1/completions", content=body, headers={"content-type": "text/xml"})
    assert response.status_code == 415


TODO: list[tuple[str, object]] = [("todo__init", {"goal": "g"}), ("todo__add", {"task": "one"})]


async def test_a_request_can_have_an_agent_go_on_by_itself_or_not(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.plain(LOOP + "auto_continue: true\n", name="keen")
    ask = {"prompt": "work", "agent": "clerk"}
    api_server.agent_runner.models.script(Reply(calls=TODO), "begun", Reply(calls=[("todo__done", {"id": 1})]), "done")
    reply = await api_server.post("/v1/completions", {**ask, "auto_continue": True})
    assert reply["auto_continued"] == 1
    for more in ({**ask}, {**ask, "auto_continue": False}, {**ask, "agent": "keen", "auto_continue": False}):
        api_server.agent_runner.models.script("ok")
        await api_server.post("/v1/completions", more)
        assert "todo__add" not in api_server.agent_runner.models.requests[-1].offered
    api_server.agent_runner.models.script("ok")
    await api_server.post("/v1/completions", {**ask, "agent": "keen"})
    assert "todo__add" in api_server.agent_runner.models.requests[-1].offered


async def test_a_request_tells_an_agent_its_temperature(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP + "temperature: 0.9\n", name="clerk")
    for more, wanted in (({}, 0.9), ({"temperature": 0.0}, 0.0)):
        api_server.agent_runner.models.script("ok")
        await api_server.post("/v1/completions", {"prompt": "x", "agent": "clerk", **more})
        assert api_server.agent_runner.models.requests[-1].json["temperature"] == wanted


# --- OpenAI's old completions ---


async def test_a_model_and_a_prompt_have_openais_fields_beside_ours(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("ok")
    body = {"model": "fake:model", "prompt": ["hi "], "max_tokens": 7, "stop": ["."], "echo": True, "seed": 1, "n": 1}
    reply = await api_server.post("/v1/completions", body)
    assert (reply["object"], reply["model"], reply["id"]) == ("text_completion", "fake:model", f"cmpl-{reply['run']}")
    assert reply["choices"] == [{"text": "hi ok", "index": 0, "finish_reason": "stop", "logprobs": None}]
    assert reply["final_message"] == "ok"
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["total_tokens"], reply["usage"]["input_tokens"]) == (
        10, 15, 10,
    )  # fmt: skip
    request = api_server.agent_runner.models.requests[-1].json
    assert (request["max_tokens"], request["stop"]) == (7, ["."])


async def test_openais_stream_has_chunks_and_ends_with_done(api_server: ApiServer) -> None:
    team(api_server)
    api_server.agent_runner.models.script(Reply(text="Let me see.", calls=[("add", {})]), "It is three.")
    body = {"model": "agent/clerk", "prompt": "1+2?", "stream": True, "stream_options": {"include_usage": True}}
    events = await api_server.events("POST", "/v1/completions", body, headers={"accept": "application/json"})
    *chunks, last, usage, done = (data for _, name, data in events if not name)
    assert len(chunks) + 3 == len(events)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Let me see.\nIt is three."
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["total_tokens"], done) == ([], 30, "[DONE]")


async def test_a_graph_answers_an_old_completion(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    reply = await api_server.post("/v1/completions", {"model": "graph/hello", "prompt": "you"})
    assert reply["choices"][0]["text"] == "hello you"


async def test_an_old_completion_that_fails_says_so(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    body = {"model": "fake:model", "prompt": "hi"}
    assert (await api_server.post("/v1/completions", body, 502))["error"]["code"] == "model"
    headers = {"accept": "*/*"}
    events = await api_server.events("POST", "/v1/completions", {**body, "stream": True}, headers=headers)
    assert [data for _, _, data in events][-2]["error"]["code"] == "model"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "agent/nobody"}, 404, None),
        ({"model": "fake:model", "n": 2}, 400, "n"),
        ({"model": "fake:model", "logprobs": 3}, 400, "logprobs"),
        ({"model": "fake:model", "prompt": ["a", "b"]}, 400, "prompt"),
        ({"agent": "clerk", "echo": True}, 400, None),
    ],
)
async def test_what_openais_old_completions_can_not_have_is_refused(
    api_server: ApiServer, fields: dict[str, object], status: int, param: str | None
) -> None:
    team(api_server)
    error = (await api_server.post("/v1/completions", {"prompt": "x", **fields}, status))["error"]
    assert error["param"] == param
