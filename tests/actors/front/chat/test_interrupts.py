"""Interrupts at times of a short run, wherever it is then; `test_moments` has those that are chosen."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message
from support.waiting import until

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line


def check_strict(messages: list[dict[str, Any]]) -> None:
    """As strict providers do: every call has its result, right behind it, and no result stands alone."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert message["role"] in ("system", "user") or message.get("content") or message.get("tool_calls")
    assert not waiting
    assert messages[-1]["role"] == "user"


def story(request: Request) -> Reply:
    """Some words, slowly; then a call of a slow tool; then the end."""
    messages = request.json["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        return Reply("and that was all there is to say", gap=0.01)
    if request.prompt == "go on":
        return Reply("ok")
    return Reply("let me see what there is", calls=[("execute_command", {"command": "sleep 0.15"})], gap=0.01)


PLACES = [(place, moment) for place in ("", ".session", ".session kept") for moment in range(24)]
TENTH = random.Random(16).sample(PLACES, 8)


@pytest.mark.parametrize(
    ("place", "moment"), [pytest.param(*each, marks=[] if each in TENTH else pytest.mark.soak) for each in PLACES]
)
@pytest.mark.sample(3)
async def test_at_any_moment(chat: Chat, person: Scripted, fake_model: FakeModels, place: str, moment: int) -> None:
    settings = chat.hub.root.settings
    chat.hub.root.settings = msgspec.structs.replace(settings, permissions={"execute_command": "allow"})
    fake_model.answer_with(story)
    await execute_line(chat, ".set enabled_tools execute_command", person)
    if place:
        await execute_line(chat, place, person)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(execute_line, chat, "tell me", person)
            await trio.sleep(moment * 0.02)
            chat.interrupt()
    assert not chat.busy
    assert chat.run is None
    done = await execute_line(chat, "go on", person)
    assert done.status == "done"
    check_strict(fake_model.requests[-1].json["messages"])
    assert not [actor for actor in chat.hub.actors.tree(person.caller) if actor.run]
    taken = chat.place.turns
    await execute_line(chat, ".undo", person)
    assert chat.place.turns == taken - 1


async def test_during_the_compression_of_a_session(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script("word " * 200, Reply("a summary", hold=trio.Event()), "ok", "a summary")
    await execute_line(chat, ".set compression_threshold 100", person)
    await execute_line(chat, ".session kept", person)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "tell me", person)
        await fake_model.arrived(2)
        assert chat.run is None
        with trio.fail_after(60):
            assert chat.interrupt()
            while chat.busy:
                await trio.sleep(0.01)
    assert not chat.place.session.compressed_messages
    await execute_line(chat, ".set compression_threshold null", person)
    assert (await execute_line(chat, "go on", person)).status == "done"
    check_strict(fake_model.requests[-1].json["messages"])


async def test_a_prompt_during_the_compression_waits_for_it(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script("word " * 200, Reply("a summary", hold=hold), "fine")
    await execute_line(chat, ".set compression_threshold 100", person)
    await execute_line(chat, ".session kept", person)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "tell me", person)
        await fake_model.arrived(2)
        await until(lambda: chat.info().doing is not None)  # what clients show meanwhile
        nursery.start_soon(execute_line, chat, "and now?", person)
        await trio.sleep(0.05)
        hold.set()
    assert chat.reply == "fine"
    assert chat.info().doing is None
    assert [each.text for each in person.told][-2] == "Compressing the session."
    assert has_message(person.told[-1].text, "front.chat.prompting.shortened_by")
    assert has_message(str(fake_model.requests[2].json), "runs.sessions.summary")


async def test_a_command_during_the_compression_waits_for_it(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script("word " * 200, Reply("a summary", hold=hold))
    await execute_line(chat, ".set compression_threshold 100", person)
    await execute_line(chat, ".session kept", person)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "tell me", person)
        await fake_model.arrived(2)
        nursery.start_soon(execute_line, chat, ".empty session", person)
        await trio.sleep(0.05)
        assert chat.busy
        hold.set()
    assert chat.place.is_empty


async def test_while_an_agent_asks_the_person(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script(Reply(calls=[("user__input", {"question": "Who?"})]), "ok")
    await execute_line(chat, ".set enabled_tools fs_cat", person)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "ask me", person)
        with trio.fail_after(60):
            while not chat.hub.questions(person.caller):
                await trio.sleep(0.01)
        chat.interrupt()
    assert not chat.hub.questions(person.caller)
    await execute_line(chat, "go on", person)
    check_strict(fake_model.requests[-1].json["messages"])


async def test_nothing_is_left_of_a_line_of_the_shell(chat: Chat, person: Scripted, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, f"!echo $$ > {pid}; sleep 100; touch {tmp_path}/done", person)
        await until(lambda: pid.exists() and pid.read_text(), 60)
        chat.interrupt()
    await until(lambda: not psutil.pid_exists(int(pid.read_text())), 60)
    assert not (tmp_path / "done").exists()
