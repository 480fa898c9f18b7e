"""Which command lines are one prompt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from callboard.cli.loki.routing import before_command, is_prompt, nearest
from callboard.cli.main import COMMANDS


@pytest.mark.parametrize(
    "line",
    [
        ["What is 2+2?"],
        ["give", "me", "a", "haiku"],
        ["what is a monad"],
        ["-r", "code", "run"],
        ["--list-models"],
        ["--", "run", "it"],
        ["run the tests"],
        ["stop the world"],
        ["zwei Wörter"],
        ["hello\nworld"],
        ["-C", "dir", "hello"],
        ["-C", "dir", "give", "me", "a", "haiku"],
        ["-m", "fake:model", "rnu", "coder"],  # a flag of Loki's in front says that it is one
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
        ["rnu", "coder"],
        ["ageent", "new", "x"],
        ["Valdiate", "flow.yaml"],
        ["what", "is", "a", "monad"],  # nearly `chat`
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


def slips(name: str) -> Iterator[str]:
    """The name with one edit at every place, and with two neighbours swapped."""
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield f"{name[:at]}x{name[at:]}"
        yield f"{name[:at]}x{name[at + 1 :]}"
        if at:
            yield name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.sample(16)
def test_no_slip_of_a_commands_name_is_a_prompt(name: str) -> None:
    for slip in filter(None, slips(name)):
        assert not is_prompt([slip, "coder"], COMMANDS), slip
        assert slip in COMMANDS or nearest(slip, COMMANDS) is not None, slip
        assert not is_prompt([slip], COMMANDS), slip
        assert is_prompt([f"{slip} the tests"], COMMANDS), slip


@pytest.mark.parametrize(("word", "meant"), [("rnu", "run"), ("serv", "serve"), ("cahtt", "chat"), ("elephant", None)])
def test_the_nearest_command_is_the_one_that_is_meant(word: str, meant: str | None) -> None:
    assert nearest(word, COMMANDS) == meant


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
