"""Quirks that servers show on the wire, for every codec: a table of providers by quirks (`provider_wires`)."""

from __future__ import annotations

import pytest
from provider_wires import WIRES, Fragment, Wire

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
