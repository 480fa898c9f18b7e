"""Which letters bytes are, and what is no text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.io.encodings import binary, decoded

RUSSIAN = "Это простой текст на русском языке, и он достаточно длинный."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain", "ascii"),
        ("naïve café", "utf-8"),
        ("naïve café", "utf-8-sig"),
        ("naïve café", "utf-16"),
        ("naïve café", "utf-16-le"),
        ("naïve café", "utf-16-be"),
        ("naïve café", "utf-32"),
        ("naïve café costs 5 €", "cp1252"),
        (RUSSIAN, "cp1251"),
        ("これは日本語のテキストです。文字コードを当てます。", "shift_jis"),
    ],
)
def test_the_encoding_is_found_out(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    assert binary(data) == ""
    assert decoded(data) == text


def test_what_is_declared_is_believed_where_it_is_possible() -> None:
    assert decoded("łódź".encode("iso-8859-2"), "iso-8859-2") == "łódź"
    assert decoded("łódź".encode(), "iso-8859-2") == "łódź"
    assert decoded("café".encode("cp1252"), "ascii") == "café"
    assert decoded("café".encode("cp1252"), "no-such-charset") == "café"
    assert decoded("café".encode("cp1252"), "hex") == "café"


def test_a_broken_byte_does_not_make_utf_8_anything_else() -> None:
    assert decoded("größer als größer als größer".encode() + b"\xff") == "größer als größer als größer\ufffd"


def test_lines_end_in_one_way_only() -> None:
    assert decoded(b"a\r\nb\rc\nd") == "a\nb\nc\nd"


@given(st.binary(max_size=300))
def test_whatever_it_is_something_comes_out_that_can_be_written(data: bytes) -> None:
    text = decoded(data)
    assert "\r" not in text
    assert "\0" not in text
    text.encode()


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_utf_8_comes_out_as_it_went_in(text: str) -> None:
    assert decoded(text.encode()) == text.removeprefix("\ufeff")
    assert binary(text.encode()) == ""
