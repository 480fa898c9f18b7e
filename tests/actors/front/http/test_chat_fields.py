"""The fields of a chat completion: honoured, left alone, or refused in words."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.fake_models import Reply
from support.http_agents import HELLO, LOOP
from support.http_server import ApiServer

PATH = "/v1/chat/completions"
DOT = base64.b64encode(b"\x89PNG dot").decode()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def asks(model: str = "fake:model", content: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


def shows(url: str, text: str = "what is it?") -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]


@pytest.mark.parametrize("model", ["fake:model", "agent/clerk"])
async def test_sampling_is_the_requests_for_models_and_for_agents(api_server: ApiServer, model: str) -> None:
    api_server.agent_runner.plain(LOOP + "temperature: 0.9\n", name="clerk")
    api_server.agent_runner.models.script("ok")
    await api_server.post(PATH, asks(model, temperature=0.1, top_p=0.5, max_completion_tokens=77, stop="END"))
    sent = api_server.agent_runner.models.requests[-1].json
    assert (sent["temperature"], sent["top_p"], sent["stop"]) == (0.1, 0.5, ["END"])
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))


async def test_an_agents_own_sampling_holds_where_the_request_says_nothing(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP + "temperature: 0.9\n", name="clerk")
    api_server.agent_runner.models.script("ok")
    await api_server.post(PATH, asks("agent/clerk"))
    assert api_server.agent_runner.models.requests[-1].json["temperature"] == 0.9


async def test_an_answer_can_be_asked_to_fit_a_schema(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script('{"a": 1}', "{}", "hi")
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA, "strict": True}}
    await api_server.post(PATH, asks(response_format=wanted))
    assert api_server.agent_runner.models.requests[-1].json["response_format"]["json_schema"]["schema"] == SCHEMA
    await api_server.post(PATH, asks(response_format={"type": "json_object"}))
    assert api_server.agent_runner.models.requests[-1].json["response_format"]["json_schema"]["schema"] == {
        "type": "object"
    }
    await api_server.post(PATH, asks(response_format={"type": "text"}))
    assert "response_format" not in api_server.agent_runner.models.requests[-1].json


@pytest.mark.parametrize("model", ["fake:model", "agent/clerk"])
async def test_how_much_a_model_thinks_is_for_the_caller_to_say(api_server: ApiServer, model: str) -> None:
    api_server.agent_runner.plain(f"{LOOP}\nreasoning_effort: low", name="clerk")
    api_server.agent_runner.models.script(Reply(reasoning="Hm.", text="ok"))
    reply = await api_server.post(PATH, asks(model, reasoning_effort="high"))
    assert api_server.agent_runner.models.requests[-1].json["reasoning_effort"] == "high"
    assert reply["choices"][0]["message"]["content"] == "ok"
    await api_server.post(PATH, asks(model, reasoning_effort="much"), 400)


async def test_what_changes_nothing_is_taken_and_left_alone(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("ok")
    more = {"seed": 7, "user": "u", "metadata": {"a": "b"}, "store": False, "n": 1}
    more |= {"logit_bias": {}, "presence_penalty": 0.5, "service_tier": "auto", "logprobs": False, "stop": None}
    await api_server.post(PATH, asks(**more))
    assert not {"seed", "user", "metadata"} & set(api_server.agent_runner.models.requests[-1].json)


@pytest.mark.parametrize("model", ["fake:model", "agent/clerk"])
async def test_an_image_by_value_is_shown_to_the_model(api_server: ApiServer, model: str) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.models.script("a dot")
    url = f"data:image/png;base64,{DOT}"
    reply = await api_server.post(PATH, asks(model, shows(url)))
    assert reply["choices"][0]["message"]["content"] == "a dot"
    words, image = api_server.agent_runner.models.requests[-1].json["messages"][-1]["content"]
    assert words["text"] == "what is it?"
    assert image["image_url"]["url"] == url


async def test_an_image_by_its_address_is_passed_on_and_not_fetched(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("a cat")
    await api_server.post(PATH, asks(content=shows("https://example.com/cat.png")[1:]))
    (image,) = api_server.agent_runner.models.requests[-1].json["messages"][-1]["content"]
    assert image["image_url"]["url"] == "https://example.com/cat.png"


async def test_a_reply_that_was_cut_off_says_so(api_server: ApiServer) -> None:
    raw = b'data: {"choices": [{"index": 0, "delta": {"content": "I am"}, "finish_reason": "length"}]}\n\n'
    api_server.agent_runner.models.script(Reply(raw=raw + b"data: [DONE]\n\n"))
    reply = await api_server.post(PATH, asks(max_tokens=2))
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (asks(n=2), "n"),
        (asks(logprobs=True), "logprobs"),
        (asks(temperature=3), "temperature"),
        (asks(max_tokens=0), "max_tokens"),
        (asks(stop=["a"] * 17), "stop"),
        (asks(response_format={"type": "json_schema"}), "response_format"),
        (asks(response_format={"type": "xml"}), "response_format"),
        (asks(content=shows("file:///etc/passwd")), "data:image"),
        (asks(content=shows("data:text/html;base64,aGk=")), "data:image"),
        (asks(content=shows("data:image/png;base64,!!!")), "base64"),
        (asks(content=[{"type": "input_audio", "input_audio": {}}]), "input_audio"),
        (asks("graph/hello", shows(f"data:image/png;base64,{DOT}")), "graph"),
        ({"model": "fake:model", "messages": [{"role": "function", "name": "a", "content": "b"}]}, "role"),
        ({"model": "fake:model", "messages": [{"role": "system", "content": "b"}]}, "messages"),
    ],
)
@pytest.mark.sample(5)
async def test_what_can_not_be_had_is_refused_by_its_name(
    api_server: ApiServer, body: dict[str, Any], word: str
) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    error = (await api_server.post(PATH, body, 400))["error"]
    assert error["code"] == "usage"
    assert word in error["message"]
