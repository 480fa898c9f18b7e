"""Lines of cassettes."""

from __future__ import annotations

import msgspec
import pytest

from callboard.protocol.cassette import AnswerLine, CassetteEnd, Head, Line, read_cassette
from callboard.protocol.errors import InvalidFile


def text_of(*lines: Line) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def test_a_text_may_hold_characters_that_end_a_line_for_python() -> None:
    lines = [
        Head(prompt="one\u2028two\u2029three\u0085four\x0bfive\x1csix"),
        AnswerLine(at="/a", question="a\u2028b", value="c\u2029d", by="terminal"),
        CassetteEnd(status="done"),
    ]
    assert read_cassette(text_of(*lines), "x") == lines


def test_a_cassette_without_a_version_is_of_version_1_and_a_later_one_is_refused() -> None:
    assert read_cassette('{"line":"cassette"}\n{"line":"end","status":"done"}\n', "x")[0] == Head(version=1)
    with pytest.raises(InvalidFile):
        read_cassette(text_of(Head(version=2), CassetteEnd(status="done")), "x")
