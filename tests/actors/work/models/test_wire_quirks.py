"""Quirks that servers show on the wire, for every codec: a table of providers by quirks (`provider_wires`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.aws_messages import exception
from support.codec_bench import ADD, HELLO
from support.provider_wires import WIRES, Fragment, Wire, sse

from callboard.actors.work.models.codec import StreamOrWhole, check_reply, with_valid_ids
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    ImagePart,
    TextDelta,
    TextPart,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import EmptyReply, ModelError, ReplyFiltered, UpstreamError

ALPHA, BETA = {"text": "alpha"}, {"text": "beta"}

F = Fragment

FRAGMENTS = {
    "every call has index 0": [
        *(F(0, "a", "note"), F(0, arguments='{"text": '), F(0, arguments='"alpha"}')),
        *(F(0, "b", "note"), F(0, arguments='{"text": '), F(0, arguments='"beta"}')),
    ],
    "every call has index 0, and comes whole": [
        F(0, "a", "note", '{"text": "alpha"}'),
        F(0, "b", "note", '{"text": "beta"}'),
    ],
    "every call has index 0, and no id": [
        F(0, "", "note", '{"text": "alpha"}'),
        F(0, "", "note", '{"text": "beta"}'),
    ],
    "the index counts fragments": [
        *(F(0, "a", "note"), F(1, arguments='{"text": '), F(2, arguments='"alpha"}')),
        *(F(3, "b", "note"), F(4, arguments='{"text": "beta"}')),
    ],
    "two heads, then fragments by turns": [
        *(F(0, "a", "note"), F(1, "b", "note")),
        *(F(0, arguments='{"text": '), F(1, arguments='{"text": '), F(0, arguments='"alpha"}')),
        F(1, arguments='"beta"}'),
    ],
    "the second call has the same id": [
        F(0, "a", "note", '{"text": "alpha"}'),
        F(1, "a", "note", '{"text": "beta"}'),
    ],
    "the arguments come once more as a whole": [
        *(F(0, "a", "note"), F(0, arguments='{"text": '), F(0, arguments='"alpha"}')),
        F(0, arguments='{"text": "alpha"}'),
        F(1, "b", "note", '{"text": "beta"}'),
    ],
}

KEYED = {
    "each fragment has the id and another index": [
        *(F(0, "a", "note", '{"text": '), F(1, "a", "", '"alpha"}')),
        *(F(2, "b", "note", '{"text": '), F(3, "b", "", '"beta"}')),
    ],
    "each fragment has id and name": [
        *(F(0, "a", "note", '{"text": '), F(0, "a", "note", '"alpha"}')),
        *(F(0, "b", "note", '{"text": '), F(0, "b", "note", '"beta"}')),
    ],
    "each fragment has an id of its own": [
        *(F(0, "a", "note"), F(0, "x", "", '{"text": '), F(0, "y", "", '"alpha"}')),
        *(F(1, "b", "note"), F(1, "z", "", '{"text": "beta"}')),
    ],
    "each fragment has the name and no id": [
        *(F(0, "", "note", '{"text": '), F(0, "", "note", '"alpha"}')),
        *(F(0, "", "note", '{"text": '), F(0, "", "note", '"beta"}')),
    ],
    "the name comes behind the arguments": [
        *(F(0, "a", "", '{"text": '), F(0, "", "note", '"alpha"}')),
        *(F(1, "b", "", '{"text": '), F(1, "", "note", '"beta"}')),
    ],
}

PARTED = {name: wire for name, wire in WIRES.items() if wire.fragments is not None}
"""Gemini and Ollama send each call as a whole."""


@pytest.mark.parametrize("quirk", FRAGMENTS)
@pytest.mark.parametrize("wire", PARTED.values(), ids=PARTED)
def test_fragments_of_calls_are_joined(wire: Wire, quirk: str) -> None:
    """By id, then by name, then by an index that is one call's, else to the call that was open last."""
    _check_joined(wire, FRAGMENTS[quirk])


@pytest.mark.parametrize("quirk", KEYED)
@pytest.mark.parametrize("wire", [w for w in PARTED.values() if w.keyed], ids=[n for n, w in PARTED.items() if w.keyed])
def test_fragments_with_ids_and_names_of_their_own_are_joined(wire: Wire, quirk: str) -> None:
    """Only formats in which every fragment may have an id and a name: with others a fragment has neither."""
    _check_joined(wire, KEYED[quirk])


def test_fragments_without_an_index_are_joined() -> None:
    fragments = [
        F(None, "", "", '{"text": '),
        F(None, "a", "note", '"alpha"}'),
        F(None, "b", "note", '{"text": "beta"}'),
    ]
    _check_joined(WIRES["openai-compatible"], fragments)


def _check_joined(wire: Wire, fragments: list[Fragment]) -> None:
    assert wire.fragments is not None
    reply = wire.read(wire.fragments(fragments) + wire.ended(wire.ordinary))
    assert [(call.name, call.arguments, call.malformed) for call in reply.tool_calls] == [
        ("note", ALPHA, ""),
        ("note", BETA, ""),
    ]


def test_the_input_of_the_providers_own_tool_is_none_of_a_call() -> None:
    wire = WIRES["claude"]
    assert wire.fragments is not None
    stream = wire.fragments([F(0, "a", "note", '{"text": "alpha"}'), F(1, "s", "web_search", '{"query": "x"}')])
    stream = stream.replace(b'"type": "tool_use", "id": "s"', b'"type": "server_tool_use", "id": "s"')
    reply = wire.read(stream + wire.ended("end_turn"))
    assert [call.arguments for call in reply.tool_calls] == [ALPHA]


# --- a reply with nothing in it ---------------------------------------------------------------------------

FILTERS = [
    *(("openai", "content_filter"), ("openai-compatible", "sensitive"), ("openai-compatible", "SAFETY")),
    *(("responses", "content_filter"), ("claude", "refusal"), ("cohere", "ERROR_TOXIC")),
    *(("bedrock", "guardrail_intervened"), ("bedrock", "content_filtered"), ("ollama", "content_filter")),
    *(("gemini", reason) for reason in ("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "BLOCKLIST")),
]
"""Words with which providers say that a filter of theirs has stopped a reply."""

FAILURES = [
    *(("openai-compatible", reason) for reason in ("error", "insufficient_system_resource", "network_error")),
    *(("gemini", reason) for reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER")),
    *(("bedrock", reason) for reason in ("malformed_model_output", "malformed_tool_use")),
    *(("cohere", reason) for reason in ("ERROR", "TIMEOUT")),
    *(("ollama", reason) for reason in ("load", "unload")),
]
"""Words for an end that is none. The Responses API has a status for that, `failed`."""

LENGTHS = {
    "openai": "length",
    "openai-compatible": "length",
    "responses": "max_output_tokens",
    "claude": "max_tokens",
    "bedrock": "max_tokens",
    "cohere": "MAX_TOKENS",
    "gemini": "MAX_TOKENS",
    "ollama": "length",
}


def _replies(wire: Wire, text: str, reason: str) -> list[ChatReply]:
    """The reply with this text and end, streamed and whole."""
    said = wire.said(text) if text else b""
    return [wire.read(said + wire.ended(reason)), wire.decoded(wire.whole(text, reason))]


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_reply_without_text_and_calls_is_never_an_answer(wire: Wire) -> None:
    for text in ("", " \n"):
        for reply in _replies(wire, text, wire.ordinary):
            with pytest.raises(EmptyReply) as raised:
                check_reply(reply)
            assert raised.value.transient


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_reply_with_text_is_an_answer(wire: Wire) -> None:
    for reply in _replies(wire, "seven", wire.ordinary):
        check_reply(reply)
        assert (reply.text, reply.stop) == ("seven", "end")


@pytest.mark.parametrize("name", WIRES)
def test_a_reply_that_reached_its_bound_before_its_answer_is_not_asked_for_again(name: str) -> None:
    for reply in _replies(WIRES[name], "", LENGTHS[name]):
        with pytest.raises(EmptyReply, match=LENGTHS[name]) as raised:
            check_reply(reply)
        assert not raised.value.transient
    for reply in _replies(WIRES[name], "seven", LENGTHS[name]):
        check_reply(reply)


@pytest.mark.parametrize(("name", "reason"), FILTERS)
def test_what_a_filter_has_stopped_is_an_error_with_its_reason(name: str, reason: str) -> None:
    for text in ("", "Hal"):
        for reply in _replies(WIRES[name], text, reason):
            with pytest.raises(ReplyFiltered, match=reason):
                check_reply(reply)


@pytest.mark.parametrize(("name", "reason"), FAILURES)
def test_an_end_that_is_a_failure_is_an_error(name: str, reason: str) -> None:
    for text in ("", "Hal"):
        for reply in _replies(WIRES[name], text, reason):
            with pytest.raises(UpstreamError, match=reason) as raised:
                check_reply(reply)
            assert isinstance(raised.value, EmptyReply) is not bool(text)


@pytest.mark.parametrize("name", [name for name in WIRES if name != "responses"])
def test_an_end_by_a_word_that_is_not_known_is_the_end_of_what_was_said(name: str) -> None:
    for reply in _replies(WIRES[name], "seven", "something_new"):
        check_reply(reply)
        assert (reply.text, reply.stop) == ("seven", "end")
    for reply in _replies(WIRES[name], "", "something_new"):
        with pytest.raises(EmptyReply, match="something_new"):
            check_reply(reply)


def test_a_prompt_that_gemini_blocks_is_an_error_with_its_reason() -> None:
    reply = WIRES["gemini"].decoded({"promptFeedback": {"blockReason": "OTHER_NEW"}})
    with pytest.raises(ReplyFiltered, match="OTHER_NEW"):
        check_reply(reply)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"error": {"message": "engine died", "code": 500}}',
        b'{"error": "engine died"}',
        b'{"object": "error", "message": "engine died", "code": 500}',
        b'{"detail": "engine died"}',
        b'{"message": "engine died", "code": 500}',
    ],
)
@pytest.mark.parametrize("before", ["", "Hal"])
def test_an_error_within_a_stream_of_status_200_is_one(frame: bytes, before: str) -> None:
    wire = WIRES["openai-compatible"]
    with pytest.raises(UpstreamError, match="engine died"):
        wire.read((wire.said(before) if before else b"") + b"data: " + frame + b"\n\ndata: [DONE]\n\n")


def test_a_refusal_in_the_models_own_words_is_an_answer() -> None:
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
    for reply in (
        WIRES["responses"].decoded({"status": "completed", "output": [item]}),
        WIRES["openai"].decoded({"choices": [{"message": {"refusal": "I will not."}, "finish_reason": "stop"}]}),
    ):
        check_reply(reply)
        assert reply.text == "I will not."


# --- nulls, texts, tags -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", " \n", "null", "{}", '""', '"{}"'])
@pytest.mark.parametrize("wire", PARTED.values(), ids=PARTED)
def test_a_call_without_arguments_has_none(wire: Wire, given: str) -> None:
    assert wire.fragments is not None
    reply = wire.read(wire.fragments([F(0, "a", "ping", given)]) + wire.ended(wire.ordinary))
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, call.malformed) == ("ping", {}, "")


NULLS = {
    "openai-compatible": [
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}], "usage": None},
        {"choices": [{"index": None, "delta": {"content": None, "tool_calls": None}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [None]}}]},
    ],
    "responses": [
        {"type": "response.created", "response": None, "output_index": None},
        {"type": "response.output_item.added", "output_index": None, "item": None, "delta": None},
    ],
    "claude": [
        {"type": "message_start", "message": {"content": None, "usage": None}},
        {"type": "content_block_delta", "index": None, "delta": {"type": "text_delta", "text": None}},
        {"type": "content_block_delta", "index": 0, "delta": None},
    ],
    "cohere": [
        {"type": "content-start", "index": None, "delta": {"message": None}},
        {"type": "tool-plan-delta", "delta": None},
    ],
    "gemini": [
        {"candidates": None},
        {"candidates": [None]},
        {"candidates": [{"index": None, "content": {"parts": [{"text": None, "thought": None}, None]}}]},
        {"candidates": [{"content": {"parts": [{"text": "", "thoughtSignature": None}]}}]},
    ],
    "ollama": [
        {"message": None, "done": None},
        {"message": {"content": None, "tool_calls": [None]}, "error": None},
    ],
}
"""Frames with nulls where a list, an object or a text is due, by provider; Bedrock's are of its own making."""


@pytest.mark.parametrize("name", NULLS)
def test_null_is_as_if_it_were_not_there(name: str) -> None:
    wire = WIRES[name]
    frames = (json.dumps(frame).encode() for frame in NULLS[name])
    nulls = b"".join(frame + b"\n" if name == "ollama" else b"data: " + frame + b"\n\n" for frame in frames)
    assert wire.read(nulls + wire.said("seven") + nulls + wire.ended(wire.ordinary)).text == "seven"


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_an_answer_with_nulls_is_read(wire: Wire) -> None:
    whole = wire.whole("seven", wire.ordinary)
    assert wire.decoded({**whole, "usage": None, "error": None, "id": None, "object": None}).text == "seven"


def test_a_null_within_arguments_stays() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "note", "arguments": {"text": None}}}
    frame = {"choices": [None, {"index": 0, "delta": {"tool_calls": [call]}}]}
    wire = WIRES["openai-compatible"]
    reply = wire.read(b"data: " + json.dumps(frame).encode() + b"\n\n" + wire.ended("tool_calls"))
    assert reply.tool_calls[0].arguments == {"text": None}


USAGES: dict[str, dict[str, object]] = {
    "openai-compatible": {"usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}},
    "openai": {"usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}},
    "responses": {"usage": {"input_tokens": 12, "output_tokens": 3}},
    "claude": {"usage": {"input_tokens": 12, "output_tokens": 3}},
    "gemini": {"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3}},
    "cohere": {"usage": {"tokens": {"input_tokens": 12, "output_tokens": 3}}},
    "ollama": {"prompt_eval_count": 12, "eval_count": 3},
    "bedrock": {"usage": {"inputTokens": 12, "outputTokens": 3}},
}
"""Twelve tokens read and three written, as each provider says it."""

FIGURES: dict[str, Callable[[int], object]] = {
    "a number": int,
    "a fraction": lambda count: count + 0.0,
    "a text": str,
    "a text with a fraction": lambda count: f"{count}.0",
}
NO_FIGURES = ("many", "", "NaN", [], {"total": 1}, True, -1.5e300)


def written(usage: object, write: Callable[[int], object]) -> object:
    if isinstance(usage, dict):
        return {name: written(each, write) for name, each in usage.items()}
    assert isinstance(usage, int)
    return write(usage)


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("figure", FIGURES)
def test_token_counts_may_be_texts_or_have_a_fraction(name: str, figure: str) -> None:
    wire = WIRES[name]
    usage = written(USAGES[name], FIGURES[figure])
    assert isinstance(usage, dict)
    reply = wire.decoded({**wire.whole("seven", wire.ordinary), **usage})
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 3)


@pytest.mark.parametrize("name", WIRES)
def test_an_answer_whose_token_counts_are_no_numbers_is_read(name: str) -> None:
    wire = WIRES[name]
    for figure in NO_FIGURES:
        usage = written(USAGES[name], lambda _, figure=figure: figure)
        assert isinstance(usage, dict)
        assert wire.decoded({**wire.whole("seven", wire.ordinary), **usage}).text == "seven"
        assert wire.decoded({**wire.whole("seven", wire.ordinary), **dict.fromkeys(usage, figure)}).text == "seven"


TAGGED = ("openai-compatible", "ollama", "bedrock")
"""Codecs of models that may think in tags. Those of one maker's models know where thinking is."""


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize("text", ["So seven.\n</think>\n\nIt is seven.", "<think>So seven.\n</think>It is seven."])
def test_thinking_ends_at_its_tag_also_where_its_beginning_is_missing(name: str, text: str) -> None:
    wire = WIRES[name]
    for pieces in ([text], list(text)):
        reply = wire.read(b"".join(map(wire.said, pieces)) + wire.ended(wire.ordinary))
        assert (reply.text, reply.reasoning.strip()) == ("It is seven.", "So seven.")
    reply = wire.decoded(wire.whole(text, wire.ordinary))
    assert (reply.text, reply.reasoning.strip()) == ("It is seven.", "So seven.")


@pytest.mark.parametrize("text", ["The tag `</think>` ends it.", "Write <think>so</think> first."])
def test_a_tag_that_is_part_of_an_answer_stays(text: str) -> None:
    wire = WIRES["openai-compatible"]
    assert wire.read(wire.said(text) + wire.ended("stop")).text == text


# --- blank texts in the history ---------------------------------------------------------------------------


def _texts(value: Any) -> list[str]:
    """Every text that a request says, in whichever place its provider has for them."""
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    if not isinstance(value, dict):
        return []
    own = [each for key, each in value.items() if key in ("text", "content", "tool_plan") and isinstance(each, str)]
    return own + [text for each in value.values() for text in _texts(each)]


@pytest.mark.parametrize("blank", ["", " ", "\n\n"])
@pytest.mark.parametrize("name", WIRES)
def test_no_blank_text_is_sent(name: str, blank: str) -> None:
    """Anthropic refuses them for good: a history with one would end its session."""
    turns = (
        UserTurn((TextPart(blank), TextPart("hi"))),
        AssistantTurn(blank, (ToolCall(id="a", name="note"),)),
        ToolTurn(call="a", name="note", content="noted"),
        AssistantTurn(blank),
        UserTurn(blank),
    )
    body = WIRES[name].sent(ChatRequest(messages=turns, tools=(ADD,)))
    said = _texts(body.get("messages") or body.get("contents") or body["input"])
    if name == "ollama":  # a field of every message there, not a block
        said = [text for text in said if text]
    assert said, body
    assert all(text.strip() for text in said), body


# --- images under another name ----------------------------------------------------------------------------

IMAGES = {
    "image/png": b"\x89PNG\r\n\x1a\n....",
    "image/jpeg": b"\xff\xd8\xff\xe0....",
    "image/gif": b"GIF89a....",
    "image/webp": b"RIFF\x1a\x00\x00\x00WEBPVP8L",
}


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("name", [name for name in WIRES if name != "ollama"])
def test_the_media_type_of_an_image_is_that_of_its_bytes(name: str, kind: str) -> None:
    """Anthropic refuses any other, for good. Ollama's images have none."""
    given = "image/bmp"
    turn = UserTurn((TextPart("what?"), ImagePart(media_type=given, data=IMAGES[kind])))
    body = json.dumps(WIRES[name].sent(ChatRequest(messages=(turn,))))
    assert (f'"{kind.partition("/")[2]}"' if name == "bedrock" else kind) in body
    assert "bmp" not in body


# --- ends of streams, and answers that are none -----------------------------------------------------------

CUT = [name for name in WIRES if name != "bedrock"]
"""Codecs of streams in lines. Bedrock's messages say how long they are."""


def _heard(wire: Wire, *pieces: bytes, content_type: str = "") -> tuple[ChatReply, str]:
    """The reply to a streamed request, and the text that came in pieces."""
    answer = StreamOrWhole(wire.codec.encode(HELLO, "m", stream=True), content_type)
    deltas = [delta for piece in pieces for delta in answer.feed(piece)]
    deltas += answer.rest()
    return answer.finish(), "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize("lacks", [1, 2])
@pytest.mark.parametrize("name", CUT)
def test_the_last_event_of_a_stream_counts_without_its_line_ends(name: str, lacks: int) -> None:
    wire = WIRES[name]
    frames = wire.said("seven") + wire.ended(wire.ordinary).removesuffix(b"data: [DONE]\n\n")
    reply, heard = _heard(wire, frames.rstrip(b"\n") + b"\n" * (2 - lacks))
    assert (reply.text, reply.stop, heard) == ("seven", "end", "seven")


@pytest.mark.parametrize("name", CUT)
def test_a_last_event_that_is_cut_off_is_no_end(name: str) -> None:
    wire = WIRES[name]
    ended = wire.ended(wire.ordinary).removesuffix(b"data: [DONE]\n\n").rstrip(b"\n")
    with pytest.raises(UpstreamError):
        _heard(wire, wire.said("seven") + ended[:-3])


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/event-stream"])
@pytest.mark.parametrize("name", WIRES)
def test_a_whole_answer_to_a_streamed_request_is_read_as_one(name: str, content_type: str, indent: int | None) -> None:
    if name == "ollama" and "json" not in content_type:
        pytest.skip("lines of JSON are what a stream of Ollama's is")
    wire = WIRES[name]
    body = json.dumps(wire.whole("seven", wire.ordinary), indent=indent).encode()
    for pieces in ([body], [b" \n", body], [bytes([byte]) for byte in body], [b"\xef\xbb\xbf" + body]):
        reply, heard = _heard(wire, *pieces, content_type=content_type)
        assert (reply.text, reply.stop, heard) == ("seven", "end", "seven")


@pytest.mark.parametrize("name", WIRES)
def test_a_stream_is_one_whatever_its_content_type_says(name: str) -> None:
    wire = WIRES[name]
    reply, heard = _heard(wire, wire.said("sev"), wire.said("en"), wire.ended(wire.ordinary), content_type="text/plain")
    assert (reply.text, heard) == ("seven", "seven")
    stream = wire.said("sev") + wire.said("en") + wire.ended(wire.ordinary)
    assert _heard(wire, stream, content_type="application/json")[0].text == "seven"


@pytest.mark.parametrize("name", WIRES)
def test_an_answer_that_breaks_off_is_none(name: str) -> None:
    wire = WIRES[name]
    body = json.dumps(wire.whole("seven", wire.ordinary)).encode()
    with pytest.raises(ModelError):
        _heard(wire, body[:-4], content_type="application/json")


def test_a_list_of_chunks_is_a_stream_of_them() -> None:
    wire = WIRES["gemini"]
    chunks = [wire.whole("sev", ""), wire.whole("en", "STOP")]
    assert _heard(wire, json.dumps(chunks).encode())[0].text == "seven"


# --- arguments, counts and ids ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", [{"name": "ping"}, *({"name": "ping", "arguments": v} for v in (None, {}, "", "null"))]
)
def test_a_whole_call_without_arguments_has_none(function: dict[str, Any]) -> None:
    message = {"content": None, "tool_calls": [{"id": 7, "function": function}]}
    reply = WIRES["openai-compatible"].decoded({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert [(call.id, call.name, call.arguments, call.malformed) for call in reply.tool_calls] == [
        ("7", "ping", {}, "")
    ]


@pytest.mark.parametrize("name", WIRES)
def test_what_was_no_object_goes_back_as_one(name: str) -> None:
    """Templates of open models parse the arguments of the history; Gemini and Ollama get an empty object."""
    calls = (ToolCall(id="a", name="note"), ToolCall(id="b", name="note", malformed='{"a": 1}{"b"'))
    results = tuple(ToolTurn(call=call.id, name="note", content="x") for call in calls)
    body = WIRES[name].sent(ChatRequest(messages=(UserTurn("hi"), AssistantTurn("", calls), *results), tools=(ADD,)))
    for found in _found(body, {"arguments", "input", "args"}):
        if isinstance(found, list):  # the history of the Responses API
            continue
        assert isinstance(json.loads(found) if isinstance(found, str) else found, dict)


def _found(value: Any, keys: set[str]) -> list[Any]:
    """Every value under one of these keys, at any depth."""
    if isinstance(value, list):
        return [each for item in value for each in _found(item, keys)]
    if not isinstance(value, dict):
        return []
    return [each for key, each in value.items() if key in keys] + [
        x for each in value.values() for x in _found(each, keys)
    ]


IDS = {
    "openai": ("id", "tool_call_id"),
    "openai-compatible": ("id", "tool_call_id"),
    "responses": ("call_id", "call_id"),
    "claude": ("id", "tool_use_id"),
    "bedrock": ("toolUseId", "toolUseId"),
    "cohere": ("id", "tool_call_id"),
}
"""Where each format has the id of a call and of a result; Gemini's and Ollama's calls have none."""

ODD_IDS = {
    "characters": ["functions.note:0", "call/1", "ü", "a b"],
    "length": ["c" * 64, "d" * 64, "call_" + "1" * 60, "e"],
    "blank": ["", " ", "", "\n"],
    "the same in every turn": ["call_0"] * 4,
    "nearly what they become": ["call_0", "call_0 ", "call_1", "call_1 "],
}


@pytest.mark.parametrize("model", ["m", "mistralai/Ministral-8B"])
@pytest.mark.parametrize("ids", ODD_IDS.values(), ids=ODD_IDS)
@pytest.mark.parametrize("name", IDS)
def test_ids_of_calls_fit_the_provider_one_to_one(name: str, ids: list[str], model: str) -> None:
    def turns(number: int, *ids: str) -> tuple[Any, ...]:
        calls = tuple(ToolCall(id=id, name="note", arguments={"n": number + at}) for at, id in enumerate(ids))
        return AssistantTurn("", calls), *(ToolTurn(call=call.id, name="note", content="noted") for call in calls)

    history = (UserTurn("hi"), *turns(0, *ids[:2]), UserTurn("more"), *turns(2, *ids[2:]))
    outgoing = WIRES[name].codec.encode(ChatRequest(messages=history, tools=(ADD,)), model, stream=False)
    assert (
        outgoing.body == WIRES[name].codec.encode(ChatRequest(messages=history, tools=(ADD,)), model, stream=False).body
    )
    body = json.loads(outgoing.body)
    of_call, of_result = IDS[name]
    said = body.get("messages") or body["input"]
    if of_call == of_result:
        both = _found(said, {of_call})
        calls, results = (both[:2] + both[4:6], both[2:4] + both[6:])
    else:
        calls, results = _found(said, {of_call}), _found(said, {of_result})
    assert calls == results
    assert len(set(calls)) == 4
    pattern = r"[A-Za-z0-9]{9}" if name == "openai-compatible" and model != "m" else r"[A-Za-z0-9_-]{1,40}"
    assert all(re.fullmatch(pattern, id) for id in calls), calls


def test_ids_that_fit_stay() -> None:
    call = ToolCall(id="toolu_01A", name="note")
    turns = (UserTurn("hi"), AssistantTurn("", (call,)), ToolTurn(call="toolu_01A", name="note", content=""))
    assert with_valid_ids(turns) is turns


# --- more of a stream --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CUT)
def test_separators_of_lines_within_a_text_are_no_ends_of_lines(name: str) -> None:
    """U+2028, U+2029, and U+0085 may be in JSON as they are. Bedrock's messages say how long they are."""
    text = "a\u2028b\u2029c\u0085d"
    wire = WIRES[name]
    stream = wire.said(text) + wire.ended(wire.ordinary)
    for character in "\u2028\u2029\u0085":
        escaped = f"\\u{ord(character):04x}".encode()
        assert escaped in stream
        stream = stream.replace(escaped, character.encode())
    for pieces in ([stream], [stream[at : at + 7] for at in range(0, len(stream), 7)]):
        reply, heard = _heard(wire, *pieces)
        assert (reply.text, heard) == (text, text)


@pytest.mark.parametrize("given", ['{"text": "al', '{"text": "alpha", "more": ', "{"])
@pytest.mark.parametrize("name", PARTED)
def test_a_call_that_the_bound_of_the_reply_has_cut_is_not_made(name: str, given: str) -> None:
    wire = PARTED[name]
    assert wire.fragments is not None
    reply = wire.read(wire.fragments([F(0, "a", "note", given)]) + wire.ended(LENGTHS[name]))
    assert [(call.arguments, bool(call.malformed)) for call in reply.tool_calls] in ([], [({}, True)])


ERRORS = {
    "openai": b'data: {"error": {"message": "engine died", "type": "server_error"}}\n\n',
    "openai-compatible": b'data: {"error": {"message": "engine died"}}\n\n',
    "responses": b'data: {"type": "error", "message": "engine died", "code": "server_error"}\n\n',
    "claude": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "engine died"}}\n\n',
    "gemini": b'data: {"error": {"code": 500, "message": "engine died", "status": "INTERNAL"}}\n\n',
    "ollama": b'{"error": "engine died"}\n',
    "bedrock": exception("modelStreamErrorException", "engine died"),
    "cohere": sse({"type": "message-end", "delta": {"error": "engine died", "finish_reason": "ERROR"}}),
}
"""An error within a stream of status 200, as each provider says it."""


@pytest.mark.parametrize("before", ["", "Hal"])
@pytest.mark.parametrize("name", WIRES)
def test_an_error_within_the_stream_of_any_provider_is_one(name: str, before: str) -> None:
    wire = WIRES[name]
    with pytest.raises(UpstreamError, match="engine died"):
        wire.read((wire.said(before) if before else b"") + ERRORS[name])


RUNNING: dict[str, Callable[[int], bytes]] = {
    **dict.fromkeys(
        ("openai", "openai-compatible"),
        lambda count: sse(
            {
                "choices": [{"index": 0, "delta": {"content": "x"}}],
                "usage": {"prompt_tokens": 12, "completion_tokens": count},
            }
        ),
    ),
    "claude": lambda count: sse({"type": "message_delta", "delta": {}, "usage": {"output_tokens": count}}),
    "gemini": lambda count: sse(
        {
            "candidates": [{"content": {"parts": [{"text": "x"}]}}],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": count},
        }
    ),
}
"""A chunk with the tokens so far."""


@pytest.mark.parametrize("name", RUNNING)
def test_running_totals_of_tokens_are_not_added_up(name: str) -> None:
    wire = WIRES[name]
    reply = wire.read(
        wire.said("x") + b"".join(RUNNING[name](count) for count in (1, 2, 3)) + wire.ended(wire.ordinary)
    )
    assert reply.usage.output_tokens == 3


OBJECTS: dict[str, Callable[[dict[str, str]], Any]] = {
    **dict.fromkeys(
        ("openai", "openai-compatible"),
        lambda arguments: {
            "choices": [
                {
                    "message": {"tool_calls": [{"id": "a", "function": {"name": "note", "arguments": arguments}}]},
                    "finish_reason": "tool_calls",
                }
            ]
        },
    ),
    "responses": lambda arguments: {
        "status": "completed",
        "output": [{"type": "function_call", "call_id": "a", "name": "note", "arguments": arguments}],
    },
    "cohere": lambda arguments: {
        "message": {"tool_calls": [{"id": "a", "function": {"name": "note", "arguments": arguments}}]},
        "finish_reason": "TOOL_CALL",
    },
    "ollama": lambda arguments: {
        "message": {"tool_calls": [{"function": {"name": "note", "arguments": arguments}}]},
        "done": True,
        "done_reason": "stop",
    },
}
"""A whole answer with a call, by what its arguments are."""


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("name", OBJECTS)
def test_arguments_may_be_an_object_or_its_text(name: str, is_text: bool) -> None:
    given: Any = json.dumps(ALPHA) if is_text else ALPHA
    reply = WIRES[name].decoded(OBJECTS[name](given))
    assert [(call.name, call.arguments, call.malformed) for call in reply.tool_calls] == [("note", ALPHA, "")]


def test_content_as_a_list_of_thinking_and_text_is_parted() -> None:
    """Mistral's reasoning models."""
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "So seven."}]},
        {"type": "text", "text": "It is."},
    ]
    wire = WIRES["openai-compatible"]
    for reply in (
        wire.decoded({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}),
        wire.read(
            sse(*({"choices": [{"index": 0, "delta": {"content": [part]}}]} for part in content)) + wire.ended("stop")
        ),
    ):
        assert (reply.text, reply.reasoning) == ("It is.", "So seven.")


# --- the table ---------------------------------------------------------------------------------------------

WHOLE = dict.fromkeys(("gemini", "ollama"), "a call comes as a whole")
ONE_MAKER = "says itself what is thought: one maker's models, in a field of its own"
SEPARATE = dict.fromkeys(("responses", "claude", "bedrock"), "a fragment after the first has neither id nor name")
AT_THE_END = "tokens are in the last event alone"
AS_OBJECTS = dict.fromkeys(("claude", "bedrock", "gemini"), "arguments are an object by the format, and never a text")

TABLE: dict[str, tuple[Iterable[str], dict[str, str]]] = {
    "fragments of calls are joined": (PARTED, WHOLE),
    "fragments have ids and names": ([name for name, wire in PARTED.items() if wire.keyed], {**WHOLE, **SEPARATE}),
    "a call without arguments, streamed": (PARTED, WHOLE),
    "arguments are an object or a text": (OBJECTS, AS_OBJECTS),
    "arguments of the history are objects": (WIRES, {}),
    "ids of calls fit": (IDS, dict.fromkeys(("gemini", "ollama"), "calls have no ids")),
    "a call that is cut is not made": (PARTED, WHOLE),
    "an empty reply": (WIRES, {}),
    "an empty reply at its bound": (LENGTHS, {}),
    "a filter's word": ({name for name, _ in FILTERS}, {}),
    "a failure's word": (
        {name for name, _ in FAILURES},
        {
            **dict.fromkeys(("openai", "claude"), "has no word for a failure: errors are events and statuses"),
            "responses": "has a status for it, `failed`",
        },
    ),
    "an unknown word": (
        [name for name in WIRES if name != "responses"],
        {"responses": "`completed` is a status, and reasons are for incomplete replies alone"},
    ),
    "an error within the stream": (ERRORS, {}),
    "null is as if it were not there": (
        {*NULLS, "openai"},
        {"bedrock": "its messages are framed and typed by AWS; whole answers are in `nulls in an answer`"},
    ),
    "nulls in an answer": (WIRES, {}),
    "token counts that are texts or fractions": (USAGES, {}),
    "running totals of tokens": (RUNNING, dict.fromkeys(("responses", "bedrock", "cohere", "ollama"), AT_THE_END)),
    "thinking without its beginning": (
        TAGGED,
        dict.fromkeys(("openai", "responses", "claude", "gemini", "cohere"), ONE_MAKER),
    ),
    "no blank text is sent": (WIRES, {}),
    "images by their bytes": ([name for name in WIRES if name != "ollama"], {"ollama": "images have no media type"}),
    "the last event without its line ends": (CUT, {"bedrock": "a message says how long it is"}),
    "separators of lines within a text": (CUT, {"bedrock": "a message says how long it is"}),
    "a whole answer to a streamed request": (WIRES, {}),
    "a stream under another content type": (WIRES, {}),
    "an answer that breaks off": (WIRES, {}),
}
"""For each quirk the codecs that a test above holds to it, and why the others have no such thing."""


@pytest.mark.parametrize("quirk", TABLE)
def test_every_codec_is_held_to_every_quirk_or_has_a_reason(quirk: str) -> None:
    """A new codec in `WIRES` fails here until its row says what holds it, or why nothing does."""
    tested, not_applicable = TABLE[quirk]
    assert sorted({*tested, *not_applicable}) == sorted(WIRES)
    assert not set(tested) & set(not_applicable)
    assert all(not_applicable.values())
