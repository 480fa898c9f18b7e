"""Lines of ours on a narrow terminal."""

from __future__ import annotations

import io

import click
import pytest

from callboard.cli.failure import complain, report
from callboard.cli.render.wrap import wrapped

HELP = ".compress session   Replace the messages of the session by a summary"


@pytest.mark.parametrize(
    ("line", "columns", "rows"),
    [
        ("short", 40, ["short"]),
        ("", 40, [""]),
        ("one two three", 8, ["one two", "three"]),
        ("    did you mean 'clients' or another?", 24, ["    did you mean", "    'clients' or", "    another?"]),
        (
            HELP,
            40,
            [
                ".compress session   Replace the messages",
                "                    of the session by a",
                "                    summary",
            ],
        ),
        (HELP, 30, [".compress session   Replace", "the messages of the session by", "a summary"]),
        ("see http://127.0.0.1:8807/#token=abcdefgh now", 20, ["see", "http://127.0.0.1:8807/#token=abcdefgh", "now"]),
        ("文字 文字 文字", 10, ["文字 文字", "文字"]),
        ("a\tb " + "c" * 40, 20, ["a\tb " + "c" * 40]),
    ],
)
def test_a_line_is_broken_at_blanks_and_goes_on_where_its_text_stands(line: str, columns: int, rows: list[str]) -> None:
    assert wrapped(line, columns) == rows


@pytest.mark.parametrize("columns", range(1, 70))
def test_no_word_is_lost_at_any_width(columns: int) -> None:
    for line in (HELP, "  - a list  with  blanks in it, of some length", "x" * 30 + " y " + "z" * 30):
        assert " ".join(wrapped(line, columns)).split() == line.split()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of_40_columns(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    written = Terminal()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setenv("COLUMNS", "40")
    return written


def test_failures_break_between_words_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of_40_columns(monkeypatch)
    complain("api.openai.com:443 can't be reached: Name or service not known, after 3 tries")
    assert terminal.getvalue().splitlines() == [
        "callboard: api.openai.com:443 can't be",
        "    reached: Name or service not known,",
        "    after 3 tries",
    ]


def test_wrong_usage_breaks_between_words_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of_40_columns(monkeypatch)
    assert report(click.UsageError("There is no command 'rnu'; did you mean 'run'?"), ["rnu"]) == 2
    assert terminal.getvalue().splitlines()[-2:] == ["callboard: There is no command 'rnu';", "    did you mean 'run'?"]
