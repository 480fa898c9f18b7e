"""`.ps`, `.attach`: what else goes on, and getting there."""

from __future__ import annotations

import pytest
import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import has_message, says

from callboard.actors.front.chat.chat import Chat, Chats
from callboard.actors.front.chat.completion import completions
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.control.hub import Hub
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.errors import Conflict, Denied, NotFound

BOB = Caller("bob", frozenset({"run:agents", "read:runs", "write:runs"}))


@pytest.fixture
def chats(hub: Hub) -> Chats:
    return Chats(hub)


async def test_runs_under_way_are_shown_and_can_be_watched(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await execute_line(chat, ".ps", person)
    assert person.told[-1].text == "Nothing runs."
    hold = trio.Event()
    fake_model.script(Reply("slow", hold=hold), "slower")
    folder = chat.hub.root.config_dir / "agents" / "slow"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: slow\ninstructions: Be slow.\n")
    info = await chat.hub.start(person.caller, StartRun(target="slow", prompt="hello"))
    await execute_line(chat, ".ps", person)
    assert info.run in person.told[-1].text
    done = []
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            done.append(await execute_line(chat, f".attach {info.run}", person))

        nursery.start_soon(watch)
        with trio.fail_after(60):
            while not person.runs:
                await trio.sleep(0.01)
        assert person.runs[0].run == info.run
        with pytest.raises(Conflict, match=f"{info.run} is answering"):
            await execute_line(chat, ".session", person)
        assert (await execute_line(chat, "hurry", person)).steered
        hold.set()
    assert fake_model.requests[-1].json["messages"][-1]["content"].endswith("hurry")
    assert (done[0].run, done[0].status) == (info.run, "done")


async def test_what_is_not_there_is_told(chat: Chat, person: Scripted) -> None:
    with pytest.raises(NotFound, match=says("front.chat.commands.runs._attach.3", word="run-none")):
        await execute_line(chat, ".attach run-none", person)


async def test_another_chat_is_named_in_the_answer_and_nothing_changes_here(chats: Chats, person: Scripted) -> None:
    here, other = chats.new("local"), chats.new("local")
    for word in (other.id, other.id.removeprefix("chat-")[:6]):
        done = await execute_line(here, f".attach {word}", person)
        assert (done.attach, done.chat.chat, done.leave) == (other.id, here.id, False)
    assert not person.runs
    with pytest.raises(Conflict, match=says("front.chat.commands.runs._attach.2")):
        await execute_line(here, f".attach {here.id}", person)


async def test_what_can_be_attached_is_shown_and_completed(chats: Chats, person: Scripted) -> None:
    here, other = chats.new("local"), chats.new("local")
    await execute_line(here, ".attach", person)
    head, row = person.told[-1].text.split("\n")
    assert head.split() == ["ID", "STATE", "SINCE", "WITH"]
    assert row.split() == [other.id, "idle", "0s", "fake:model"]
    assert here.id not in person.told[-1].text
    assert [each.text for each in completions(here, LOCAL, ".attach ch")] == [other.id]
    chats.close(other)
    await execute_line(here, ".attach", person)
    assert has_message(person.told[-1].text, "front.chat.commands.runs._attach")


async def test_of_several_that_a_word_may_mean_it_is_said_what_they_are_in_and_since_when(
    chats: Chats, person: Scripted, fake_model: FakeModels
) -> None:
    here, first, second = (chats.new("local") for _ in range(3))
    first.started = "2020-01-01T00:00:00Z"
    await execute_line(second, ".session kept", person)
    await execute_line(second, "what a day\nit is", person)
    with pytest.raises(Conflict, match=says("front.chat.commands.runs._attach.4", word="chat-", ids=2)) as refused:
        await execute_line(here, ".attach chat-", person)
    _, head, *rows = str(refused.value).split("\n")
    assert head.split() == ["ID", "STATE", "SINCE", "WITH", "SESSION", "TITLE"]
    assert [row.split()[0] for row in rows] == [second.id, first.id]
    state, since, *rest = rows[0].split()[1:]
    assert (state, since[-1], rest) == ("idle", "s", ["fake:model", "kept", "what", "a", "day", "it", "is"])
    assert rows[1].split()[2].endswith("h")  # days and hours


async def test_of_many_that_a_word_may_mean_twenty_are_listed_and_the_others_counted(
    chats: Chats, person: Scripted
) -> None:
    here = chats.new("local")
    for _ in range(25):
        chats.new("local")
    with pytest.raises(Conflict, match=r"and 5 more$"):
        await execute_line(here, ".attach chat-", person)


async def test_one_goes_to_another_chat_while_a_run_answers_but_watches_no_run_then(
    chats: Chats, person: Scripted, fake_model: FakeModels
) -> None:
    here, other = chats.new("local"), chats.new("local")
    hold = trio.Event()
    fake_model.script("done", Reply("slow", hold=hold))
    run = (await execute_line(other, "hello", person)).run
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, here, "hello", person)
        await fake_model.arrived(2)
        assert (await execute_line(here, f".attach {other.id}", person)).attach == other.id
        await execute_line(here, ".attach", person)
        assert other.id in person.told[-1].text
        with pytest.raises(Conflict, match=says("front.chat.chat.Chat.taken")):
            await execute_line(here, f".attach {run}", person)
        hold.set()
    assert (await execute_line(here, f".attach {run}", person)).run == run


async def test_chats_of_others_are_not_there(chats: Chats) -> None:
    here, _ = chats.new("bob"), chats.new("local")
    bob = Scripted(caller=BOB)
    await execute_line(here, ".attach", bob)
    assert has_message(bob.text, "front.chat.commands.runs._attach")
    with pytest.raises(NotFound):
        await execute_line(here, ".attach chat-", bob)
    with pytest.raises(Denied, match="read:runs"):
        await execute_line(
            here, ".attach chat-", Scripted(caller=Caller("bob", frozenset({"run:agents", "write:runs"})))
        )
