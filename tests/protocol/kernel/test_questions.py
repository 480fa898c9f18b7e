"""What an answer means: one rule for all front ends."""

from __future__ import annotations

import pytest

from callboard.protocol.kernel.questions import Question, understood, yes_or_no


def asked(kind: str, *options: str, **more: object) -> Question:
    return Question(**{"id": "q", "actor": "", "text": "?", "kind": kind, "options": options} | more)


@pytest.mark.parametrize(
    ("options", "given", "meant"),
    [
        (("yes", "no"), "Yes", "yes"),
        (("yes", "no"), " y\n", "yes"),
        (("yes", "no"), "N", "no"),
        (("Yes", "No"), "true", "Yes"),
        (("accept", "reject"), "ACCEPT ", "accept"),
        (("accept", "reject"), "y", "y"),
        (("accept", "reject"), " more sources ", " more sources "),
        (("a", "A"), "A", "A"),
        (("ab", "AB"), "Ab", "Ab"),
        (("y", "yes"), "Y", "y"),
        (("yes", "no"), "1", "1"),
        (("yes", "no"), "", ""),
        (("straße",), "STRASSE", "straße"),
    ],
)
def test_an_option_is_meant_in_any_case_with_blanks_and_abbreviated_and_other_texts_stay(
    options: tuple[str, ...], given: str, meant: str
) -> None:
    assert understood(asked("choice", *options), given) == meant


def test_a_question_that_wants_its_options_exactly_gets_what_was_written() -> None:
    assert understood(asked("choice", "yes", exact=True), "Yes") == "Yes"


@pytest.mark.parametrize(
    ("given", "meant"), [("Y", "yes"), ("true", "yes"), ("1", "yes"), (" No ", "no"), ("0", "no"), ("maybe", "maybe")]
)
def test_a_question_of_yes_or_no_is_answered_so(given: str, meant: str) -> None:
    assert understood(asked("confirm"), given) == meant
    assert (yes_or_no(given) or given) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["A", " b"], ["a", "b"]),
        (["a", "z"], ["a", "z"]),
        ("a, B", ["a", "b"]),
        ("c, d", ["c, d"]),
        ("a, z", "a, z"),
        ("", []),
        ([], []),
    ],
)
def test_boxes_are_a_list_or_a_text_with_commas(given: str | list[str], meant: str | list[str]) -> None:
    assert understood(asked("checkbox", "a", "b", "c, d"), given) == meant


def test_a_text_is_an_answer_as_it_is() -> None:
    assert understood(asked("text"), " Yes\n") == " Yes\n"


@pytest.mark.parametrize(
    ("kind", "default", "meant"),
    [
        ("text", "blue", "blue"),
        ("text", None, ""),
        ("confirm", "y", "yes"),
        ("choice", "A", "a"),
        ("checkbox", "a,b", ["a", "b"]),
    ],
)
def test_an_empty_answer_means_the_default(kind: str, default: str | None, meant: object) -> None:
    assert understood(asked(kind, "a", "b", default=default), "") == meant
    assert understood(asked("text", default="blue"), " ") == " "
