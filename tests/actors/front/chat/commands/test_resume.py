"""`.resume`: an answer of a session whose process ended is told of, and goes on in the chat."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.chat_person import Scripted
from support.control_hub import hub_of
from support.fake_models import FakeModels, Reply
from support.messages import says

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.methods import opened
from callboard.protocol.control import chat as frames
from callboard.protocol.errors import Conflict

NOTE = "The answer to 'two' was interrupted"


async def interrupted(state: Path, config: Path, model: FakeModels) -> None:
    """A chat in session `s` has one answer, and the process ends while it waits for the second."""
    model.script("1")
    async with (
        callboard.Root(config_dir=config) as root,
        hub_of(root, state, durable=True, by="chat") as hub,
        trio.open_nursery() as nursery,
    ):
        chat, person = Chat(hub, "local"), Scripted()
        await execute_line(chat, ".session s", person)
        await execute_line(chat, "one", person)
        model.answer_with(lambda _: Reply(hold=trio.Event()))

        async def end() -> None:
            with trio.fail_after(60):
                while len(model.requests) < 2:
                    await trio.sleep(0.01)
            root.begin_stop()

        nursery.start_soon(end)
        await execute_line(chat, "two", person)


@pytest.fixture
def config(tmp_path: Path, fake_model: FakeModels) -> Path:
    return fake_model.config_dir(tmp_path / "config")


@pytest.mark.parametrize("by", ["command", "opening"])
async def test_who_opens_the_session_is_told_and_resume_goes_on_with_the_answer(
    tmp_path: Path, config: Path, fake_model: FakeModels, by: str
) -> None:
    await interrupted(tmp_path / "hub", config, fake_model)
    fake_model.answer_with(lambda _: Reply(text="2"))
    async with (
        callboard.Root(config_dir=config) as root,
        hub_of(root, tmp_path / "hub", durable=True, by="chat") as hub,
    ):
        chat, person = Chat(hub, "local"), Scripted()
        if by == "command":
            await execute_line(chat, ".session s", person)
            told = person.text
        else:
            told = "\n".join(await opened(chat, person, frames.OpenChat(session="s")))
        assert NOTE in told
        await execute_line(chat, ".resume", person)
        fake_model.script("3")
        await execute_line(chat, "three", person)
        kept = (await root.sessions.get(None, "s")).session
        texts = [each["content"] for each in kept.messages if each["role"] != "system"]
        assert texts == ["one", "1", "two", "2", "three", "3"]
        with pytest.raises(Conflict, match=says("front.chat.commands.resume._resume")):
            await execute_line(chat, ".resume", person)


async def test_an_answer_that_goes_on_is_taken_back_as_any_other(
    tmp_path: Path, config: Path, fake_model: FakeModels
) -> None:
    await interrupted(tmp_path / "hub", config, fake_model)
    fake_model.answer_with(lambda _: Reply(text="2"))
    async with (
        callboard.Root(config_dir=config) as root,
        hub_of(root, tmp_path / "hub", durable=True, by="chat") as hub,
    ):
        chat, person = Chat(hub, "local"), Scripted()
        for line in (".session s", ".resume", ".undo"):
            await execute_line(chat, line, person)
        kept = (await root.sessions.get(None, "s")).session
        assert [each["content"] for each in kept.messages if each["role"] != "system"] == ["one", "1"]
