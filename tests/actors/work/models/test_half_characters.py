"""Half a surrogate pair in what a model says costs one character, in every format, whole and streamed."""

from __future__ import annotations

import json

import pytest
from support.fake_models import Reply, Request, body_of

from callboard.actors.engine.graph.nodes.model_nodes import read_json
from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.codec import Codec
from callboard.actors.work.models.gemini import GeminiCodec
from callboard.actors.work.models.ollama import OllamaCodec
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.protocol.chat import ChatReply, ChatRequest, UserTurn

HALVES = {"escaped": b"\\ud83d", "raw": b"\xed\xa0\xbd"}
HELLO = ChatRequest(messages=(UserTurn("hello"),))
CODECS = {
    "/v1/chat/completions": OpenAiCodec(own=False),
    "/v1/messages": AnthropicCodec(),
    "/api/chat": OllamaCodec(),
}
REPLY = Reply("hi HALF you", reasoning="so HALF", calls=[("add", {"a": "x HALF"})], piece=1000)


def answer(path: str, half: bytes, *, streamed: bool) -> bytes:
    request = Request("POST", path, {}, json.dumps({"model": "m", "stream": streamed}).encode())
    return b"".join(body_of(request, REPLY)).replace(b"HALF", half)


def reply_of(codec: Codec, body: bytes, *, streamed: bool) -> ChatReply:
    outgoing = codec.encode(HELLO, "m", stream=streamed)
    if not streamed:
        return outgoing.decode(body)
    reader = outgoing.reader()
    for start in range(0, len(body), 7):
        list(reader.feed(body[start : start + 7]))
    return reader.finish()


def check(reply: ChatReply) -> None:
    texts = [reply.text, reply.reasoning or "so \ufffd", str(reply.tool_calls[0].arguments["a"])]
    assert [text.replace("\ufffd" * 3, "\ufffd") for text in texts] == ["hi \ufffd you", "so \ufffd", "x \ufffd"]
    assert reply.tool_calls[0].malformed == ""


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("path", CODECS)
def test_half_characters_of_a_reply_are_replaced(path: str, half: str, *, streamed: bool) -> None:
    check(reply_of(CODECS[path], answer(path, HALVES[half], streamed=streamed), streamed=streamed))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("half", HALVES)
def test_half_characters_of_geminis_replies_are_replaced(half: str, *, streamed: bool) -> None:
    parts = [
        {"text": "so HALF", "thought": True},
        {"text": "hi HALF you"},
        {"functionCall": {"name": "add", "args": {"a": "x HALF"}}},
    ]
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP"}
    body = json.dumps({"candidates": [candidate]}).encode().replace(b"HALF", HALVES[half])
    check(reply_of(GeminiCodec(), b"data: " + body + b"\n\n" if streamed else body, streamed=streamed))


@pytest.mark.parametrize("streamed", [True, False])
def test_half_characters_within_the_json_text_of_arguments_are_replaced(*, streamed: bool) -> None:
    half = b"\\\\ud83d"
    path = "/v1/chat/completions"
    reply = reply_of(CODECS[path], answer(path, half, streamed=streamed), streamed=streamed)
    assert (reply.tool_calls[0].arguments, reply.tool_calls[0].malformed) == ({"a": "x \ufffd"}, "")
    assert reply.text == "hi \\ud83d you"


def test_half_characters_of_a_structured_answer_are_replaced() -> None:
    assert read_json('{"a": "x \\ud83d"}', None) == ({"a": "x \ufffd"}, [])
