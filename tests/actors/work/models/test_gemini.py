"""Gemini's format: what goes out, and that whole and streamed answers mean the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.codec_bench import ADD, HELLO, NOW, CodecBench
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.gemini import GeminiCodec
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
    ToolCall,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import ModelError, UpstreamError
from callboard.protocol.settings import read_settings

GEMINI = GeminiCodec()
BENCH = CodecBench(GEMINI)
sent, whole, read = BENCH.sent, BENCH.whole, BENCH.read


def chunk(*parts: Any, stop: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if stop is not None:
        candidate["finishReason"] = stop
    return {"candidates": [candidate], **more}


# --- what goes out ----------------------------------------------------------------------------------------


def test_a_conversation_goes_out_with_roles_pictures_and_paired_results() -> None:
    request = ChatRequest(
        system="Be kind.",
        messages=(
            UserTurn((TextPart("what is it?"), ImagePart(data=b"\x89PNG", media_type="image/png"))),
            AssistantTurn("Let me see.", (ToolCall(id="1", name="add", arguments={"a": 1}, signature="c2ln"),)),
            ToolTurn(call="1", name="add", content="2"),
            ToolTurn(call="2", name="now", content="broken", error=True),
            UserTurn("go on"),
        ),
    )
    body = sent(request)
    assert body["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert body["contents"] == [
        {
            "role": "user",
            "parts": [{"text": "what is it?"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Let me see."},
                {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "response": {"result": "2"}}},
                {"functionResponse": {"name": "now", "response": {"error": "broken"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "go on"}]},
    ]


def test_tools_and_choices_go_out() -> None:
    body = sent(ChatRequest(messages=HELLO.messages, tools=(ADD, NOW), tool_choice="add"))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "add", "description": "Add numbers", "parametersJsonSchema": ADD.parameters},
                {"name": "now", "description": "The time"},
            ]
        }
    ]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    for choice, mode in (("none", "NONE"), ("required", "ANY")):
        chosen = sent(ChatRequest(messages=HELLO.messages, tools=(ADD,), tool_choice=choice))
        assert chosen["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert "toolConfig" not in sent(ChatRequest(messages=HELLO.messages, tools=(ADD,)))


def test_options_schemas_and_more_keys_go_out() -> None:
    request = ChatRequest(
        messages=HELLO.messages,
        temperature=0.5,
        top_p=0.9,
        max_tokens=9,
        stop=("END",),
        response_schema={"type": "object"},
        extra={"generationConfig": {"topK": 4, "temperature": 1}, "safetySettings": [], "contents": "no"},
    )
    body = sent(request)
    assert body["generationConfig"] == {
        "topK": 4,
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 9,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }
    assert body["safetySettings"] == []
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hello"}]}]


def test_files_go_out_as_they_are_or_as_text() -> None:
    pdf = FilePart(name="a.pdf", data=b"%PDF", media_type="application/pdf")
    (content,) = sent(ChatRequest(messages=(UserTurn((pdf, FilePart(name="a.txt", data=b"hi"))),)))["contents"]
    assert content["parts"][0] == {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}}
    assert "hi" in content["parts"][1]["text"]
    with pytest.raises(ModelError, match=says("work.models.codec.file_as_text", media_type="application/zip")):
        sent(ChatRequest(messages=(UserTurn((FilePart(name="a.zip", data=b"", media_type="application/zip"),)),)))


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("flash", False, "/models/flash:generateContent"),
        ("tunedModels/mine", False, "/tunedModels/mine:generateContent"),
        ("flash", True, "/models/flash:streamGenerateContent?alt=sse"),
    ],
)
def test_the_model_is_part_of_the_path(model: str, stream: bool, path: str) -> None:
    assert GEMINI.encode(HELLO, model, stream=stream).path == path


def test_the_user_begins_and_says_something() -> None:
    contents = sent(ChatRequest(messages=(AssistantTurn("I said"), UserTurn(""))))["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert all(content["parts"][0]["text"] for content in contents)


# --- what comes back --------------------------------------------------------------------------------------

USED = {
    "usageMetadata": {
        "promptTokenCount": 7,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 2,
    }
}
CHUNKS = [
    chunk({"text": "Hm", "thought": True}),
    chunk({"text": "Hello "}),
    chunk({"text": "you"}, {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "c2ln"}),
    chunk({"functionCall": {"name": "now"}}, stop="STOP", **USED),
]


def test_whole_and_streamed_answers_mean_the_same() -> None:
    parts = [part for each in CHUNKS for part in each["candidates"][0]["content"]["parts"]]
    reader = GEMINI.encode(HELLO, "m", stream=True).reader()
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in CHUNKS)
    deltas = [delta for i in range(0, len(data), 11) for delta in reader.feed(data[i : i + 11])]
    streamed = reader.finish()
    assert streamed == whole(chunk(*parts, stop="STOP", **USED))
    assert streamed == ChatReply(
        text="Hello you",
        reasoning="Hm",
        tool_calls=(
            ToolCall(id="call_0", name="add", arguments={"a": 1}, signature="c2ln"),
            ToolCall(id="call_1", name="now"),
        ),
        stop="tools",
        usage=TokenUsage(input_tokens=7, output_tokens=8, cached_tokens=2, reasoning_tokens=3),
    )
    assert [delta for delta in deltas if isinstance(delta, TextDelta | ReasoningDelta)] == [
        ReasoningDelta("Hm"),
        TextDelta("Hello "),
        TextDelta("you"),
    ]


@pytest.mark.parametrize(
    ("answer", "stop"),
    [
        (chunk({"text": "a"}, stop="STOP"), "end"),
        (chunk({"text": "a"}, stop="MAX_TOKENS"), "length"),
        (chunk(stop="SAFETY"), "refused"),
        (chunk(stop="SOMETHING_NEW"), "end"),
        ({"candidates": [{"finishReason": "STOP"}]}, "end"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "refused"),
    ],
)
def test_why_it_stopped(answer: Any, stop: str) -> None:
    assert whole(answer).stop == stop


@pytest.mark.parametrize("answer", [[], {"candidates": 1}, {}, {"error": {"message": "no"}}, {"candidates": []}])
def test_an_answer_without_sense_is_a_model_error(answer: Any) -> None:
    with pytest.raises(ModelError):
        whole(answer)


def test_a_stream_that_breaks_off_or_tells_an_error_may_be_tried_again() -> None:
    reader = GEMINI.encode(HELLO, "m", stream=True).reader()
    list(reader.feed(b'data: {"candidates": [{"content": {"parts": [{"text": "a"}]}}]}\n\n'))
    with pytest.raises(UpstreamError, match=says("work.models.codec.StreamReader.finish")):
        reader.finish()
    with pytest.raises(UpstreamError, match="overloaded"):
        list(reader.feed(b'data: {"error": {"code": 503, "message": "overloaded"}}\n\n'))


async def test_the_gateway_reaches_it_with_its_key(fake_model: FakeModels) -> None:
    clients = f"clients: [{{type: gemini, api_base: '{fake_model.url}/v1beta', api_key: secret}}]"
    settings, problems = read_settings(clients, "config.yaml", {})
    assert not problems
    fake_model.script(Reply(raw=json.dumps(chunk({"text": "hi"}, stop="STOP", **USED)).encode()))
    async with reaching(settings) as gateway:
        reply = await gateway.chat(Silent(), ChatRequest(model="gemini:flash", messages=HELLO.messages))
    assert (reply.text, reply.model, reply.usage.output_tokens) == ("hi", "gemini:flash", 8)
    (request,) = fake_model.requests
    assert request.path == "/v1beta/models/flash:generateContent"
    assert request.headers["x-goog-api-key"] == "secret"
