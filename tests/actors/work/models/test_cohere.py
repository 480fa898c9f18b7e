"""Cohere's format: what goes out, and that whole and streamed answers mean the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.codec_bench import ADD, HELLO, NOW, CodecBench
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.cohere import CohereCodec
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    FilePart,
    ImagePart,
    ReasoningDelta,
    TextDelta,
    TextPart,
    Thought,
    TokenUsage,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import CredentialsError, ModelError, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings, read_settings

BENCH = CodecBench(CohereCodec())
sent, whole, read = BENCH.sent, BENCH.whole, BENCH.read
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def streamed(*events: Any) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


# --- what goes out ----------------------------------------------------------------------------------------


def test_a_conversation_goes_out_with_roles_plans_and_results() -> None:
    chart = ImagePart(data=b"\x89PNG", media_type="image/png")
    request = ChatRequest(
        system="Be kind.",
        messages=(
            UserTurn((TextPart("what is it?"), ImagePart(url="https://x/y.png"))),
            AssistantTurn("I will add.", (ToolCall(id="add_1", name="add", arguments={"a": 1}),)),
            ToolTurn(call="add_1", name="add", content=(TextPart("2"), chart)),
            ToolTurn(call="now_1", name="now", content=""),
            AssistantTurn("It is 2."),
            UserTurn(""),
        ),
    )
    function = {"name": "add", "arguments": '{"a":1}'}
    assert sent(request)["messages"] == [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is it?"},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            ],
        },
        {
            "role": "assistant",
            "tool_plan": "I will add.",
            "tool_calls": [{"id": "add_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "add_1", "content": "2\n[image, image/png: see below]"},
        {"role": "tool", "tool_call_id": "now_1", "content": "(nothing)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What add shows:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            ],
        },
        {"role": "assistant", "content": "It is 2."},
        {"role": "user", "content": "(nothing)"},
    ]


@pytest.mark.parametrize(
    ("choice", "said", "tools"),
    [
        ("auto", None, ["add", "now"]),
        ("none", "NONE", ["add", "now"]),
        ("required", "REQUIRED", ["add", "now"]),
        ("now", "REQUIRED", ["now"]),
    ],
)
def test_tools_and_choices_go_out(choice: str, said: str | None, tools: list[str]) -> None:
    body = sent(ChatRequest(messages=HELLO.messages, tools=(ADD, NOW), tool_choice=choice))
    assert body.get("tool_choice") == said
    assert [tool["function"]["name"] for tool in body["tools"]] == tools
    assert body["tools"][-1] == {
        "type": "function",
        "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
    }


def test_options_and_more_keys_go_out() -> None:
    request = ChatRequest(
        messages=HELLO.messages,
        temperature=0.5,
        top_p=0.9,
        max_tokens=9,
        stop=("END",),
        extra={"seed": 7, "safety_mode": "STRICT", "model": "no"},
    )
    body = sent(request)
    assert {key: body[key] for key in body if key != "messages"} == {
        "model": "m",
        "temperature": 0.5,
        "p": 0.9,
        "max_tokens": 9,
        "stop_sequences": ["END"],
        "seed": 7,
        "safety_mode": "STRICT",
        "stream": False,
    }


def test_a_schema_goes_out_where_it_can_be_kept() -> None:
    body = sent(ChatRequest(messages=HELLO.messages, response_schema=SCHEMA))
    assert body["response_format"] == {"type": "json_object", "json_schema": SCHEMA}
    assert "response_format" not in sent(ChatRequest(messages=HELLO.messages, response_schema=SCHEMA, tools=(ADD,)))
    assert "response_format" not in sent(ChatRequest(messages=HELLO.messages, response_schema={"type": "array"}))


def test_files_go_out_as_text() -> None:
    (message,) = sent(ChatRequest(messages=(UserTurn((FilePart(name="a.txt", data=b"hi"),)),)))["messages"]
    assert "hi" in message["content"][0]["text"]
    with pytest.raises(ModelError, match=says("work.models.codec.file_as_text", media_type="application/pdf")):
        sent(ChatRequest(messages=(UserTurn((FilePart(name="a.pdf", data=b"", media_type="application/pdf"),)),)))


# --- what comes back --------------------------------------------------------------------------------------

USED = {
    "billed_units": {"input_tokens": 17, "output_tokens": 12},
    "tokens": {"input_tokens": 215, "output_tokens": 22},
    "cached_tokens": 8,
}
TEXTS = (
    {
        "type": "message-start",
        "id": "29f14a5a",
        "delta": {"message": {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}},
    },
    {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "thinking", "thinking": "H"}}}},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"thinking": "m"}}}},
    {"type": "content-end", "index": 0},
    {"type": "content-start", "index": 1, "delta": {"message": {"content": {"type": "text", "text": ""}}}},
    {"type": "content-delta", "index": 1, "delta": {"message": {"content": {"text": "Grüße, "}}}},
    {
        "type": "citation-start",
        "index": 0,
        "delta": {"message": {"citations": {"start": 0, "end": 5, "text": "Grüße", "sources": []}}},
    },
    {"type": "citation-end", "index": 0},
    {"type": "content-delta", "index": 1, "delta": {"message": {"content": {"text": "you"}}}},
    {"type": "content-end", "index": 1},
    {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": USED}},
)
TEXT_BLOCKS = [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Grüße, you"}]
CALLS = (
    TEXTS[0],
    {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will "}}},
    {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "add."}}},
    {
        "type": "tool-call-start",
        "index": 1,
        "delta": {
            "message": {
                "tool_calls": {"id": "add_k2", "type": "function", "function": {"name": "add", "arguments": ""}}
            }
        },
    },
    {"type": "tool-call-delta", "index": 1, "delta": {"message": {"tool_calls": {"function": {"arguments": '{"a"'}}}}},
    {"type": "tool-call-delta", "index": 1, "delta": {"message": {"tool_calls": {"function": {"arguments": ": 1}"}}}}},
    {"type": "tool-call-end", "index": 1},
    {
        "type": "tool-call-start",
        "index": 2,
        "delta": {
            "message": {"tool_calls": {"id": "now_x", "type": "function", "function": {"name": "now", "arguments": ""}}}
        },
    },
    {"type": "tool-call-end", "index": 2},
    {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": USED}},
)
TOKENS = TokenUsage(input_tokens=17, output_tokens=12, cached_tokens=8)


@pytest.mark.parametrize("size", [1, 11, 10_000])
def test_whole_and_streamed_texts_mean_the_same(size: int) -> None:
    deltas, reply = read(streamed(*TEXTS) + b"data: [DONE]\n\n", size)
    message = {"role": "assistant", "content": TEXT_BLOCKS, "citations": [{"text": "Grüße"}]}
    assert reply == whole({"id": "29f14a5a", "finish_reason": "COMPLETE", "message": message, "usage": USED})
    thought = Thought(form="cohere", data=[{"type": "thinking", "thinking": "Hm"}])
    said = ChatReply(text="Grüße, you", reasoning="Hm", thought=thought, stop="end", usage=TOKENS, id="29f14a5a")
    assert reply == said
    assert deltas == [ReasoningDelta("H"), ReasoningDelta("m"), TextDelta("Grüße, "), TextDelta("you")]


@pytest.mark.parametrize("size", [1, 11, 10_000])
def test_whole_and_streamed_calls_mean_the_same(size: int) -> None:
    _, reply = read(streamed(*CALLS), size)
    calls = [
        {"id": "add_k2", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "now_x", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ]
    message = {"role": "assistant", "tool_plan": "I will add.", "tool_calls": calls}
    assert reply == whole({"id": "29f14a5a", "finish_reason": "TOOL_CALL", "message": message, "usage": USED})
    assert reply == ChatReply(
        text="I will add.",
        tool_calls=(ToolCall(id="add_k2", name="add", arguments={"a": 1}), ToolCall(id="now_x", name="now")),
        stop="tools",
        usage=TOKENS,
        id="29f14a5a",
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_was_thought_goes_back_with_the_calls_it_led_to_and_with_the_answer(
    fake_model: FakeModels, stream: bool
) -> None:
    """The conversation of Cohere's guide, notebooks/guides/reasoning/1_tool_use_basic_reasoning.ipynb."""
    thinking = "I'll call the tool with the location set to Toronto."
    function = {"name": "get_weather", "arguments": '{"location":"Toronto"}'}
    calls = [{"id": "get_weather_sfnm", "type": "function", "function": function}]
    content = [{"type": "thinking", "thinking": thinking}]
    message = {"role": "assistant", "tool_calls": calls, "tool_plan": None, "content": content, "citations": None}
    events = (
        TEXTS[0],
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "thinking", "thinking": ""}}}},
        *(
            {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"thinking": piece}}}}
            for piece in (thinking[:10], thinking[10:])
        ),
        {"type": "content-end", "index": 0},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": calls[0]}}},
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": USED}},
    )
    answer = {"finish_reason": "TOOL_CALL", "message": message, "usage": USED}
    fake_model.script(
        Reply(raw=streamed(*events) if stream else json.dumps(answer).encode()),
        Reply(raw=streamed(*TEXTS) if stream else json.dumps({**answer, "message": {"content": TEXT_BLOCKS}}).encode()),
        Reply(raw=json.dumps({**answer, "message": {"content": TEXT_BLOCKS}}).encode()),
    )
    asked = ChatRequest(model="cohere:command-a-reasoning-08-2025", messages=HELLO.messages, tools=(ADD,))
    asked = msgspec.structs.replace(asked, stream=stream)
    async with reaching(settings(fake_model)) as gateway:
        first = await gateway.chat(Silent(), asked, on_delta=lambda delta: None)
        result = ToolTurn(call="get_weather_sfnm", name="get_weather", content="20 degrees")
        asked = msgspec.structs.replace(asked, messages=(*asked.messages, first.turn(), result))
        second = await gateway.chat(Silent(), asked, on_delta=lambda delta: None)
        asked = msgspec.structs.replace(
            asked, messages=(*asked.messages, second.turn(), UserTurn("and?")), stream=False
        )
        await gateway.chat(Silent(), asked)
    assert (first.text, first.reasoning) == ("", thinking)
    messages = fake_model.requests[2].json["messages"]
    assert messages[1] == {"role": "assistant", "content": content, "tool_calls": calls}
    assert messages[3] == {"role": "assistant", "content": TEXT_BLOCKS}


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (
            AssistantTurn("", (), Thought(by="cohere:m", form="cohere", data=[{"type": "thinking", "thinking": "Hm"}])),
            [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "(nothing)"}],
        ),
        (
            AssistantTurn(
                "hi", (), Thought(by="other:m", form="cohere", data=[{"type": "thinking", "thinking": "Hm"}])
            ),
            "hi",
        ),
        (AssistantTurn("hi", (), Thought(by="cohere:m", form="ollama", data=[{"thinking": "Hm"}])), "hi"),
    ],
    ids=["nothing said", "another model", "another format"],
)
def test_what_was_thought_is_for_the_model_that_thought_it(turn: AssistantTurn, message: Any) -> None:
    (_, shown) = sent(ChatRequest(model="cohere:m", messages=(*HELLO.messages, turn)))["messages"]
    assert shown == {"role": "assistant", "content": message}


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("COMPLETE", "end"),
        ("STOP_SEQUENCE", "end"),
        ("MAX_TOKENS", "length"),
        ("ERROR_TOXIC", "refused"),
        ("NEW", "end"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert whole({"finish_reason": reason, "message": {"content": [{"type": "text", "text": "a"}]}}).stop == stop


def test_an_end_with_an_error_may_be_tried_again() -> None:
    end = {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "out of cards"}}
    with pytest.raises(UpstreamError, match="out of cards"):
        read(streamed(TEXTS[0], end))


def test_a_stream_that_breaks_off_may_be_tried_again() -> None:
    with pytest.raises(UpstreamError, match=says("work.models.codec.StreamReader.finish")):
        read(streamed(*TEXTS[:-1]))


@pytest.mark.parametrize("answer", [[], {"message": 1}, {}, {"message": "no"}, {"message": {"content": "text"}}])
def test_an_answer_without_sense_is_a_model_error(answer: Any) -> None:
    with pytest.raises(ModelError):
        whole(answer)


# --- over the wire ----------------------------------------------------------------------------------------


def settings(fake_model: FakeModels) -> Settings:
    text = f"clients: [{{type: cohere, api_base: '{fake_model.url}/v2', api_key: secret}}]"
    read, problems = read_settings(text, "config.yaml", {})
    assert not problems
    return read


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_gateway_reaches_it_with_its_key(fake_model: FakeModels, stream: bool) -> None:
    message = {"content": [{"type": "text", "text": "Grüße, you"}]}
    answer = {"finish_reason": "COMPLETE", "message": message, "usage": USED}
    fake_model.script(Reply(raw=streamed(*TEXTS) if stream else json.dumps(answer).encode()))
    request = ChatRequest(model="cohere:command-a-03-2025", messages=HELLO.messages, stream=stream)
    async with reaching(settings(fake_model)) as gateway:
        reply = await gateway.chat(Silent(), request, on_delta=lambda delta: None)
    assert (reply.text, reply.model, reply.usage) == ("Grüße, you", "cohere:command-a-03-2025", TOKENS)
    (request_,) = fake_model.requests
    assert (request_.path, request_.headers["authorization"]) == ("/v2/chat", "Bearer secret")
    assert (request_.json["model"], request_.json["stream"]) == ("command-a-03-2025", stream)


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (401, "invalid api token", CredentialsError),
        (404, "model 'command-x' not found", ModelError),
        (500, "internal server error", UpstreamError),
        (429, "You are using a Trial key, which is limited to 1000 API calls / month.", CredentialsError),
    ],
)
async def test_what_it_refuses_is_told_in_its_words(
    fake_model: FakeModels, status: int, words: str, kind: type[Exception]
) -> None:
    fake_model.script(Reply(status=status, raw=json.dumps({"id": "1", "message": words}).encode()))
    async with reaching(settings(fake_model)) as gateway:
        with pytest.raises(kind, match=words.rstrip(".")):
            await gateway.chat(Silent(), ChatRequest(model="cohere:m", messages=HELLO.messages), attempts=1)


async def test_one_request_too_many_waits_for_its_turn(fake_model: FakeModels) -> None:
    body = json.dumps({"message": "limited to 20 API calls / minute"}).encode()
    answer = {"finish_reason": "COMPLETE", "message": {"content": [{"type": "text", "text": "done"}]}}
    fake_model.script(
        Reply(status=429, raw=body, headers={"retry-after-ms": "20"}), Reply(raw=json.dumps(answer).encode())
    )
    async with reaching(settings(fake_model)) as gateway:
        reply = await gateway.chat(Silent(), ChatRequest(model="cohere:m", messages=HELLO.messages), attempts=1)
    assert (reply.text, len(fake_model.requests)) == ("done", 2)


@pytest.mark.parametrize("variable", ["COHERE_API_KEY", "CO_API_KEY"])
async def test_it_needs_no_entry_where_its_key_is_in_the_environment(variable: str) -> None:
    async with reaching(Settings(), {variable: "k"}) as gateway:
        target = gateway.catalog.target("cohere:command-a-03-2025")
    assert (target.api_base, target.headers) == ("https://api.cohere.com/v2", {"authorization": "Bearer k"})
    async with reaching(Settings(clients=(ClientSettings(type="cohere", name="co"),))) as gateway:
        with pytest.raises(
            CredentialsError,
            match=says("work.models.catalog.ModelCatalog._vertex_access.2", tried="CO_API_KEY", name="co"),
        ):
            gateway.check("co:m")
