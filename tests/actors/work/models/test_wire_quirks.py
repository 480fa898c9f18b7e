"""Quirks that servers show on the wire, for every codec: a table of providers by quirks (`provider_wires`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.codec_bench import ADD
from support.provider_wires import WIRES, Fragment, Wire

from callboard.actors.work.models.codec import check_reply
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    ImagePart,
    TextPart,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import EmptyReply, ReplyFiltered, UpstreamError

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


def test_token_counts_may_be_texts_or_have_a_fraction() -> None:
    usage = {"prompt_tokens": "12", "completion_tokens": 3.0, "total_tokens": 15.5}
    choice = {"message": {"content": "seven"}, "finish_reason": "stop"}
    reply = WIRES["openai-compatible"].decoded({"choices": [choice], "usage": usage})
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 3)


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
