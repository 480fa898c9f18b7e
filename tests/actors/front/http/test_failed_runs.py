"""A failing model over HTTP: every shape tells status and first cause of a run that went on over a failure."""

from __future__ import annotations

import pytest
from support.fake_models import Reply
from support.http_server import ApiServer

HAIKU = """
start: write
nodes:
  write: {type: llm, prompt: "{{initial_prompt}}", max_attempts: 1, state_updates: {poem: "{{output}}"}, next: done}
  done: {type: end, output: "{{poem}}"}
"""
CAUSE = "fake:model: the model is down (HTTP 503)"
OUTPUT = f"LLM node failed: {CAUSE}"


@pytest.fixture
def down(api_server: ApiServer) -> ApiServer:
    """A server with an agent whose model is down."""
    api_server.agent_runner.agent(HAIKU, name="haiku")
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=503, error="the model is down"))
    return api_server


async def test_a_run_is_failed_with_output_and_error(down: ApiServer) -> None:
    run = (await down.post("/v1/runs", {"target": "haiku", "prompt": "frogs"}, 201))["run"]
    followed = await down.events("GET", f"/v1/runs/{run}/events")
    assert followed[-1][1] == "run.failed"
    info = await down.get(f"/v1/runs/{run}")
    assert (info["status"], info["exit_code"], info["output"]) == ("failed", 6, OUTPUT)
    assert info["error"] == {"code": "upstream", "message": CAUSE, "node": "write"}
    events = (await down.get(f"/v1/runs/{run}/events", params={"limit": 1000}))["events"]
    assert events[-1]["kind"] == "run.failed"
    assert events[-1]["data"]["outcome"]["failures"] == [info["error"]]


async def test_a_chat_completion_is_an_error_that_names_the_cause(down: ApiServer) -> None:
    body = {"model": "graph/haiku", "messages": [{"role": "user", "content": "frogs"}]}
    error = (await down.post("/v1/chat/completions", body, 502))["error"]
    assert (error["code"], error["message"]) == ("upstream", CAUSE)
    told = [data for _, _, data in await down.events("POST", "/v1/chat/completions", {**body, "stream": True})]
    errors = [each["error"] for each in told if isinstance(each, dict) and "error" in each]
    assert [(each["code"], each["message"]) for each in errors] == [("upstream", CAUSE)]
    said = [each["choices"][0] for each in told if isinstance(each, dict) and each.get("choices")]
    assert "".join(choice["delta"].get("content", "") for choice in said) == OUTPUT
    assert {choice["finish_reason"] for choice in said} == {None}


async def test_a_completion_is_an_error_that_names_the_cause(down: ApiServer) -> None:
    body = {"prompt": "frogs", "agent": "haiku"}
    error = (await down.post("/v1/completions", body, 502))["error"]
    assert (error["code"], error["message"]) == ("upstream", CAUSE)
    told = [(name, data) for _, name, data in await down.events("POST", "/v1/completions", {**body, "stream": True})]
    assert ("error", {"code": "upstream", "message": CAUSE}) in told
    name, last = told[-1]
    assert (name, last["outcome"]["status"], last["outcome"]["final_message"]) == ("finished", "failed", OUTPUT)


async def test_an_ag_ui_stream_ends_with_run_error_behind_the_output(down: ApiServer) -> None:
    messages = [{"id": "m1", "role": "user", "content": "frogs"}]
    body = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": [], "state": {}}
    asked = {**body, "forwardedProps": {}}
    told = [data for _, _, data in await down.events("POST", "/agui", asked, params={"target": "graph/haiku"})]
    assert (told[-1]["type"], told[-1]["code"], told[-1]["message"]) == ("RUN_ERROR", "upstream", CAUSE)
    assert [each["delta"] for each in told if each["type"] == "TEXT_MESSAGE_CONTENT"] == [OUTPUT]
    assert "RUN_FINISHED" not in [each["type"] for each in told]


async def test_the_metrics_count_it_as_failed(down: ApiServer) -> None:
    body = {"model": "graph/haiku", "messages": [{"role": "user", "content": "frogs"}]}
    await down.post("/v1/chat/completions", body, 502)
    lines = (await down.client.get("/metrics")).text.splitlines()
    counts = [line for line in lines if line.startswith("runs_total{")]
    assert counts == ['runs_total{status="failed"} 1.0']
