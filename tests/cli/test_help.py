"""Help in groups: what is used most fits a screen, and every command is in one group."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from callboard.cli.main import COMMANDS, GROUPS, USUAL, cli


def text_of(*arguments: str) -> str:
    ended = CliRunner().invoke(cli, [*arguments], prog_name="callboard")
    assert ended.exit_code == 0, ended.output
    return ended.output


def commands_in(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS]


def test_every_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_has_the_twenty_most_used_commands_on_one_screen(flag: str) -> None:
    text = text_of(flag)
    assert sorted(commands_in(text)) == sorted(USUAL)
    assert len(USUAL) == 20
    assert [line for line in text.splitlines() if line in GROUPS] == list(GROUPS)
    assert len(text.splitlines()) < 40  # and the prompt
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("line", [("--help", "--all"), ("-h", "--all"), ("--all", "--help")])
def test_help_all_has_every_command(line: tuple[str, str]) -> None:
    text = text_of(*line)
    assert sorted(commands_in(text)) == sorted(COMMANDS)
    assert all(len(line) <= 80 for line in text.splitlines())
