"""The rewording check: other words, equal facts, and the messages that an output quotes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutation.reword import Attribution, report, reword
from support.message_source import message_nodes, template_of

TEXTS = {
    "a.find": "there is no agent {name!r} in {directory}",
    "a.read": "the file {path} could not be read",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("there is no agent ", "theeree~7~ iis noo aageent "),
        ("no", "noo~7~"),
        ("use `callboard run` or --allow x_y in a/b.yaml", "uusee~7~ `callboard run` oor --allow x_y iin a/b.yaml"),
        ("{name} of 'one two'", "{name} oof~7~ 'one two'"),
        ("ABC: 'one two'", "ABC: 'one two'"),
    ],
)
def test_words_change_and_facts_do_not(text: str, expected: str) -> None:
    assert reword(text, 7) == expected


def test_a_failure_belongs_to_the_message_whose_old_words_it_quotes() -> None:
    words = Attribution(TEXTS)
    output = "assert 'there is no agent' in \"theeree~1~ iis noo aageent 'x' iin~1~ /a\""
    assert words.find(output, {"a.find"}, set()) == {"a.find"}
    assert words.find(output, {"a.find"}, {"a.find"}) == set()
    assert words.find("assert 'gone' in 'thee~2~ fiilee x'", {"a.read"}, set()) == set()


def test_the_report_names_messages_that_several_tests_quote(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"folder": "t", "messages": {"t.py::one": ["a.find", "a.read"], "t.py::two": ["a.find"]}, "unexplained": {}}
    assert report([row], every=False) == 1
    printed = capsys.readouterr().out
    assert "a.find" in printed
    assert "a.read" not in printed


@pytest.mark.parametrize(
    "code",
    [
        "'select run from runs where id = %s'",
        "'SELECT run FROM runs of this'",
        "'\\nwith dead as (select sign from workers)'",
        "'no such table' in str(error)",
        "re.compile('one or two words')",
        "text.startswith('the words of another')",
    ],
)
def test_sql_patterns_and_compared_texts_are_no_messages(code: str) -> None:
    assert list(message_nodes(ast.parse(f"x = {code}"), Path("actors/a.py"))) == []


@pytest.mark.parametrize(
    "text", ["select a file of the list", "with every program of it", "create it, or name another"]
)
def test_sentences_that_begin_with_an_sql_keyword_are_messages(text: str) -> None:
    ((key, node),) = message_nodes(ast.parse(f"def f():\n    return {text!r}"), Path("actors/a.py"))
    assert (key, template_of(node)) == ("a.f", text)
