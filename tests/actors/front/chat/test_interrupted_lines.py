"""An interrupt is for all lines that came before it: those that wait for their turn, and those that only look, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import has_message
from trio.testing import wait_all_tasks_blocked

from callboard.actors.front.chat.chat import Chat, LineTurn
from callboard.actors.front.chat.command_line import COMMANDS
from callboard.actors.front.chat.execution import execute_in_turn, execute_line
from callboard.protocol.control.chat import AskPerson, LineDone
from callboard.protocol.errors import Conflict


class Pondering(Scripted):
    """Answers no question."""

    async def ask(self, asked: AskPerson) -> str | list[str] | None:
        self.asked.append(asked)
        await trio.sleep_forever()


class Played:
    """Lines that are played at once, each in a task of its own; what became of them, in their order."""

    def __init__(self, chat: Chat, person: Scripted, nursery: trio.Nursery) -> None:
        self.ended: dict[str, LineDone | Conflict] = {}
        self._chat = chat
        self._person = person
        self._nursery = nursery

    def send(self, *lines: str) -> None:
        for line in lines:
            self._nursery.start_soon(self._play, line, self._chat.order.join())

    async def _play(self, line: str, turn: LineTurn) -> None:
        try:
            self.ended[line] = await execute_in_turn(self._chat, line, self._person, turn)
        except Conflict as error:
            self.ended[line] = error

    @property
    def how(self) -> list[tuple[str, str | None]]:
        return [(line, each.status if isinstance(each, LineDone) else str(each)) for line, each in self.ended.items()]


Play = Callable[[Callable[[Played], Awaitable[None]]], Awaitable[Played]]


@pytest.fixture
def play(chat: Chat) -> Play:
    async def play(body: Callable[[Played], Awaitable[None]]) -> Played:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                played = Played(chat, Pondering(), nursery)
                await body(played)
        return played

    return play


async def test_lines_that_wait_are_interrupted_with_the_one_that_they_wait_for(
    chat: Chat, play: Play, fake_model: FakeModels
) -> None:
    async def body(played: Played) -> None:
        await execute_line(chat, "hello", Scripted())
        played.send(".session kept", ".fork copy", "behind it")
        await wait_all_tasks_blocked()
        assert chat.interrupt()
        played.send("and now?")  # while they end

    played = await play(body)
    assert sorted(played.how)[:3] == [(".fork copy", "cancelled"), (".session kept", "cancelled"), ("and now?", "done")]
    assert played.how[-1] == ("and now?", "done")
    assert "behind it" not in str([each.json for each in fake_model.requests])
    assert chat.session is None


async def test_a_line_in_its_first_step_is_interrupted_though_it_waits_nowhere(chat: Chat, play: Play) -> None:
    """`.set` has no point at which it could be cancelled."""

    async def body(played: Played) -> None:
        played.send(".set temperature 0.5")
        assert chat.interrupt()

    assert (await play(body)).how == [(".set temperature 0.5", "cancelled")]
    assert "temperature" not in chat.info().settings


async def test_a_command_that_only_looks_is_interrupted_too(
    chat: Chat, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def long(_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setitem(COMMANDS, ".info", replace(COMMANDS[".info"], play=long))

    async def body(played: Played) -> None:
        played.send(".info")
        await wait_all_tasks_blocked()
        assert not chat.busy
        assert chat.interrupt()

    assert (await play(body)).how == [(".info", "cancelled")]
    assert not chat.interrupt()


async def test_what_is_sent_while_an_interrupted_run_ends_is_no_steering_of_it(
    chat: Chat, play: Play, fake_model: FakeModels
) -> None:
    fake_model.script(Reply("slow", hold=trio.Event()), "well")

    async def body(played: Played) -> None:
        played.send("tell me")
        await fake_model.arrived(1)
        assert chat.interrupt()
        played.send(".set temperature 0.5", "another")

    played = await play(body)
    assert played.how == [("tell me", "cancelled"), (".set temperature 0.5", None), ("another", "done")]
    assert chat.info().settings["temperature"] == 0.5


async def test_a_chat_that_is_closed_refuses_the_lines_that_wait(chat: Chat, play: Play) -> None:
    async def body(played: Played) -> None:
        await execute_line(chat, "hello", Scripted())
        played.send(".session kept", ".fork copy", "behind it")
        await wait_all_tasks_blocked()
        chat.close()

    why = "this chat was closed"
    assert dict((await play(body)).how) == {".session kept": "cancelled", ".fork copy": why, "behind it": why}


@pytest.mark.parametrize("again", [".retry", ".undo"])
async def test_a_prompt_that_was_interrupted_before_its_run_is_the_last(
    chat: Chat, play: Play, person: Scripted, fake_model: FakeModels, again: str
) -> None:
    async def body(played: Played) -> None:
        await execute_line(chat, "hello", person)
        played.send("tell me")
        while not chat.busy:
            await trio.lowlevel.checkpoint()
        assert chat.run is None
        assert chat.interrupt()

    await play(body)
    await execute_line(chat, again, person)
    if again == ".retry":
        assert fake_model.requests[-1].prompt == "tell me"
    else:
        assert has_message(person.text, "front.chat.commands.history._undo")
        assert chat.place.turns == 1


async def test_a_conversation_is_not_compressed_behind_an_answer_that_was_interrupted(
    chat: Chat, play: Play, fake_model: FakeModels
) -> None:
    cut = Reply("word " * 200, stall=b"word")
    fake_model.script(cut, Reply("a summary", hold=trio.Event()))
    for line in (".session", ".set compression_threshold 10"):
        await execute_line(chat, line, Scripted())

    async def body(played: Played) -> None:
        played.send("tell me " * 20)
        await cut.stalled.wait()
        await wait_all_tasks_blocked(0.01)
        assert chat.interrupt()

    played = await play(body)
    assert chat.place.turns == 1
    assert [status for _, status in played.how] == ["cancelled"]
    assert len(fake_model.requests) == 1
