"""Lines of the chat as words."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.protocol.control.chat import split_files, split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  a  b ", ["a", "b"]),
        ("'a b' \"c d\" e\\ f", ["a b", "c d", "e f"]),
        ("`git diff --staged` x", ["`git diff --staged`", "x"]),
        (r'"say \"hi\""', ['say "hi"']),
        ("--out='a b' c", ["--out=a b", "c"]),
        ("an 'open quote", ["an", "open quote"]),
        ("it's fine", ["its fine"]),
        ("''", [""]),
        ("end\\", ["end\\"]),
    ],
)
def test_quotes_hold_blanks_together(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("line", "files", "text"),
    [
        ("f.txt -- hello", ("f.txt",), "hello"),
        ("file\\ 2.txt", ("file 2.txt",), ""),
        ("`git diff -- a` b -- it's -- so", ("`git diff -- a`", "b"), "it's -- so"),
        ("-- only text", (), "only text"),
        ("a--b", ("a--b",), ""),
        ("a '--' b", ("a", "--", "b"), ""),
    ],
)
def test_a_prompt_stands_behind_two_dashes(line: str, files: tuple[str, ...], text: str) -> None:
    assert split_files(line) == (files, text)


def test_a_long_line_takes_no_long_time() -> None:
    for line in ("\\" * 100_000, "'" * 100_001, '"\\' * 50_000, "`" * 100_001, " " * 100_000):
        split_words(line)


@given(st.lists(st.text(max_size=20), max_size=5))
def test_what_a_program_quotes_as_for_a_shell_is_the_same_words_here(words: list[str]) -> None:
    assert split_words(shlex.join(words)) == words
