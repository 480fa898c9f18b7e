"""Cache points on Bedrock: where they stand, for which models, and what is read back of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callboard.actors.work.models.aws.bedrock import BedrockCodec
from callboard.protocol.chat import AssistantTurn, ChatRequest, TokenUsage, Tool, ToolCall, ToolTurn, UserTurn
from callboard.protocol.settings.model import Cache

HAIKU = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
ADD = Tool(name="add")
POINT = {"cachePoint": {"type": "default"}}
HOUR = {"cachePoint": {"type": "default", "ttl": "1h"}}
LONG = ChatRequest(
    system="Be kind.",
    messages=(
        UserTurn("one"),
        AssistantTurn("", (ToolCall(id="1", name="add"),)),
        ToolTurn(call="1", name="add", content="2"),
        AssistantTurn("said"),
        UserTurn("two"),
    ),
    tools=(ADD,),
)
SINGLE = ChatRequest(system="Be kind.", messages=(UserTurn("hello"),))


def sent(request: ChatRequest, model: str = HAIKU, cache: Cache = "auto") -> Any:
    return json.loads(BedrockCodec(None, cache=cache).encode(request, model, stream=False).body)


def marked(body: Any) -> list[str]:
    """Where cache points stand."""
    places = ["system"] if body.get("system", [{}])[-1].get("cachePoint") else []
    places += ["tools"] if "cachePoint" in body.get("toolConfig", {"tools": [{}]})["tools"][-1] else []
    return places + [f"{n}" for n, each in enumerate(body["messages"]) if "cachePoint" in each["content"][-1]]


def test_what_never_changes_and_two_ends_of_the_conversation_are_marked() -> None:
    body = sent(LONG)
    assert marked(body) == ["system", "2", "4"]
    assert body["system"] == [{"text": "Be kind."}, POINT]
    assert body["messages"][2]["content"] == [{"toolResult": {"toolUseId": "1", "content": [{"text": "2"}]}}, POINT]
    assert json.dumps(body).count("cachePoint") == 3  # four are allowed


def test_tools_are_marked_where_there_is_no_system_prompt() -> None:
    request = ChatRequest(messages=SINGLE.messages, tools=(ADD,))
    assert marked(sent(request)) == ["tools", "0"]
    assert marked(sent(request, "amazon.nova-pro-v1:0")) == ["0"]


def test_the_next_request_begins_with_what_was_marked_in_this_one() -> None:
    def plain(body: Any) -> Any:
        return [[block for block in each["content"] if "cachePoint" not in block] for each in body["messages"]]

    longer = ChatRequest(
        system=LONG.system, messages=(*LONG.messages, AssistantTurn("ok"), UserTurn("three")), tools=LONG.tools
    )
    before, after = sent(LONG), sent(longer)
    assert plain(after)[:5] == plain(before)
    assert marked(after) == ["system", "4", "6"]


@pytest.mark.parametrize(
    ("model", "marks"),
    [
        (HAIKU, True),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", True),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", False),
        ("anthropic.claude-3-haiku-20240307-v1:0", False),
        ("amazon.nova-lite-v1:0", True),
        ("global.amazon.nova-2-lite-v1:0", True),
        ("amazon.nova-sonic-v1:0", False),
        ("meta.llama3-1-8b-instruct-v1:0", False),
        ("arn:aws:bedrock:eu-central-1:1:application-inference-profile/x", False),
    ],
)
def test_auto_marks_for_models_that_are_known_to_cache(model: str, marks: bool) -> None:
    assert bool(marked(sent(LONG, model))) is marks
    assert marked(sent(LONG, model, "5m"))  # who asks for it knows
    assert marked(sent(LONG, model, "off")) == []


def test_a_single_question_is_marked_only_if_that_is_asked_for() -> None:
    assert marked(sent(SINGLE)) == []
    assert marked(sent(SINGLE, cache="5m")) == ["system", "0"]


@pytest.mark.parametrize(
    ("model", "point"),
    [
        (HAIKU, HOUR),
        ("anthropic.claude-sonnet-4-20250514-v1:0", POINT),
        ("amazon.nova-pro-v1:0", POINT),
        ("arn:aws:bedrock:eu-central-1:1:application-inference-profile/x", HOUR),
    ],
)
def test_an_hour_is_asked_of_models_that_have_it(model: str, point: Any) -> None:
    assert sent(SINGLE, model, "1h")["system"][-1] == point


def test_what_was_read_and_written_is_counted() -> None:
    usage = {
        "inputTokens": 10,
        "outputTokens": 5,
        "totalTokens": 1115,
        "cacheReadInputTokens": 1000,
        "cacheWriteInputTokens": 100,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 30}, {"ttl": "1h", "inputTokens": 70}],
    }
    body = {"output": {"message": {"content": [{"text": "x"}]}}, "stopReason": "end_turn", "usage": usage}
    reply = BedrockCodec(None).encode(SINGLE, HAIKU, stream=False).decode(json.dumps(body).encode())
    assert reply.usage == TokenUsage(
        input_tokens=1110, output_tokens=5, cached_tokens=1000, cache_write_tokens=100, cache_write_1h_tokens=70
    )
