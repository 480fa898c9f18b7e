"""Sessions of a chat: what is kept of them, whose they are, and that nothing is forgotten on the way."""

from __future__ import annotations

import pytest
from support.chat_person import Scripted
from support.fake_models import FakeModels
from support.messages import has_message, says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.methods import opened
from callboard.actors.front.control.hub import Hub
from callboard.actors.runs.sessions.turn import StoredTurn
from callboard.actors.work.agent.history import HEAD
from callboard.protocol.chat import AssistantTurn, UserTurn
from callboard.protocol.control import chat as frames
from callboard.protocol.control.caller import Caller
from callboard.protocol.errors import Conflict


async def play(chat: Chat, person: Scripted, *lines: str) -> None:
    for line in lines:
        await execute_line(chat, line, person)


def asked(model: FakeModels) -> list[str]:
    """What the person has said, as the model sees it last."""
    return [each["content"] for each in model.requests[-1].json["messages"] if each["role"] == "user"]


@pytest.mark.parametrize(
    ("begin", "middle"),
    [
        ((".session", ".set save_session false"), ".save session x"),
        ((".session s", ".set save_session false"), ".fork b"),
        ((".set save_session false", ".session"), ".save session x"),
        ((".set save_session false", ".session"), ".save session"),
        ((".set save_session false", ".session"), ".fork b"),
    ],
)
async def test_a_session_that_is_kept_by_name_remembers_though_it_was_not_to_be_kept(
    chat: Chat, person: Scripted, fake_model: FakeModels, begin: tuple[str, ...], middle: str
) -> None:
    await play(chat, person, *begin, "one", middle, "two", "three")
    assert asked(fake_model) == ["one", "two", "three"]
    assert chat.place.turns == 3
    assert chat.session is not None
    assert chat.session.kept
    kept = (await chat.hub.root.sessions.get(None, chat.session.stored.id)).session
    assert [each["content"] for each in kept.messages if each["role"] == "user"] == ["one", "two", "three"]


async def test_a_chat_that_opens_a_session_without_keeping_it_remembers_and_leaves_the_file_alone(
    chat: Chat, person: Scripted, fake_model: FakeModels, hub: Hub
) -> None:
    other = Chat(hub, "local")
    await play(other, person, ".session foo", "before")
    await opened(chat, person, frames.OpenChat(session="foo", save_session=False))
    await play(chat, person, "one", "two")
    assert asked(fake_model) == ["before", "one", "two"]
    kept = (await hub.root.sessions.get(None, "foo")).session
    assert kept.save_session is None
    assert len(kept.messages) == 2


async def test_where_another_chat_has_a_session_kept_no_longer_what_is_said_is_remembered(
    chat: Chat, person: Scripted, fake_model: FakeModels, hub: Hub
) -> None:
    other = Chat(hub, "local")
    await play(chat, person, ".session s", "one")
    await play(other, person, ".session s", ".set save_session false")
    assert has_message(person.text, "front.chat.commands.settings._set.2")
    person.told.clear()
    await play(chat, person, "two", "three")
    assert has_message(person.text, "front.chat.commands.settings._set.2")
    assert asked(fake_model) == ["one", "two", "three"]


async def test_an_unnamed_session_belongs_to_who_has_kept_it(chat: Chat, hub: Hub, fake_model: FakeModels) -> None:
    scopes = frozenset({"run:agents", "read:runs", "write:runs", "write:sessions", "read:sessions"})
    bob = Scripted(caller=Caller("bob", scopes))
    chat = Chat(hub, "bob")
    await play(chat, bob, ".session", "bob's words", ".save session", "more")
    (meta,) = await hub.root.sessions.list(None)
    assert meta.owner == "bob"
    assert chat.place.turns == 2


async def test_an_unnamed_session_is_kept_with_all_that_it_has(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("word " * 100, "a summary", "ok", "a title")
    await play(chat, person, ".session", ".set temperature 0.3", "one", "two", ".compress session")
    before = chat.place.session
    await play(chat, person, ".save session")
    assert chat.session is not None
    kept = (await chat.hub.root.sessions.get(None, chat.session.stored.id)).session
    assert kept.temperature == 0.3
    assert kept.messages == before.messages
    assert kept.compressed_messages == before.compressed_messages
    assert len(kept.compressed_messages) == 4


async def test_a_session_that_is_to_be_kept_again_goes_on_in_its_file(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await play(chat, person, ".session s", "one", ".set save_session false", "two", ".set save_session true", "three")
    assert has_message(person.text, "front.chat.commands.settings._set")
    assert asked(fake_model) == ["one", "three"]
    kept = (await chat.hub.root.sessions.get(None, "s")).session
    assert [each["content"] for each in kept.messages if each["role"] == "user"] == ["one", "three"]
    assert kept.save_session is True


async def test_a_new_session_that_is_not_to_be_kept_makes_no_file_until_it_is(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await play(chat, person, ".set save_session false", ".session foo", "one")
    assert chat.info().session == "foo"
    assert await chat.hub.root.sessions.list(None) == []
    await play(chat, person, ".save session foo", "two")
    assert asked(fake_model) == ["one", "two"]
    (meta,) = await chat.hub.root.sessions.list(None)
    assert meta.alias == "foo"


async def test_such_a_session_is_made_at_its_end_if_it_is_to_be_kept_by_then(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    lines = (".set save_session false", ".session foo", "one", ".set save_session true", ".exit session")
    await play(chat, person, *lines)
    kept = (await chat.hub.root.sessions.get(None, "foo")).session
    assert [each["content"] for each in kept.messages if each["role"] == "user"] == ["one"]


async def test_a_summary_is_no_question_that_could_be_taken_back(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("word " * 200, "a summary")
    await play(chat, person, ".session kept", "tell me", ".compress session")
    with pytest.raises(Conflict, match=says("front.chat.commands.history._undo.3")):
        await execute_line(chat, ".undo", person)
    turn = StoredTurn(chat.place.stored)
    turn.keep((UserTurn(f"{HEAD}\nThey have asked."), AssistantTurn("so it is")))
    assert turn.session.messages[0]["within"]
    assert chat.place.last() is None
