"""`--var`, `--set`, `--answer` and `--answers` become values, or an error that says how to write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import has_message, says

from callboard.cli import flag_values
from callboard.protocol.errors import UsageError


def test_variables_split_at_the_first_equals_sign() -> None:
    assert flag_values.variables(["a=1", "b=x=y", "c=", "a=2"]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_a_variable_without_name_or_value_says_what_was_expected(pair: str) -> None:
    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        flag_values.variables([pair])


def test_set_reads_json_of_every_type() -> None:
    pairs = ['text="hi"', "n=3", 'deep={"a": [1, null, true]}', 'eq="a=b"']
    assert flag_values.state(pairs) == {"text": "hi", "n": 3, "deep": {"a": [1, None, True]}, "eq": "a=b"}


def test_a_bare_word_for_set_is_an_error_that_shows_the_quoting() -> None:
    with pytest.raises(UsageError) as caught:
        flag_values.state(["topic=bicycles"])
    assert has_message(str(caught.value), "cli.flag_values._json", key="topic", text="bicycles")


def test_nan_is_no_json() -> None:
    with pytest.raises(UsageError, match=says("cli.flag_values._no_constant", name="…NaN")):
        flag_values.state(["x=NaN"])


def test_answers_come_in_the_order_given_and_none_means_nobody_answers() -> None:
    assert flag_values.answers(["a", "b"], None) == ["a", "b"]
    assert flag_values.answers([], None) is None


def test_scalars_in_an_answers_file_stay_the_text_they_are_written_as(tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("- yes\n- 1.0\n- null\n- [a, on]\n")
    assert flag_values.answers([], str(file)) == ["yes", "1.0", "null", ["a", "on"]]


def test_an_answers_file_may_map_node_ids_to_one_or_several_answers(tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("gate: no\nask: [first, second]\n1: x\n")
    assert flag_values.answers([], str(file)) == {"gate": "no", "ask": ["first", "second"], "1": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("just text", says("cli.flag_values._answers_file.5")),
        ("- {a: 1}", says("cli.flag_values._answer")),
        ("a: [", says("cli.flag_values._answers_file.3")),
    ],
)
def test_an_answers_file_of_the_wrong_shape_says_so(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        flag_values.answers([], str(file))


def test_an_answers_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says("cli.flag_values._answers_file.2", path="…nowhere.yaml")):
        flag_values.answers([], str(tmp_path / "nowhere.yaml"))


def test_both_ways_of_answering_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says("cli.flag_values.answers")):
        flag_values.answers(["a"], str(tmp_path / "x"))
