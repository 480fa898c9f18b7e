"""Which command lines are one prompt."""

from __future__ import annotations

import pytest

from callboard.cli.loki.routing import before_command, is_prompt
from callboard.cli.main import COMMANDS


@pytest.mark.parametrize(
    "line",
    [
        ["What is 2+2?"],
        ["what", "is", "a", "monad"],
        ["-r", "code", "run"],
        ["--list-models"],
        ["--", "run", "it"],
        ["run the tests"],
        ["stop the world"],
        ["zwei Wörter"],
        ["hello\nworld"],
        ["-C", "dir", "hello"],
        ["-C", "dir", "what", "is", "a", "monad"],
        ["-C", "dir", "validat the flow"],
        ["-C", "dir", "-r", "code", "run"],
        [],
    ],
)
def test_one_prompt(line: list[str]) -> None:
    assert is_prompt(line, COMMANDS)


@pytest.mark.parametrize(
    "line",
    [
        ["run", "the", "tests"],  # a command is a command, whatever follows
        ["hello"],
        ["validat"],
        ["validat", "flow.yaml"],  # a slip costs nothing
        ["agnets", "list"],
        ["-h"],
        ["--help"],
        ["--version"],
        ["-V"],
        ["-C", "dir", "valut", "list"],
        ["-C", "dir", "validat"],
        ["--config-dir=dir", "validat", "flow.yaml"],
        ["-C", "dir", "-C", "other", "run", "x"],
        [" "],
    ],
)
def test_no_prompt(line: list[str]) -> None:
    assert not is_prompt(line, COMMANDS)


@pytest.mark.parametrize("flag", [["-C", "dir"], ["--config-dir", "dir"], ["--config-dir=dir"], ["-Cdir"]])
def test_a_configuration_may_be_named_in_front_of_a_command(flag: list[str]) -> None:
    assert before_command([*flag, "agents", "list"], COMMANDS) == ("dir", ["agents", "list"])


def test_the_last_configuration_counts_and_a_slip_behind_it_is_seen() -> None:
    assert before_command(["-C", "dir", "--config-dir=other", "run", "x"], COMMANDS) == ("other", ["run", "x"])
    assert before_command(["-C", "dir", "valut", "list"], COMMANDS) == ("dir", ["valut", "list"])


@pytest.mark.parametrize(
    "line", [["-C", "dir"], ["-C"], ["-C", "dir", "hello there"], ["-r", "x", "run"], ["run", "x"]]
)
def test_else_the_line_stays_as_it_is(line: list[str]) -> None:
    assert before_command(line, COMMANDS) == (None, line)
