"""Half characters in JSON: replaced, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.protocol.json_values import decode_mended, replaced

TEXTS = st.text(st.characters(codec=None))  # half surrogate pairs included


def read(text: str | bytes) -> Any:
    return decode_mended(msgspec.json.decode, text)


@pytest.mark.parametrize(
    ("json_text", "value"),
    [
        (r'"a\ud83d b"', "a\ufffd b"),
        (r'"\ude00"', "\ufffd"),
        (r'"\ud83d\ud83d\ude00"', "\ufffd😀"),
        (r'"\uD83D\uDE00"', "😀"),
        (r'"\\ud83d \ud83d"', "\\ud83d \ufffd"),
        (r'{"\ud83d": ["\udfff"]}', {"\ufffd": ["\ufffd"]}),
        (b'"caf\xe9 \xed\xa0\xbd"', "caf\ufffd \ufffd\ufffd\ufffd"),
    ],
)
def test_a_half_character_becomes_the_replacement_character(json_text: str | bytes, value: Any) -> None:
    assert read(json_text) == value


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=10))
def test_any_text_that_python_can_hold_is_read_as_what_utf_8_can_say(value: Any) -> None:
    found = read(json.dumps(value))
    msgspec.json.encode(found)
    sound = json.loads(json.dumps(value), object_pairs_hook=dict)
    try:
        msgspec.json.encode(sound)
    except UnicodeEncodeError:
        return
    assert found == sound


@pytest.mark.parametrize("text", [r'"\ud83d', '{"a": }', b"\xff\xfe", "", "[" * 5000])
def test_what_is_no_json_for_other_reasons_is_refused_as_ever(text: str | bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        read(text)


def test_text_without_half_characters_is_left_as_it_is() -> None:
    assert replaced(r'{"a": "\n\u00e9 \\ \" \ud83d\ude00"}') == r'{"a": "\n\u00e9 \\ \" \ud83d\ude00"}'
