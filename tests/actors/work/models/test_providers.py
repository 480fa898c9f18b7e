"""Each provider's format: what goes out, and that whole and streamed answers mean the same."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_models import FakeModels, Reply, Request, body_of
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.codec import Codec
from callboard.actors.work.models.ollama import OllamaCodec, OllamaReader
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    FilePart,
    ImagePart,
    ReasoningDelta,
    TextDelta,
    TextPart,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import ModelError, UpstreamError
from callboard.protocol.settings import read_settings

OPENAI, ANTHROPIC, OLLAMA = OpenAiCodec(own=False), AnthropicCodec(cache="off"), OllamaCodec()
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
ADD = Tool(
    name="add", description="Add numbers", parameters={"type": "object", "properties": {"a": {"type": "number"}}}
)
HELLO = ChatRequest(messages=(UserTurn("hello"),))


def sent(codec: Codec, request: ChatRequest, *, stream: bool = False) -> dict[str, Any]:
    return json.loads(codec.encode(request, "m", stream=stream).body)


# --- what goes out ----------------------------------------------------------------------------------------

CONVERSATION = ChatRequest(
    system="Be kind.",
    messages=(
        UserTurn((TextPart("what is it?"), ImagePart(data=b"\x89PNG", media_type="image/png"))),
        AssistantTurn("Let me see.", (ToolCall(id="c1", name="add", arguments={"a": 1}),)),
        ToolTurn(call="c1", name="add", content="2"),
        ToolTurn(call="c2", name="add", content="broken", error=True),
        UserTurn("go on"),
    ),
    tools=(ADD,),
    temperature=0.5,
    top_p=0.9,
    max_tokens=100,
    stop=("END",),
)


def test_a_conversation_in_openai_format() -> None:
    assert sent(OPENAI, CONVERSATION) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is it?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "tool", "tool_call_id": "c2", "content": "broken"},
            {"role": "user", "content": "go on"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Add numbers", "parameters": ADD.parameters},
            }
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "stop": ["END"],
    }


def test_a_conversation_in_anthropic_format() -> None:
    assert sent(ANTHROPIC, CONVERSATION) == {
        "model": "m",
        "max_tokens": 100,
        "system": "Be kind.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is it?"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "broken", "is_error": True},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [{"name": "add", "description": "Add numbers", "input_schema": ADD.parameters}],
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
    }


def test_a_conversation_in_ollama_format() -> None:
    body = sent(OLLAMA, CONVERSATION)
    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "what is it?", "images": ["iVBORw=="]},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "tool_name": "add", "content": "2"},
        {"role": "tool", "tool_name": "add", "content": "broken"},
        {"role": "user", "content": "go on"},
    ]
    assert body["stream"] is False
    assert body["options"] == {"temperature": 0.5, "top_p": 0.9, "num_predict": 100, "stop": ["END"]}


def test_no_tools_means_that_the_request_carries_none() -> None:
    """D7 case 74."""
    for codec in (OPENAI, ANTHROPIC, OLLAMA):
        assert "tools" not in sent(codec, HELLO)
        assert "tool_choice" not in sent(codec, HELLO)


@pytest.mark.parametrize(
    ("choice", "openai", "anthropic"),
    [
        ("none", "none", {"type": "none"}),
        ("required", "required", {"type": "any"}),
        ("add", {"type": "function", "function": {"name": "add"}}, {"type": "tool", "name": "add"}),
    ],
)
def test_a_tool_choice_is_passed_on(choice: str, openai: Any, anthropic: Any) -> None:
    request = ChatRequest(messages=HELLO.messages, tools=(ADD,), tool_choice=choice)
    assert sent(OPENAI, request)["tool_choice"] == openai
    assert sent(ANTHROPIC, request)["tool_choice"] == anthropic


def test_a_schema_is_asked_for_in_each_providers_way() -> None:
    request = ChatRequest(messages=HELLO.messages, response_schema=SCHEMA)
    assert sent(OPENAI, request)["response_format"]["json_schema"] == {
        "name": "answer",
        "schema": SCHEMA,
        "strict": True,
    }
    assert sent(OLLAMA, request)["format"] == SCHEMA
    body = sent(ANTHROPIC, request)
    assert body["tools"][0]["input_schema"] == SCHEMA
    assert body["tool_choice"] == {"type": "tool", "name": body["tools"][0]["name"]}


def test_a_schema_with_optional_keys_is_not_called_strict() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = ChatRequest(messages=HELLO.messages, response_schema={"anyOf": [SCHEMA, loose]})
    assert sent(OPENAI, request)["response_format"]["json_schema"]["strict"] is False


def test_openai_itself_gets_its_own_name_for_the_bound() -> None:
    request = ChatRequest(messages=HELLO.messages, max_tokens=7)
    assert sent(OpenAiCodec(own=True), request)["max_completion_tokens"] == 7


def test_anthropic_always_gets_a_bound() -> None:
    assert sent(ANTHROPIC, HELLO)["max_tokens"] > 0


def test_text_files_are_read_out_and_others_go_where_they_are_taken() -> None:
    text = ChatRequest(messages=(UserTurn((FilePart("a.md", b"# hi", "text/markdown"),)),))
    assert re.fullmatch(
        says("work.models.codec.file_as_text.2", name="a.md", text="# hi"),
        sent(OPENAI, text)["messages"][0]["content"][0]["text"],
    )
    pdf = ChatRequest(messages=(UserTurn((FilePart("a.pdf", b"%PDF", "application/pdf"),)),))
    assert sent(ANTHROPIC, pdf)["messages"][0]["content"][0]["type"] == "document"
    with pytest.raises(
        ModelError, match=says("work.models.codec.file_as_text", media_type="application/pdf", name="a.pdf")
    ):
        sent(OLLAMA, pdf)


def test_anthropic_is_always_begun_by_the_user_who_says_something() -> None:
    messages = sent(ANTHROPIC, ChatRequest(messages=(AssistantTurn("I said"), UserTurn(""))))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert all(message["content"] for message in messages)


# --- what comes back --------------------------------------------------------------------------------------

KINDS = {"openai-compatible": "OPENAI", "claude": "ANTHROPIC", "ollama": "OLLAMA"}


async def ask(
    server: FakeModels, kind: str, *, stream: bool, request: ChatRequest = HELLO
) -> tuple[ChatReply, list[Any]]:
    settings, problems = read_settings(server.config(type=kind), "config.yaml", {})
    assert problems == []
    deltas: list[Any] = []
    async with reaching(settings) as gateway:
        reply = await gateway.chat(Silent(), request, on_delta=deltas.append if stream else None, attempts=1)
    return reply, deltas


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
async def test_text_and_usage_come_back(fake_model: FakeModels, kind: str, stream: bool) -> None:
    fake_model.script(Reply("Grüße aus Köln, 你好", input_tokens=12, output_tokens=34))
    reply, deltas = await ask(fake_model, kind, stream=stream)
    assert reply.text == "Grüße aus Köln, 你好"
    assert reply.usage == TokenUsage(input_tokens=12, output_tokens=34)
    assert reply.stop == "end"
    assert reply.model == "fake:model"
    if stream:
        assert "".join(delta.text for delta in deltas) == reply.text
        assert len(deltas) > 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_come_back(fake_model: FakeModels, kind: str, stream: bool) -> None:
    calls = [("add", {"a": 1, "b": [2, {"c": "d"}]}), ("now", {})]
    fake_model.script(Reply("I will add.", calls=calls))
    request = ChatRequest(messages=HELLO.messages, tools=(ADD,))
    reply, deltas = await ask(fake_model, kind, stream=stream, request=request)
    assert reply.text == "I will add."
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.stop == "tools"
    if stream:
        pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
        assert [delta.name for delta in pieces if delta.name] == ["add", "now"]


@pytest.mark.parametrize("stream", [False, True])
async def test_arguments_that_are_no_json_are_kept_as_they_are(fake_model: FakeModels, stream: bool) -> None:
    fake_model.script(Reply(calls=[("add", '{"a": 1,')]))
    reply, _ = await ask(fake_model, "openai-compatible", stream=stream)
    assert reply.tool_calls[0].arguments == {}
    assert reply.tool_calls[0].malformed == '{"a": 1,'


@pytest.mark.parametrize("kind", ["openai-compatible", "claude"])
@pytest.mark.parametrize("stream", [False, True])
async def test_visible_reasoning_is_kept_apart_from_the_text(fake_model: FakeModels, kind: str, stream: bool) -> None:
    fake_model.script(Reply("42", reasoning="six times seven"))
    reply, deltas = await ask(fake_model, kind, stream=stream)
    assert (reply.text, reply.reasoning) == ("42", "six times seven")
    if stream:
        assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "six times seven"


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_gives_a_schemas_answer_as_text(fake_model: FakeModels, stream: bool) -> None:
    fake_model.script(Reply(calls=[("structured_answer", {"a": 1})]))
    request = ChatRequest(messages=HELLO.messages, response_schema=SCHEMA)
    reply, deltas = await ask(fake_model, "claude", stream=stream, request=request)
    assert json.loads(reply.text) == {"a": 1}
    assert reply.tool_calls == ()
    assert reply.stop == "end"
    if stream:
        assert json.loads("".join(delta.text for delta in deltas)) == {"a": 1}


@pytest.mark.parametrize(
    ("kind", "stop"), [("openai-compatible", "length"), ("claude", "max_tokens"), ("ollama", "length")]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_was_cut_off_says_so(fake_model: FakeModels, kind: str, stop: str, stream: bool) -> None:
    fake_model.script(Reply("and th", stop=stop))
    reply, _ = await ask(fake_model, kind, stream=stream)
    assert reply.stop == "length"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_breaks_off_is_a_passing_error(fake_model: FakeModels, kind: str) -> None:
    fake_model.script(Reply("a long answer that never ends", drop="middle"))
    with pytest.raises(UpstreamError):
        await ask(fake_model, kind, stream=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"<html>oops</html>", says("work.models.codec.read")), (b'{"choices": 3, "content": 3, "message": 3}', "format")],
)
async def test_an_answer_in_no_format_is_a_clear_error(
    fake_model: FakeModels, kind: str, raw: bytes, words: str
) -> None:
    fake_model.script(Reply(raw=raw))
    with pytest.raises(ModelError, match=words):
        await ask(fake_model, kind, stream=False)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("openai-compatible", b'data: {"error": {"message": "overloaded, come back"}}\n\n'),
        (
            "claude",
            b'event: error\ndata: {"type":"error","error":{"type":"x","message":"overloaded, come back"}}\n\n',
        ),
        ("ollama", b'{"error": "overloaded, come back"}\n'),
    ],
)
async def test_an_error_inside_a_stream_is_a_passing_error(fake_model: FakeModels, kind: str, raw: bytes) -> None:
    fake_model.script(Reply(raw=raw))
    with pytest.raises(UpstreamError, match="overloaded, come back"):
        await ask(fake_model, kind, stream=True)


def test_an_openai_answer_without_choices_is_a_clear_error() -> None:
    with pytest.raises(ModelError, match=says("work.models.openai._decoded")):
        OPENAI.encode(HELLO, "m", stream=False).decode(b'{"choices": []}')


def test_cached_tokens_are_part_of_the_input() -> None:
    whole = OPENAI.encode(HELLO, "m", stream=False).decode(
        b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}'
    )
    assert whole.usage == TokenUsage(input_tokens=10, output_tokens=1, cached_tokens=8)
    claude = ANTHROPIC.encode(HELLO, "m", stream=False).decode(
        b'{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn",'
        b'"usage":{"input_tokens":2,"cache_read_input_tokens":8,"output_tokens":1}}'
    )
    assert claude.usage == TokenUsage(input_tokens=10, output_tokens=1, cached_tokens=8)


OPENAI_USAGE = {
    # platform.openai.com/docs/api-reference/chat: reasoning is part of the output
    "openai": (
        (
            b'{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":'
            b'{"cached_tokens":1920,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":256}}'
        ),
        TokenUsage(input_tokens=2006, output_tokens=300, cached_tokens=1920, reasoning_tokens=256),
    ),
    # openrouter.ai/docs: what was written to a cache is told as well
    "openrouter": (
        (
            b'{"prompt_tokens":1200,"completion_tokens":10,"total_tokens":1210,'
            b'"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":1100}}'
        ),
        TokenUsage(input_tokens=1200, output_tokens=10, cache_write_tokens=1100),
    ),
    # docs.x.ai: reasoning stands beside the output
    "xai": (
        (
            b'{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"prompt_tokens_details":{"cached_tokens":6},'
            b'"completion_tokens_details":{"reasoning_tokens":94}}'
        ),
        TokenUsage(input_tokens=32, output_tokens=103, cached_tokens=6, reasoning_tokens=94),
    ),
    "nulls": (
        (
            b'{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":'
            b'{"reasoning_tokens":null}}'
        ),
        TokenUsage(input_tokens=1, output_tokens=2),
    ),
}


@pytest.mark.parametrize("provider", OPENAI_USAGE)
def test_what_was_thought_and_written_is_counted_as_each_provider_tells_it(provider: str) -> None:
    raw, usage = OPENAI_USAGE[provider]
    body = b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":' + raw + b"}"
    assert OPENAI.encode(HELLO, "m", stream=False).decode(body).usage == usage


def test_what_anthropic_writes_to_its_cache_is_part_of_the_input() -> None:
    raw = (
        b'{"input_tokens":50,"cache_read_input_tokens":1800,"cache_creation_input_tokens":556,"output_tokens":503,'
        b'"cache_creation":{"ephemeral_5m_input_tokens":456,"ephemeral_1h_input_tokens":100}}'
    )
    usage = TokenUsage(
        input_tokens=2406, output_tokens=503, cached_tokens=1800, cache_write_tokens=556, cache_write_1h_tokens=100
    )
    body = b'{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":' + raw + b"}"
    assert ANTHROPIC.encode(HELLO, "m", stream=False).decode(body).usage == usage
    reader = ANTHROPIC.encode(HELLO, "m", stream=True).reader()
    events = [
        b'{"type":"message_start","message":{"usage":' + raw + b"}}",
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":503}}',
        b'{"type":"message_stop"}',
    ]
    for event in events:
        list(reader.feed(b"data: " + event + b"\n\n"))
    assert reader.finish().usage == usage


STREAMS = {
    "openai": (OPENAI, "/v1/chat/completions"),
    "anthropic": (ANTHROPIC, "/v1/messages"),
    "ollama": (OLLAMA, "/api/chat"),
}


@pytest.mark.parametrize("provider", STREAMS)
@given(
    text=st.text(st.characters(blacklist_categories=["Cs"]), max_size=30),
    arguments=st.lists(
        st.dictionaries(st.text("ab", max_size=2), st.integers(0, 9) | st.text(max_size=4), max_size=2), max_size=2
    ),
    cuts=st.lists(st.integers(0, 3000), max_size=8),
)
def test_a_stream_says_what_the_whole_answer_says_wherever_it_is_split(
    provider: str, text: str, arguments: list[dict[str, Any]], cuts: list[int]
) -> None:
    codec, path = STREAMS[provider]
    scripted = Reply(text, calls=[("tool", given) for given in arguments])
    outgoing = codec.encode(HELLO, "m", stream=False)
    whole = outgoing.decode(b"".join(body_of(Request("POST", path, {}, outgoing.body), scripted)))
    asked = codec.encode(HELLO, "m", stream=True)
    raw = b"".join(body_of(Request("POST", path, {}, asked.body), scripted))
    reader = asked.reader()
    places = sorted({0, len(raw), *[cut for cut in cuts if cut < len(raw)]})
    said = [delta for start, stop in pairwise(places) for delta in reader.feed(raw[start:stop])]
    assert reader.finish() == whole
    assert "".join(delta.text for delta in said if isinstance(delta, TextDelta)) == whole.text == text
    assert [call.arguments for call in whole.tool_calls] == arguments


def test_an_ollama_line_without_an_end_is_given_up() -> None:
    reader = OllamaReader()
    piece = b"x" * (4 * 1024 * 1024)
    for _ in range(4):
        assert list(reader.feed(piece)) == []
    with pytest.raises(UpstreamError, match=says("work.models.ollama.OllamaReader.feed", MAX_EVENT=16777216)):
        list(reader.feed(piece))


def test_ollama_lines_are_the_same_however_they_come_in_pieces() -> None:
    line = b'{"message": {"role": "assistant", "content": "ab"}, "done": false}\n'
    last = b'{"message": {"role": "assistant", "content": "c"}, "done": true, "done_reason": "stop"}\n'
    for size in (1, 7, len(line), 1000):
        reader, data = OllamaReader(), line + b"\n" + line + last
        for start in range(0, len(data), size):
            list(reader.feed(data[start : start + size]))
        assert reader.finish().text == "ababc"
