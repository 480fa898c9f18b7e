"""Half characters in JSON: replaced, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.protocol.json_values import decode_mended, replaced, values_in

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


OBJECT = '{"title": "x ```py y", "n": 3}'


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f"```json\n{OBJECT}\n```",
        f"Here it is:\n\n```json\n{OBJECT}\n```\nHope it helps!",
        f"```json\n{OBJECT}",
        f"~~~\n{OBJECT}\n~~~",
        f"Sure! {OBJECT} Done.",
        f"See [the note] (and {{this}}): {OBJECT}",
        '{"title": "x ```py y", "n": 3,}',
        f"The JSON: {OBJECT[:-1]},\n}} as asked.",
        json.dumps(OBJECT),
        "\ufeff" + OBJECT,
    ],
)
def test_a_value_is_found_in_what_a_model_wrote(text: str) -> None:
    assert json.loads(OBJECT) in list(values_in(text))


def test_commas_within_texts_stay() -> None:
    assert next(values_in('{"a": "1,}", "b": [1, 2,],}')) == {"a": "1,}", "b": [1, 2]}


def test_text_without_a_value_has_none() -> None:
    assert list(values_in("no [brackets that {close")) == []
    assert list(values_in("Sure! {} Done.", among_words=False)) == []


def test_text_of_many_brackets_is_searched_in_bounded_time() -> None:
    assert list(values_in("[" * 100_000)) == []
