"""`.help`, `.list`, and words behind commands that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_person import Scripted
from support.messages import has_message

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.command_line import COMMANDS
from callboard.actors.front.chat.commands.info import HELP
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.options import KEYS
from callboard.protocol.errors import ConfigError, UsageError


def role(root: callboard.Root, name: str, text: str) -> Path:
    file = root.config_dir / "roles" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


async def play(chat: Chat, person: Scripted, *lines: str) -> None:
    for line in lines:
        await execute_line(chat, line, person)


async def test_help_fits_two_screens_and_all_of_it_is_in_groups(chat: Chat, person: Scripted) -> None:
    named = [name for described, others in HELP.values() for name in (*described, *others)]
    assert sorted([*named, ".help"]) == sorted(COMMANDS)
    await execute_line(chat, ".help", person)
    lines = person.text.splitlines()
    assert len(lines) <= 46
    assert all(len(line) <= 79 for line in lines)
    person.told.clear()
    await execute_line(chat, ".help all", person)
    assert all(f"\n  {name} " in person.text for name in named)


@pytest.mark.parametrize("line", [".help set", ".help .set", "/help set"])
async def test_help_of_a_command_tells_how_it_is_used(chat: Chat, person: Scripted, line: str) -> None:
    await execute_line(chat, line, person)
    assert person.text.startswith(".set <key> <value>\n  Change a setting for this chat\n")
    assert all(key in person.text for key in KEYS)


async def test_help_of_a_word_tells_of_all_commands_with_it(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".help session", person)
    wanted = (".session [name]", ".compress session", ".exit session")
    assert all(f"\n{each}\n" in f"\n{person.text}" for each in wanted)
    with pytest.raises(UsageError, match="there is no command 'sesion'; did you mean 'session'"):
        await execute_line(chat, ".help sesion", person)


@pytest.mark.parametrize("line", [".cost now", ".undo 2", ".tools all", ".exit role now", ".info role now", ".info x"])
async def test_words_behind_a_command_that_takes_none_are_refused(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(UsageError, match=r"^Usage: \."):
        await execute_line(chat, line, person)


async def test_lists_tell_what_roles_agents_and_macros_are_for(
    chat: Chat, person: Scripted, root: callboard.Root
) -> None:
    role(root, "broken", "---\ntemperature: hot\n---\n")
    for line, told in (
        (".list roles", "shell          Turns words into one command of your shell."),
        (".list agents", "Shows what an agent can do"),
        (".list macros", "generate-commit-message  Writes a commit message"),
        (".list roles", "broken         can't be read"),
    ):
        await execute_line(chat, line, person)
        assert told in person.told[-1].text


async def test_names_that_set_does_not_know_are_told(chat: Chat, person: Scripted) -> None:
    await play(chat, person, ".set enabled_tools fs_caat,fs_ls", ".set enabled_mcp_servers nope")
    assert has_message(person.text, "front.chat.commands.settings._check_names", name="fs_caat", hint="…'fs_cat'…")
    assert has_message(person.text, "front.chat.commands.settings._check_names.2", name="nope")
    with pytest.raises(ConfigError, match="unknown reranker model 'nope'"):
        await execute_line(chat, ".set rag_reranker_model nope", person)
