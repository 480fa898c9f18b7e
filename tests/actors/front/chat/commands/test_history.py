"""`.undo`, `.regenerate`, `.continue`: what they take out and put in, also where others work with the same session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import has_message, says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.control.hub import Hub
from callboard.protocol.errors import Conflict


async def play(chat: Chat, person: Scripted, *lines: str) -> None:
    for line in lines:
        await execute_line(chat, line, person)


async def said(chat: Chat) -> list[str]:
    """All that is kept of what was said."""
    await chat.place.refresh(chat.hub, Scripted().caller)
    return [str(message["content"]) for message in chat.place.session.messages]


async def until(done: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not done():
            await trio.sleep(0.01)


async def gone(chat: Chat, person: Scripted, line: str, model: FakeModels, requests: int, hold: trio.Event) -> None:
    """Play a line whose client goes away while it is answered; returns when its run is over all the same."""
    chat.keep = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, line, person)
        await model.arrived(requests)
        nursery.cancel_scope.cancel()
    assert chat.run is not None
    hold.set()
    await until(lambda: chat.run is None)


async def test_undo_knows_a_prompt_that_was_interrupted_while_its_session_was_compressed(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("hi", "word " * 200, Reply("a summary", hold=trio.Event()))
    await play(chat, person, ".session kept", "first", ".set compression_threshold 100")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "second", person)
        await fake_model.arrived(3)
        await until(lambda: chat.run is None)
        chat.interrupt()
    await execute_line(chat, ".undo", person)
    assert "Taken back: second" in person.text
    assert await said(chat) == ["first", "hi"]


async def test_undo_knows_an_answer_that_came_when_who_had_asked_was_gone(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script("first answer", Reply("second answer", hold=hold))
    await play(chat, person, ".session s", "one")
    await gone(chat, person, "two", fake_model, 2, hold)
    assert chat.place.turns == 2
    await execute_line(chat, ".undo", person)
    assert await said(chat) == ["one", "first answer"]


async def test_undo_takes_back_what_this_chat_has_asked_and_not_what_another_has(
    chat: Chat, person: Scripted, fake_model: FakeModels, hub: Hub
) -> None:
    fake_model.script("a", "b", "c")
    other = Chat(hub, "local")
    await play(chat, person, ".session s")
    await play(other, person, ".session s")
    await play(chat, person, "A1")
    await play(other, person, "B1")
    await play(chat, person, ".undo")
    assert await said(chat) == ["B1", "b"]
    await play(other, person, "B2", ".undo", ".undo")
    assert await said(chat) == []


async def test_nothing_is_asked_again_where_another_has_asked_since(
    chat: Chat, person: Scripted, fake_model: FakeModels, hub: Hub
) -> None:
    fake_model.script("a", "b", " and more")
    other = Chat(hub, "local")
    await play(chat, person, ".session s")
    await play(other, person, ".session s")
    await play(chat, person, "A1")
    await play(other, person, "B1")
    with pytest.raises(Conflict, match=says("front.chat.commands.history._again.2")):
        await execute_line(chat, ".regenerate", person)
    assert await said(chat) == ["A1", "a", "B1", "b"]
    await execute_line(chat, ".continue", person)
    assert await said(chat) == ["A1", "a", "B1", "b and more"]


async def test_undo_of_a_prompt_that_failed_leaves_the_exchange_before_it(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("good", Reply(status=400, error="no"))
    await play(chat, person, "one", "two", ".undo")
    assert await said(chat) == ["one", "good"]
    assert has_message(person.text, "front.chat.commands.history._undo")
    await execute_line(chat, ".undo", person)
    assert await said(chat) == []


async def test_what_the_shell_has_written_waits_for_what_the_person_says(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("good answer", " more", "then")
    await play(chat, person, "first", "!echo SECRETLINE", ".continue", "what did it write?")
    assert "SECRETLINE" not in str(fake_model.requests[1].json)
    assert "SECRETLINE" in fake_model.requests[2].prompt
    assert (await said(chat))[1] == "good answer more"


async def test_an_answer_that_came_when_who_had_asked_was_gone_is_the_last(
    chat: Chat, person: Scripted, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = trio.Event()
    fake_model.script("first answer", Reply("second answer", hold=hold))
    await play(chat, person, "one")
    costs: list[float] = []
    monkeypatch.setattr(chat, "add_cost", lambda cost, **_: costs.append(cost))
    await gone(chat, person, "two", fake_model, 2, hold)
    await execute_line(chat, ".copy", person)
    assert person.copied == ["second answer"]
    assert len(costs) == 1


async def test_a_new_answer_stays_where_the_session_is_compressed_after_it(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("hi", "short", "word " * 300, "a summary")
    await play(chat, person, ".session kept", "first", "second", ".set compression_threshold 100", ".regenerate")
    (summary,) = await said(chat)
    assert summary.endswith("a summary")
    assert [each["content"] for each in chat.place.session.compressed_messages][:3] == ["first", "hi", "second"]


@pytest.mark.parametrize("session", ["", ".session s"])
@pytest.mark.parametrize("fails", [False, True])
async def test_asked_again_by_who_is_gone_then(
    chat: Chat, person: Scripted, fake_model: FakeModels, session: str, fails: bool
) -> None:
    hold = trio.Event()
    second = Reply(status=400, error="no", hold=hold) if fails else Reply("second answer", hold=hold)
    fake_model.script("first answer", second)
    await play(chat, person, *([session] if session else []), "one")
    await gone(chat, person, ".regenerate", fake_model, 2, hold)
    assert await said(chat) == ["one", "first answer" if fails else "second answer"]
    await execute_line(chat, ".undo", person)
    assert await said(chat) == []


@pytest.mark.parametrize("line", [".undo", ".regenerate"])
async def test_what_an_agent_was_told_meanwhile_begins_no_exchange(
    chat: Chat, person: Scripted, fake_model: FakeModels, line: str
) -> None:
    plan = Reply(calls=[("todo__init", {"goal": "g"}), ("todo__add", {"task": "t"})])
    fake_model.script("hi", plan, "working", "still working", "anew", "anew", "anew")
    await play(chat, person, ".set enabled_tools execute_command", ".session s", "hello")
    await play(chat, person, ".set auto_continue true", ".set max_auto_continues 1", "do it")
    assert len(fake_model.requests) == 4
    await play(chat, Scripted("no"), ".exit session", ".session s", line)
    assert (await said(chat))[:2] == ["hello", "hi"]
    assert (await said(chat))[2:3] == ([] if line == ".undo" else ["do it"])
    assert "still working" not in str(chat.place.session.messages)


@pytest.mark.parametrize("line", [".regenerate", ".retry"])
async def test_where_nothing_was_asked_nothing_is_asked_again(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(Conflict, match=says("front.chat.commands.history._again")):
        await execute_line(chat, line, person)


@pytest.mark.parametrize("line", [".regenerate", ".retry"])
async def test_the_question_asked_again_is_the_session_s_last_one_also_where_another_chat_has_asked_it(
    hub: Hub, chat: Chat, person: Scripted, fake_model: FakeModels, line: str
) -> None:
    fake_model.script("one", "two", "two again")
    await play(chat, person, ".session s", "first", ".exit session", ".session s")
    await play(Chat(hub, "local"), Scripted(), ".session s", "second")
    await execute_line(chat, line, person)
    assert await said(chat) == ["first", "one", "second", "two again"]
