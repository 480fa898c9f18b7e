"""`.delete`: what is named, or chosen, and nothing that is in use."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_person import Scripted
from support.messages import says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.errors import Conflict, NotFound, UsageError


def write(chat: Chat, folder: str, name: str, text: str) -> Path:
    home = chat.hub.root.config_dir / folder
    home.mkdir(exist_ok=True)
    (home / name).write_text(text)
    return home / name


async def test_a_role_is_deleted_when_the_person_says_yes(chat: Chat) -> None:
    file = write(chat, "roles", "pirate.md", "Talk like a pirate.")
    await execute_line(chat, ".delete role pirate", Scripted("no"))
    assert file.exists()
    await execute_line(chat, ".delete role pirate", Scripted("yes"))
    assert not file.exists()


async def test_several_are_chosen_from_a_list(chat: Chat) -> None:
    files = [write(chat, "macros", f"{name}.yaml", "steps: [hello]") for name in ("one", "two", "three")]
    person = Scripted(["one", "three"], "yes")
    await execute_line(chat, ".delete macro", person)
    assert sorted(person.asked[0].options) == ["one", "three", "two"]
    assert [file.exists() for file in files] == [False, True, False]


async def test_a_session_is_deleted_but_not_the_one_in_use(chat: Chat, person: Scripted) -> None:
    person.answers = ["yes"]
    await execute_line(chat, ".session kept", person)
    await execute_line(chat, "hello", person)
    with pytest.raises(Conflict, match=says("front.chat.commands.delete._delete_session")):
        await execute_line(chat, ".delete session kept", Scripted("yes"))
    await execute_line(chat, ".exit session", person)
    await execute_line(chat, ".delete session kept", Scripted("yes"))
    with pytest.raises(NotFound, match=says("front.chat.commands.delete._delete", called="session")):
        await execute_line(chat, ".delete session", person)


async def test_a_role_in_use_is_kept(chat: Chat, person: Scripted) -> None:
    file = write(chat, "roles", "pirate.md", "Talk like a pirate.")
    await execute_line(chat, ".role pirate", person)
    with pytest.raises(Conflict, match=says("front.chat.commands.delete._files.delete")):
        await execute_line(chat, ".delete role pirate", Scripted("yes"))
    assert file.exists()


@pytest.mark.parametrize("line", [".delete", ".delete thing", ".delete roles x"])
async def test_words_that_make_no_sense_tell_the_usage(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(UsageError, match=r"Usage: \.delete"):
        await execute_line(chat, line, person)


async def test_a_name_that_is_not_there_is_told_with_the_nearest(chat: Chat, person: Scripted) -> None:
    write(chat, "roles", "pirate.md", "Talk like a pirate.")
    with pytest.raises(NotFound, match=says("protocol.problems.suggestion", name="pirate")):
        await execute_line(chat, ".delete role pirat", person)
