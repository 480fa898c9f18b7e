"""What the next request has in common with this one is cached, as the providers' own rules count it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request
from support.prompt_caches import AnthropicCache, OpenAiCache

import callboard
from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.protocol.chat import AssistantTurn, ChatRequest, Tool, ToolCall, ToolTurn, UserTurn
from callboard.protocol.settings import Settings, read_settings
from callboard.protocol.settings.model import Cache

TURNS, TOOLS = 40, 12
RESULT = "The order is on its way; it has left the warehouse this morning and is expected tomorrow. " * 6
GUIDE = "You answer questions about orders. Look them up before you answer, and be brief. " * 60


def tool(number: int) -> Callable[[int], str]:
    def look(order: int) -> str:
        return f"{order}: {RESULT}"

    look.__name__ = f"look_{number}"
    look.__doc__ = f"Looks an order up in warehouse {number}."
    return look


def next_reply(request: Request) -> tuple[str, Any]:
    """Another call, until the conversation has enough turns: text and call."""
    said = sum(message["role"] == "assistant" for message in request.json["messages"])
    if said == TURNS - 1:
        return "All are on their way.", None
    return "", {"id": f"call_{said}", "name": f"look_{said % TOOLS}", "arguments": {"order": said}}


def anthropic(cache: AnthropicCache) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        text, call = next_reply(request)
        content: list[Any] = [{"type": "text", "text": text}] if text else []
        if "thinking" in request.json:
            content.insert(0, {"type": "thinking", "thinking": "I look. " * 30, "signature": f"sig{text}"})
        if call is not None:
            content.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]})
        stop = "end_turn" if call is None else "tool_use"
        body = {"content": content, "stop_reason": stop, "usage": cache.usage(request.json)}
        return Reply(raw=json.dumps(body).encode())

    return answer


def openai(cache: OpenAiCache) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        text, call = next_reply(request)
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if call is not None:
            function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
            message["tool_calls"] = [{"id": call["id"], "type": "function", "function": function}]
        stop = "stop" if call is None else "tool_calls"
        body = {
            "choices": [{"index": 0, "message": message, "finish_reason": stop}],
            "usage": cache.usage(request.json),
        }
        return Reply(raw=json.dumps(body).encode())

    return answer


def responses(cache: OpenAiCache) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        said = sum(item.get("type") == "function_call" for item in request.json["input"])
        items: list[Any] = [{"type": "reasoning", "id": f"rs_{said}", "summary": [], "encrypted_content": "gAAA" * 60}]
        if said == TURNS - 1:
            items.append({"type": "message", "content": [{"type": "output_text", "text": "All are on their way."}]})
        else:
            call = {"call_id": f"call_{said}", "name": f"look_{said % TOOLS}", "arguments": json.dumps({"order": said})}
            items.append({"type": "function_call", **call})
        counts = cache.usage(request.json)
        usage = {"input_tokens": counts["prompt_tokens"], "input_tokens_details": counts["prompt_tokens_details"]}
        return Reply(raw=json.dumps({"status": "completed", "output": items, "usage": usage}).encode())

    return answer


async def conversation(server: FakeModels, directory: Path, type: str, **settings: Any) -> callboard.Outcome:
    clerk = callboard.Agent(name="clerk", instructions=GUIDE, can_ask_user=False)
    config = server.config_dir(directory, type=type)
    text = json.loads((config / "config.yaml").read_text())
    (config / "config.yaml").write_text(json.dumps({**text, "stream": False, **settings}))
    tools = [tool(number) for number in reversed(range(TOOLS))]
    outcome = await callboard.run(clerk, "Where are my orders?", tools=tools, config_dir=config)
    assert (outcome.status, outcome.output) == ("done", "All are on their way."), outcome.error
    assert outcome.turns == TURNS
    return outcome


async def test_forty_turns_with_twelve_tools_are_read_from_anthropics_cache(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    cache = AnthropicCache()
    fake_model.answer_with(anthropic(cache))
    outcome = await conversation(fake_model, tmp_path, "claude")
    counts = cache.counts
    assert counts.read / counts.all >= 0.85
    assert counts.fresh + 1.25 * counts.written + 0.1 * counts.read <= 0.35 * counts.all
    (usage,) = outcome.usage.values()
    assert usage.input_tokens == counts.all
    print(f"{counts.read / counts.all:.1%} read, {counts.written / counts.all:.1%} written")


async def test_forty_turns_with_twelve_tools_are_read_from_openais_cache(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = OpenAiCache()
    fake_model.answer_with(openai(cache))
    monkeypatch.setattr("callboard.actors.work.models.providers.OPENAI", fake_model.openai_base)
    await conversation(fake_model, tmp_path, "openai")
    counts = cache.counts
    assert counts.read / counts.all >= 0.85
    assert counts.fresh + 0.1 * counts.read <= 0.35 * counts.all, "at the prices of gpt-5"
    print(f"{counts.read / counts.all:.1%} read")
    assert len({request.json["prompt_cache_key"] for request in fake_model.requests}) == 1


async def test_a_conversation_of_the_responses_api_that_thinks_is_read_from_the_cache(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = OpenAiCache()
    fake_model.answer_with(responses(cache))
    monkeypatch.setattr("callboard.actors.work.models.providers.OPENAI", fake_model.openai_base)
    await conversation(fake_model, tmp_path, "openai", model="fake:gpt-5.5", reasoning_effort="low")
    counts = cache.counts
    assert counts.read / counts.all >= 0.85
    assert {request.path for request in fake_model.requests} == {"/v1/responses"}
    assert len({request.json["prompt_cache_key"] for request in fake_model.requests}) == 1
    print(f"{counts.read / counts.all:.1%} read")


async def test_thinking_that_is_kept_is_read_from_anthropics_cache(fake_model: FakeModels, tmp_path: Path) -> None:
    cache = AnthropicCache()
    fake_model.answer_with(anthropic(cache))
    await conversation(fake_model, tmp_path, "claude", model="fake:claude-haiku-4-5", reasoning_effort="low")
    counts = cache.counts
    assert counts.read / counts.all >= 0.85
    said = [each["content"] for each in fake_model.requests[-1].json["messages"] if each["role"] == "assistant"]
    assert [content[0]["type"] for content in said] == ["thinking"] * (TURNS - 1)
    print(f"{counts.read / counts.all:.1%} read, {counts.written / counts.all:.1%} written")


async def test_a_cache_that_is_off_marks_nothing_and_reads_nothing(fake_model: FakeModels, tmp_path: Path) -> None:
    cache = AnthropicCache()
    fake_model.answer_with(anthropic(cache))
    await conversation(fake_model, tmp_path, "claude", cache="off")
    assert cache.counts.read == cache.counts.written == 0


# --- what is marked ---------------------------------------------------------------------------------------

LOOK = Tool(name="look", description="Looks.", parameters={"type": "object"})
TALK = (
    UserTurn("where?"),
    AssistantTurn(tool_calls=(ToolCall(id="1", name="look"), ToolCall(id="2", name="look"))),
    ToolTurn(call="1", name="look", content="here"),
    ToolTurn(call="2", name="look", content=""),
)


def sent(request: ChatRequest, cache: Cache = "auto") -> Any:
    return json.loads(AnthropicCodec(cache=cache).encode(request, "m", stream=False).body)


def marks(body: Any) -> list[str]:
    """Where blocks are marked."""
    found = [f"tool {each['name']}" for each in body.get("tools", []) if "cache_control" in each]
    if isinstance(body.get("system"), list):
        found += ["system" for block in body["system"] if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        if isinstance(message["content"], list):
            found += [f"message {number}" for block in message["content"] if "cache_control" in block]
    return found


def test_the_system_prompt_and_the_ends_of_this_and_the_last_request_are_marked() -> None:
    assert marks(sent(ChatRequest(messages=TALK, system="Help.", tools=(LOOK,)))) == [
        "system",
        "message 0",
        "message 2",
    ]
    assert marks(sent(ChatRequest(messages=TALK, tools=(LOOK,)))) == ["tool look", "message 0", "message 2"]


def test_a_single_question_that_nothing_follows_is_not_cached() -> None:
    question = ChatRequest(messages=(UserTurn("where?"),), system="Help.")
    assert marks(sent(question)) == []
    assert sent(question)["system"] == "Help."
    assert marks(sent(question, "5m")) == ["system", "message 0"]


def test_it_is_cached_for_as_long_as_the_settings_say() -> None:
    body = sent(ChatRequest(messages=TALK, system="Help."), "1h")
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    body = sent(ChatRequest(messages=TALK, system="Help."), "5m")
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}


def test_only_openai_itself_gets_its_key() -> None:
    request = ChatRequest(messages=TALK, system="Help.", tools=(LOOK,))
    own = json.loads(OpenAiCodec(own=True).encode(request, "m", stream=False).body)
    other = json.loads(OpenAiCodec(own=False).encode(request, "m", stream=False).body)
    assert own["prompt_cache_key"]
    assert "prompt_cache_key" not in other


@pytest.mark.parametrize(("text", "wanted"), [("off", "off"), ("1h", "1h"), ("", "auto")])
def test_off_is_no_boolean_here(text: str, wanted: str) -> None:
    settings, problems = read_settings(f"cache: {text}\n" if text else "", "config.yaml", {})
    assert problems == []
    assert isinstance(settings, Settings)
    assert settings.cache == wanted
