"""The `validation` of input nodes (D8.76)."""

from __future__ import annotations

import re

import pytest
from support.messages import says

from callboard.actors.engine.graph.input_validation import parse_rule
from callboard.protocol.errors import GraphMistake


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("len(input) >= 3", "abc", "ab"),
        ("len(input)>0", "x", ""),
        ("len(input) < 2", "x", "xx"),
        ("len(input) <= 1", "x", "xx"),
        (" len(input)  ==  2 ", "xx", "x"),
        ("len(input) > 2", "xxx", "xx"),
    ],
)
def test_d8_76_the_five_operators(rule: str, good: str, bad: str) -> None:
    parsed = parse_rule(rule)
    assert parsed.problem(good) is None
    assert parsed.problem(bad) == f"Input failed validation '{rule}' (got {len(bad)} chars)"


def test_d8_76_characters_in_standard_and_bytes_in_loki() -> None:
    parsed = parse_rule("len(input) == 1")
    assert parsed.problem("é") is None
    assert re.fullmatch(
        says("engine.graph.input_validation.LengthRule.problem", text="len(input) == 1", answer=1),
        parsed.problem("é", in_bytes=True),
    )


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("len(x) > 1", "Unsupported validation expression 'len(x) > 1'; only `len(input) OP N` is supported"),
        ("", "Unsupported validation expression ''; only `len(input) OP N` is supported"),
        ("len(input) != 1", "No comparison operator in validation expression 'len(input) != 1'"),
        ("len(input) = 1", "No comparison operator in validation expression 'len(input) = 1'"),
        ("len(input)", "No comparison operator in validation expression 'len(input)'"),
        ("len(input) > x", "Invalid right-hand side in validation 'len(input) > x'"),
        ("len(input) > -1", "Invalid right-hand side in validation 'len(input) > -1'"),
        ("len(input) > ", "Invalid right-hand side in validation 'len(input) > '"),
        ("len(input) > ٣", "Invalid right-hand side in validation 'len(input) > ٣'"),
    ],
)
def test_d8_76_what_is_no_rule(rule: str, text: str) -> None:
    with pytest.raises(GraphMistake) as caught:
        parse_rule(rule)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("len(input) >= 3", "at least 3 characters"),
        ("len(input) > 0", "more than 0 characters"),
        ("len(input) == 1", "exactly 1 character"),
    ],
)
def test_a_rule_can_be_told_to_a_person(rule: str, sentence: str) -> None:
    assert parse_rule(rule).sentence() == sentence
