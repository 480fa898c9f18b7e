"""Quirks that servers show on the wire, for every codec: a table of providers by quirks (`provider_wires`)."""

from __future__ import annotations

import pytest
from provider_wires import WIRES, Fragment, Wire

from callboard.actors.work.models.codec import check_reply
from callboard.protocol.chat import ChatReply
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
    *((name, "something_new") for name in WIRES if name != "responses"),
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
def test_an_end_for_a_reason_that_is_not_known_is_an_error(name: str, reason: str) -> None:
    for text in ("", "Hal"):
        for reply in _replies(WIRES[name], text, reason):
            with pytest.raises(UpstreamError, match=reason) as raised:
                check_reply(reply)
            assert isinstance(raised.value, EmptyReply) is not bool(text)


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
