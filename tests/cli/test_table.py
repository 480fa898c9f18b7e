"""Lists in columns: as wide as they look, and on a terminal no wider than that."""

from __future__ import annotations

import os
import sys

import pytest

from callboard.cli.render.text import columns, table, table_of_figures, width_of

ROWS = [("a", "1"), ("日本語", "2"), ("nai\u0308ve", "3")]


def test_columns_are_as_wide_as_they_look() -> None:
    assert columns(ROWS) == ["  a       1", "  日本語  2", "  nai\u0308ve   3"]
    assert columns([]) == []


@pytest.mark.parametrize(
    ("text", "width"), [("\u26a0\ufe0f x", 4), ("\U0001f1e9\U0001f1ea", 2), ("a\u200bb", 2), ("\u2764\ufe0f", 2)]
)
def test_flags_emoji_and_characters_without_width_take_the_columns_of_a_terminal(text: str, width: int) -> None:
    assert width_of(text) == width
    assert columns([(text, "1"), ("x" * width, "2")]) == [f"  {text}  1", f"  {'x' * width}  2"]


@pytest.mark.parametrize(
    ("width", "shown"), [(80, "日本語  2"), (9, "日本語  2"), (8, "日本語 …"), (6, "日本…"), (5, "日本…")]
)
def test_on_a_terminal_no_line_is_wider_than_that(monkeypatch: pytest.MonkeyPatch, width: int, shown: str) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 24)))
    line = table(ROWS).splitlines()[1]
    assert line == shown
    assert width_of(line) <= width


def test_a_program_that_reads_a_list_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert table([("a", "x" * 500)]) == f"a  {'x' * 500}\n"


NAMES = [("DAY", "WHO"), ("today", "日本語の名前"), ("total", "")]
WHOLE = [("COUNT", "COST"), ("12,345", "$1"), ("12,345", "$1")]
SHORT = [("COST",), ("$1",), ("$1",)]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (33, "today  日本語の名前  12,345    $1"),
        (30, "today  日本語の名前    $1"),
        (20, "today  日本語…    $1"),
        (4, "…  …"),
    ],
)
def test_names_are_cut_before_figures_and_figures_left_out_before_names(
    monkeypatch: pytest.MonkeyPatch, width: int, shown: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 24)))
    line = table_of_figures(NAMES, WHOLE, SHORT).splitlines()[1]
    assert line == shown
    assert width_of(line) <= width


def test_a_program_gets_names_and_figures_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert table_of_figures([("A",), ("x" * 300,)], [("B",), ("1",)], [("C",), ("1",)]).splitlines() == [
        f"A{' ' * 299}  B",
        f"{'x' * 300}  1",
    ]
