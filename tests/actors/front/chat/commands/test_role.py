"""Roles and sessions by their names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from support.chat_person import Scripted
from support.fake_models import FakeModels
from support.messages import has_message

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.errors import NotFound


def role(root: callboard.Root, name: str, text: str) -> Path:
    file = root.config_dir / "roles" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


async def play(chat: Chat, person: Scripted, *lines: str) -> None:
    for line in lines:
        await execute_line(chat, line, person)


async def test_a_role_whose_name_has_blanks_is_taken_on(chat: Chat, person: Scripted, root: callboard.Root) -> None:
    role(root, "my code", "You write code.")
    await execute_line(chat, ".role my code", person)
    assert chat.role == "my code"


async def test_another_role_is_replaced_only_if_the_person_wants_it(chat: Chat, root: callboard.Root) -> None:
    role(root, "pirate", "Arr.")
    kept = role(root, "kept", "Keep me.")
    await play(chat, Scripted(), ".role pirate")
    await play(chat, Scripted("no"), ".save role kept")
    assert (kept.read_text(), chat.role) == ("Keep me.", "pirate")
    await play(chat, Scripted("yes"), ".save role kept")
    assert (kept.read_text().strip(), chat.role) == ("Arr.", "kept")


async def test_before_the_editor_opens_it_is_said_why(chat: Chat, person: Scripted) -> None:
    for line in (".role shel", ".macro nope"):
        person.edits = [None]
        with suppress(NotFound):
            await execute_line(chat, line, person)
    assert has_message(person.text, "front.chat.commands.role._made", base="shel", hint="…'shell'…")
    assert has_message(person.text, "front.chat.commands.files._new", name="nope")


async def test_a_session_that_gets_another_name_says_so(chat: Chat, person: Scripted) -> None:
    await play(chat, person, ".session one", "hello", ".save session two")
    assert has_message(person.told[-1].text, "front.chat.commands.session.save.2", name="two", before="one")


async def test_what_a_compressed_session_remembers_is_counted(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("one", "we spoke of one")
    await play(chat, person, ".session mytest", "first", ".compress session")
    assert (chat.info().turns, chat.info().tokens is not None) == (1, True)
