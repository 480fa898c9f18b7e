"""Foreign text can't command the terminal, and colours follow the customs."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.cli.render.text import colours, one_line, redrawable, safe


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@given(st.text())
def test_no_control_character_but_tab_and_newline_survives(text: str) -> None:
    kept = {c for c in safe(text) if unicodedata.category(c) == "Cc"}
    assert kept <= {"\t", "\n"}


@given(st.text())
def test_one_line_is_one_short_line(text: str) -> None:
    line = one_line(text, 40)
    assert len(line) <= 40
    assert "\n" not in line


def test_an_escape_sequence_is_shown_as_what_it_is() -> None:
    assert safe("\x1b]0;owned\x07 \x9b31m red") == "\\x1b]0;owned\\x07 \\x9b31m red"


def test_marks_that_reorder_a_line_are_spelled_out() -> None:
    assert safe("rm \u202egnp.exe") == "rm \\u202egnp.exe"


def test_ordinary_text_is_left_alone() -> None:
    text = "Grüße,\n\t世界 👩‍💻 naïve"
    assert safe(text) == text


@pytest.mark.parametrize(
    ("environment", "terminal", "pipe"),
    [
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False, False),
    ],
)
def test_colours_follow_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, pipe: bool
) -> None:
    for name in ("TERM", "NO_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colours(Terminal()) is terminal
    assert colours(io.StringIO()) is pipe


def test_no_color_still_allows_the_live_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert redrawable(Terminal())
