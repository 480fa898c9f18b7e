"""OpenAI's chat completions: agents, graphs and models under one name each."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_models import Reply
from support.http_agents import HELLO, LOOP
from support.http_server import ApiServer


def asks(model: str, *texts: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return {"model": model, "messages": messages, **more}


async def test_an_agent_answers_like_a_model_and_knows_what_was_said(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.models.script("fine")
    reply = await api_server.post("/v1/chat/completions", asks("agent/clerk", "hi", "hello", "how are you?"))
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "fine", "refusal": None}
    assert reply["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert reply["callboard"]["status"] == "done"
    said = [message["content"] for message in api_server.agent_runner.models.requests[-1].json["messages"]]
    assert said[0].startswith("You are brief.")
    assert said[1:] == ["hi", "hello", "how are you?"]


async def test_a_model_alone_gets_the_system_prompt_and_the_temperature(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("ok")
    body = asks("fake:model", "hi", temperature=0.1)
    body["messages"].insert(0, {"role": "system", "content": "Be kind."})
    reply = await api_server.post("/v1/chat/completions", body)
    assert reply["choices"][0]["message"]["content"] == "ok"
    request = api_server.agent_runner.models.requests[-1]
    assert request.system == "Be kind."
    assert request.json["temperature"] == 0.1


async def test_a_stream_says_piece_by_piece_what_the_whole_would_say(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n')
    script = [Reply(text="Let me see.", calls=[("add", {})]), "It is three."]
    api_server.agent_runner.models.script(*script, *script)
    body = asks("agent/clerk", "1+2?")
    whole = await api_server.post("/v1/chat/completions", body)
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    events = [data for _, _, data in await api_server.events("POST", "/v1/chat/completions", body)]
    assert events.pop() == "[DONE]"
    usage = events.pop()
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 30
    said = "".join(each["choices"][0]["delta"].get("content", "") for each in events)
    assert said == whole["choices"][0]["message"]["content"]
    assert [each["choices"][0]["finish_reason"] for each in events][-2:] == [None, "stop"]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"


async def test_a_graph_says_what_comes_out_at_its_end_and_tells_its_nodes_beside(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    body = asks("graph/hello", "you", stream=True)
    events = [data for _, _, data in await api_server.events("POST", "/v1/chat/completions", body)][:-1]
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in events) == "hello you"
    beside = [each["callboard"]["event"] for each in events if "event" in each.get("callboard", {})]
    assert [(each["kind"], each["node"]) for each in beside] == [("node.entered", "a"), ("node.exited", "a")]


async def test_images_of_the_past_reach_the_model(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("a cat")
    image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    first = {"role": "user", "content": [{"type": "text", "text": "look"}, image]}
    messages = [first, {"role": "assistant", "content": "I do"}, {"role": "user", "content": "what is it?"}]
    await api_server.post("/v1/chat/completions", {"model": "fake:model", "messages": messages})
    assert "cat.png" in api_server.agent_runner.models.requests[-1].body.decode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (asks("agent/nobody", "x"), 404),
        (asks("graph/clerk", "x"), 404),
        (asks("nobody:nothing", "x"), 404),
        (asks("agent/clerk", "x", "y"), 400),
        (asks("agent/clerk"), 400),
        (asks("agent/clerk", "x", n=2), 400),
        (asks("agent/clerk", "x", tools=[{"type": "function"}]), 400),
        (asks("agent/clerk", "x", callboard={"surprise": 1}), 400),
        ({"model": "fake:model", "messages": [{"role": "user", "content": [{"type": "audio"}]}]}, 400),
    ],
)
async def test_what_can_not_be_had_is_refused(api_server: ApiServer, body: dict[str, Any], status: int) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    assert (await api_server.post("/v1/chat/completions", body, status))["error"]["message"]


@pytest.mark.parametrize("model", ["fake:model", "agent/clerk"])
async def test_what_a_model_thinks_is_no_part_of_the_answer(api_server: ApiServer, model: str) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.models.script(Reply(reasoning="Hm.", text="ok"), "<think>Hm.</think>ok")
    for _ in range(2):
        events = [
            each
            for _, _, each in await api_server.events("POST", "/v1/chat/completions", asks(model, "x", stream=True))
        ]
        said = [each["choices"][0]["delta"].get("content") for each in events[:-1]]
        assert "".join(text for text in said if text) == "ok"
        assert "Hm" not in str(events)


async def test_a_run_that_fails_ends_the_stream_with_an_error(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    events = await api_server.events("POST", "/v1/chat/completions", asks("fake:model", "x", stream=True))
    assert events[-1][2] == "[DONE]"
    assert events[-2][2]["error"]["code"] == "model"


USER = {"role": "user", "content": "hi"}
NULLS = dict.fromkeys(("max_tokens", "temperature", "stop", "tool_choice", "response_format", "top_p", "tools"))
HABITS: dict[str, dict[str, Any]] = {
    "content in parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
    "a developer": {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
    "no content": {"messages": [USER, {"role": "assistant", "content": None}, USER]},
    "nulls": {"messages": [USER], **NULLS},
    "unknown keys": {
        "messages": [USER],
        "tools": [],
        "user": "u",
        "seed": 1,
        "logit_bias": {},
        "metadata": {},
        "store": False,
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "reasoning_effort": "low",
        "n": 1,
    },
}


@pytest.mark.parametrize("body", HABITS.values(), ids=HABITS)
async def test_what_clients_of_openai_send_by_habit_is_taken(api_server: ApiServer, body: dict[str, Any]) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.models.script("hello")
    reply = await api_server.post("/v1/chat/completions", {"model": "agent/clerk", **body})
    assert reply["choices"][0]["message"]["content"] == "hello"
