"""Each provider is told in its own words how much to think, and gets back what was thought, as its documents say.

The shapes are those of https://platform.claude.com/docs/en/build-with-claude/thinking-tool-workflows,
https://api-docs.deepseek.com/guides/thinking_mode, https://openrouter.ai/docs/use-cases/reasoning-tokens,
https://ai.google.dev/gemini-api/docs/thought-signatures, https://docs.ollama.com/capabilities/thinking,
https://docs.cohere.com/docs/reasoning and the service model of botocore.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.fake_models import FakeModels, Reply
from support.messages import says

import callboard
from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.aws.bedrock import BedrockCodec
from callboard.actors.work.models.codec import Codec
from callboard.actors.work.models.cohere import CohereCodec
from callboard.actors.work.models.gemini import GeminiCodec
from callboard.actors.work.models.ollama import OllamaCodec
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    Thought,
    Tool,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import ModelError

HI = (UserTurn("hi"),)
LOOK = Tool(name="look", description="Looks.")
SCHEMA = {"type": "object", "properties": {}}


def sent(codec: Codec, name: str = "m", **request: Any) -> Any:
    asked = ChatRequest(**{"model": "c:m", "messages": HI} | request)
    return json.loads(codec.encode(asked, name, stream=False).body)


def answered(codec: Codec, *bodies: Any, model: str = "m", stream: bool = False) -> ChatReply:
    """The reply in such an answer, as the gateway hands it on."""
    outgoing = codec.encode(ChatRequest(model="c:m", messages=HI), model, stream=stream)
    if not stream:
        reply = outgoing.decode(json.dumps(bodies[0]).encode())
    else:
        reader = outgoing.reader()
        for body in bodies:
            list(reader.feed(f"data: {json.dumps(body)}\n\n".encode()))
        reply = reader.finish()
    return msgspec.structs.replace(reply, model="c:m")


def back(codec: Codec, reply: ChatReply, model: str = "m") -> Any:
    """The message in which the next request says it again; to the same model, and to another of the client."""
    results = [ToolTurn(call=call.id, name=call.name, content="done") for call in reply.tool_calls]
    key = "contents" if isinstance(codec, GeminiCodec) else "messages"
    talk = (*HI, reply.turn(), *results)
    same = sent(codec, model, messages=talk)[key][1]
    other = sent(codec, model, messages=talk, model="c:other")[key][1]
    return same, other


# --- how much ---------------------------------------------------------------------------------------------


def test_anthropic() -> None:
    codec = AnthropicCodec()
    body = sent(codec, "claude-haiku-4-5", reasoning_effort="low", temperature=0.2, top_p=0.9)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert body["max_tokens"] == 4096 + 2048
    assert body.keys().isdisjoint({"temperature", "top_p", "output_config"})
    body = sent(codec, "claude-opus-4-8", reasoning_effort="xhigh")
    assert (body["thinking"]["type"], body["output_config"]) == ("adaptive", {"effort": "xhigh"})
    assert sent(codec, "claude-haiku-4-5", temperature=0.2)["temperature"] == 0.2
    assert "thinking" not in sent(codec, "claude-haiku-4-5")
    assert sent(codec, "claude-haiku-4-5", max_tokens=100)["max_tokens"] == 100


def test_a_schema_is_left_to_the_prompt_of_a_claude_that_thinks() -> None:
    codec = AnthropicCodec()
    assert "tools" not in sent(codec, "claude-haiku-4-5", response_schema=SCHEMA, reasoning_effort="low")
    body = sent(codec, "claude-sonnet-5", response_schema=SCHEMA)
    assert (body["tool_choice"]["type"], body["thinking"]) == ("tool", {"type": "disabled"})
    assert "tools" not in sent(codec, "claude-fable-5", response_schema=SCHEMA), "can't be forced"


def test_a_claude_that_can_not_be_forced_has_nothing_else_to_choose() -> None:
    tools = (LOOK, Tool(name="other"))
    body = sent(AnthropicCodec(), "claude-opus-5-5", tools=tools, tool_choice="look")
    assert ([tool["name"] for tool in body["tools"]], "tool_choice" in body) == (["look"], False)
    body = sent(AnthropicCodec(), "claude-opus-5-5", tools=tools, tool_choice="required")
    assert (len(body["tools"]), "tool_choice" in body) == (2, False)


def test_openai() -> None:
    codec = OpenAiCodec(own=True)
    body = sent(codec, "gpt-5", reasoning_effort="high", temperature=0.2)
    assert body["reasoning_effort"] == "high"
    assert "temperature" not in body
    assert sent(codec, "gpt-5", thinking_budget=3000)["reasoning_effort"] == "low"
    assert sent(codec, "gpt-4o", temperature=0.2) | {"temperature": 0.2} == sent(codec, "gpt-4o", temperature=0.2)
    assert "reasoning_effort" not in sent(codec, "gpt-5")


def test_compatible_servers() -> None:
    codec = OpenAiCodec(own=False, base="https://api.x.ai/v1")
    assert (
        sent(codec, reasoning_effort="low", temperature=0.2).items()
        >= {
            "reasoning_effort": "low",
            "temperature": 0.2,
        }.items()
    )
    router = OpenAiCodec(own=False, base="https://openrouter.ai/api/v1")
    assert sent(router, reasoning_effort="xhigh")["reasoning"] == {"effort": "xhigh"}
    assert sent(router, thinking_budget=3000)["reasoning"] == {"max_tokens": 3000}
    assert sent(router, thinking_budget=0)["reasoning"] == {"effort": "none"}
    deepseek = OpenAiCodec(own=False, base="https://api.deepseek.com")
    body = sent(deepseek, reasoning_effort="high")
    assert (body["thinking"], body["reasoning_effort"]) == ({"type": "enabled"}, "high")
    body = sent(deepseek, reasoning_effort="none")
    assert (body["thinking"], "reasoning_effort" in body) == ({"type": "disabled"}, False)


@pytest.mark.parametrize(
    ("model", "wish", "thinking"),
    [
        ("gemini-2.5-flash", {"reasoning_effort": "low"}, {"thinkingBudget": 2048, "includeThoughts": True}),
        ("gemini-2.5-flash", {"reasoning_effort": "max"}, {"thinkingBudget": 24576, "includeThoughts": True}),
        ("gemini-2.5-flash", {"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"thinking_budget": 5}, {"thinkingBudget": 128, "includeThoughts": True}),
        ("gemini-3-pro-preview", {"reasoning_effort": "low"}, {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-3.5-flash", {"reasoning_effort": "xhigh"}, {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3.5-flash", {"thinking_budget": 700}, {"thinkingBudget": 700, "includeThoughts": True}),
        ("gemini-flash-latest", {"reasoning_effort": "medium"}, {"thinkingBudget": 8192, "includeThoughts": True}),
    ],
)
def test_gemini(model: str, wish: dict[str, Any], thinking: dict[str, Any]) -> None:
    body = sent(GeminiCodec(), model, extra={"generationConfig": {"seed": 7}}, **wish)
    assert body["generationConfig"] == {"seed": 7, "thinkingConfig": thinking}
    assert "generationConfig" not in sent(GeminiCodec(), model)


def test_ollama() -> None:
    codec = OllamaCodec()
    assert sent(codec, "qwen3:8b", reasoning_effort="high")["think"] is True
    assert sent(codec, "qwen3:8b", thinking_budget=0)["think"] is False
    assert sent(codec, "gpt-oss:20b", reasoning_effort="xhigh")["think"] == "high"
    assert sent(codec, "gpt-oss:20b", reasoning_effort="none")["think"] == "low"
    assert "think" not in sent(codec, "qwen3:8b")


def test_cohere() -> None:
    codec = CohereCodec()
    assert sent(codec, reasoning_effort="low")["thinking"] == {"type": "enabled", "token_budget": 2048}
    assert sent(codec, thinking_budget=0)["thinking"] == {"type": "disabled"}
    assert "thinking" not in sent(codec)


def test_bedrock() -> None:
    codec = BedrockCodec(None)
    haiku = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
    body = sent(codec, haiku, reasoning_effort="low", temperature=0.2)
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2048}}
    assert body["inferenceConfig"] == {"maxTokens": 4096 + 2048}
    body = sent(
        codec, "anthropic.claude-opus-4-7", reasoning_effort="max", extra={"additionalModelRequestFields": {"k": 1}}
    )
    fields = body["additionalModelRequestFields"]
    assert (fields["k"], fields["thinking"]["type"], fields["output_config"]) == (1, "adaptive", {"effort": "max"})
    nova = sent(codec, "amazon.nova-2-lite-v1:0", reasoning_effort="max")["additionalModelRequestFields"]
    assert nova == {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}
    open_model = sent(codec, "openai.gpt-oss-120b-1:0", thinking_budget=100)
    assert open_model["additionalModelRequestFields"] == {"reasoning_effort": "low"}
    with pytest.raises(ModelError, match=says("work.models.aws.bedrock._more_fields", model="meta.llama3")):
        sent(codec, "meta.llama3", reasoning_effort="low")
    for quiet in (haiku, "meta.llama3", "amazon.nova-2-lite-v1:0"):
        body = sent(codec, quiet, temperature=0.2)
        assert ("additionalModelRequestFields" in body, body["inferenceConfig"]) == (False, {"temperature": 0.2})


# --- what was thought -------------------------------------------------------------------------------------

SIGNED = {"type": "thinking", "thinking": "I look.", "signature": "EqQB"}
SEALED = {"type": "redacted_thinking", "data": "EmwKAh=="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}


def test_claude_gets_its_blocks_back_signed_sealed_and_in_their_order() -> None:
    said = [SIGNED, SEALED, {"type": "text", "text": "Let me see."}, dict(SIGNED, thinking="Two."), USE]
    reply = answered(AnthropicCodec(), {"content": said, "stop_reason": "tool_use"})
    assert (reply.text, reply.reasoning) == ("Let me see.", "I look.Two.")
    same, other = back(AnthropicCodec(), reply)
    assert same["content"] == said
    assert other["content"] == [{"type": "text", "text": "Let me see."}, USE]


def test_claude_in_pieces() -> None:
    def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    thinking = [{"type": "thinking_delta", "thinking": piece} for piece in ("I ", "look.")]
    signed = {"type": "signature_delta", "signature": "EqQB"}
    events = [
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, *thinking, signed),
        *block(1, SEALED),
        *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me see."}),
        *block(3, {**USE, "input": {}}, {"type": "input_json_delta", "partial_json": '{"at": 1}'}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]  # fmt: skip
    reply = answered(AnthropicCodec(), *events, stream=True)
    assert reply.text == "Let me see."
    assert back(AnthropicCodec(), reply)[0]["content"] == [SIGNED, SEALED, {"type": "text", "text": "Let me see."}, USE]


def test_thinking_without_a_signature_is_not_sent_to_claude() -> None:
    turn = AssistantTurn("hm", thought=Thought(by="c:m", form="anthropic", data=[{**SIGNED, "signature": ""}, SEALED]))
    message = sent(AnthropicCodec(), messages=(*HI, turn, UserTurn("and?")))["messages"][1]
    assert message["content"] == [SEALED, {"type": "text", "text": "hm"}]


def test_bedrock_gets_its_blocks_back() -> None:
    said = [
        {"reasoningContent": {"reasoningText": {"text": "I look.", "signature": "EqQB"}}},
        {"reasoningContent": {"redactedContent": "EmwKAh=="}},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"at": 1}}},
    ]
    reply = answered(BedrockCodec(None), {"output": {"message": {"content": said}}, "stopReason": "tool_use"})
    same, other = back(BedrockCodec(None), reply)
    assert (same["content"], other["content"]) == (said, said[2:])


DEEPSEEK = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "I need the date first.",
    "tool_calls": [{"id": "call_00", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}],
}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_compatible_server_gets_its_own_field_back_with_calls(field: str) -> None:
    codec = OpenAiCodec(own=False)
    message = {field if key == "reasoning_content" else key: value for key, value in DEEPSEEK.items()}
    reply = answered(codec, {"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert (reply.text, reply.reasoning) == ("", "I need the date first.")
    same, other = back(codec, reply)
    assert same[field] == "I need the date first."
    assert other.keys() == {"role", "content", "tool_calls"}
    only = {key: value for key, value in message.items() if key != "tool_calls"}
    assert answered(codec, {"choices": [{"message": only, "finish_reason": "stop"}]}).thought is None, "not wanted"


def test_deepseek_in_pieces() -> None:
    codec = OpenAiCodec(own=False)
    deltas = [{"reasoning_content": "I need "}, {"reasoning_content": "the date first."}]
    call = {"index": 0, "id": "call_00", "function": {"name": "look", "arguments": '{"at":1}'}}
    chunks = [{"choices": [{"delta": delta}]} for delta in (*deltas, {"content": None, "tool_calls": [call]})]
    reply = answered(codec, *chunks, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, stream=True)
    assert back(codec, reply)[0] == {**DEEPSEEK, "content": None}


def test_openrouter_gets_its_details_back_whole() -> None:
    codec = OpenAiCodec(own=False, base="https://openrouter.ai/api/v1")
    text = {"type": "reasoning.text", "text": "", "signature": None, "format": "anthropic-claude-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1}
    pieces = [{**text, "text": "I "}, {**text, "text": "look."}, {**text, "signature": "EqQB"}, sealed]
    chunks = [{"choices": [{"delta": {"reasoning": each.get("text"), "reasoning_details": [each]}}]} for each in pieces]
    end = {"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}
    details = [{**text, "text": "I look.", "signature": "EqQB"}, sealed]
    reply = answered(codec, *chunks, end, stream=True)
    assert (reply.text, reply.reasoning) == ("ok", "I look.")
    assert back(codec, reply)[0]["reasoning_details"] == details
    message = {"role": "assistant", "content": "ok", "reasoning": "I look.", "reasoning_details": details}
    assert back(codec, answered(codec, {"choices": [{"message": message}]}))[0]["reasoning_details"] == details


def test_mistrals_pieces_of_thinking_are_no_part_of_the_answer() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    message = {"role": "assistant", "content": [thinking, {"type": "text", "text": "42"}]}
    reply = answered(OpenAiCodec(own=False), {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (reply.text, reply.reasoning) == ("42", "Hm.")


def test_thinking_in_tags_is_no_part_of_the_answer_of_other_servers() -> None:
    text = "<think>Hm.</think>\n\n42"
    whole = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    reply = answered(OpenAiCodec(own=False), whole)
    assert (reply.text, reply.reasoning) == ("42", "Hm.")
    chunks = [{"choices": [{"delta": {"content": text[at : at + 3]}}]} for at in range(0, len(text), 3)]
    assert answered(
        OpenAiCodec(own=False), *chunks, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, stream=True
    ) == (reply)
    assert answered(OpenAiCodec(own=True), whole).text == text


def test_gemini_gets_signatures_back_where_they_were() -> None:
    parts = [
        {"text": "I think.", "thought": True},
        {"text": "Let me "},
        {"text": "see.", "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "Y2FsbA=="},
        {"functionCall": {"name": "look", "args": {"at": 2}}},
    ]
    answer = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    reply = answered(GeminiCodec(), answer, model="gemini-3-pro")
    assert (reply.text, reply.reasoning) == ("Let me see.", "I think.")
    assert back(GeminiCodec(), reply, "gemini-3-pro")[0]["parts"] == parts[1:]
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    streamed = answered(GeminiCodec(), *chunks, {"candidates": [{"finishReason": "STOP"}]}, stream=True)
    assert streamed == reply
    empty = {"text": "", "thoughtSignature": "ZW5k"}
    last = answered(
        GeminiCodec(), {"candidates": [{"content": {"parts": [{"text": "42"}, empty]}, "finishReason": "STOP"}]}
    )
    assert back(GeminiCodec(), last)[0]["parts"] == [{"text": "42"}, empty]


def test_gemini_3_is_told_of_calls_that_another_model_made() -> None:
    turn = AssistantTurn(tool_calls=(ToolCall(id="1", name="look"), ToolCall(id="2", name="look")))
    talk = (*HI, turn, ToolTurn(call="1", name="look", content="x"), ToolTurn(call="2", name="look", content="y"))
    parts = sent(GeminiCodec(), "gemini-3-pro", messages=talk)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["skip_thought_signature_validator", None]
    parts = sent(GeminiCodec(), "gemini-2.5-pro", messages=talk)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, None]


def test_ollama_gets_its_thinking_back_with_calls() -> None:
    call = {"function": {"name": "look", "arguments": {"at": 1}}}
    said = {"role": "assistant", "content": "", "thinking": "I look.", "tool_calls": [call]}
    reply = answered(OllamaCodec(), {"message": said, "done": True, "done_reason": "stop"})
    same, other = back(OllamaCodec(), reply)
    assert (same, "thinking" in other) == (said, False)


# --- in a conversation ------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_that_thinks_goes_on_with_what_it_thought(
    fake_model: FakeModels, tmp_path: Path, stream: bool
) -> None:
    fake_model.script(
        Reply(reasoning="I have to add.", sealed="c2VhbGVk", calls=[("add", {"a": 1, "b": 2})]),
        Reply(reasoning="That was it.", text="3"),
    )
    config = fake_model.config_dir(tmp_path, type="claude", model="fake:claude-haiku-4-5")
    text = json.loads((config / "config.yaml").read_text())
    (config / "config.yaml").write_text(json.dumps({**text, "stream": stream}))
    agent = callboard.Agent(name="clerk", instructions="Add.", reasoning_effort="low", can_ask_user=False)
    events: list[Any] = []
    outcome = await callboard.run(agent, "1 + 2?", tools=[add], config_dir=config, on_event=events.append)
    assert (outcome.status, outcome.output) == ("done", "3"), outcome.error
    first, second = (request.json for request in fake_model.requests)
    assert first["thinking"] == second["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert [block["type"] for block in second["messages"][1]["content"]] == [
        "thinking",
        "redacted_thinking",
        "tool_use",
    ]
    assert second["messages"][1]["content"][0] == {"type": "thinking", "thinking": "I have to add.", "signature": "sig"}
    assert second["messages"][1]["content"][1]["data"] == "c2VhbGVk"
    said = "".join(event.data.text for event in events if event.kind == "llm.delta")
    thought = "".join(event.data.text for event in events if event.kind == "llm.reasoning")
    if stream:
        assert (said, thought) == ("3", "I have to add.That was it.")


async def test_a_model_that_can_not_think_is_told_before_it_is_asked(fake_model: FakeModels, tmp_path: Path) -> None:
    config = fake_model.config_dir(tmp_path, type="claude", model="fake:claude-3-5-haiku")
    agent = callboard.Agent(name="clerk", reasoning_effort="low", can_ask_user=False)
    outcome = await callboard.run(agent, "1 + 2?", config_dir=config)
    assert outcome.error is not None
    assert "'fake:claude-3-5-haiku' does not support reasoning: remove `reasoning_effort`" in outcome.error.message
    assert fake_model.requests == []
