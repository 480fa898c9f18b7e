"""`.file` and `.macro`."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.errors import Denied, UsageError


def macro(chat: Chat, name: str, text: str) -> None:
    folder = chat.hub.root.config_dir / "macros"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)


async def test_a_file_is_put_before_the_prompt(
    chat: Chat, person: Scripted, fake_model: FakeModels, tmp_path: Path
) -> None:
    note = tmp_path / "a note.txt"
    note.write_text("The bridge is closed.")
    done = await execute_line(chat, f".file '{note}' -- what is closed?", person)
    assert done.status == "done"
    assert "The bridge is closed." in fake_model.requests[-1].prompt
    assert "what is closed?" in fake_model.requests[-1].prompt


async def test_the_last_reply_is_that_of_this_chat(
    chat: Chat, person: Scripted, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # others are at work, whose replies are kept there
    fake_model.script(Reply("Ponte."))
    await execute_line(chat, "bridge in Italian?", person)
    await execute_line(chat, ".file %% -- and in French?", person)
    assert "Ponte." in fake_model.requests[-1].json["messages"][-1]["content"]


async def test_a_file_needs_the_scope_for_files(chat: Chat, tmp_path: Path) -> None:
    from callboard.protocol.control.caller import Caller

    person = Scripted(caller=Caller(subject="alice", scopes=frozenset({"run:agents"})))
    with pytest.raises(Denied):
        await execute_line(chat, f".file {tmp_path} -- what is there?", person)


async def test_a_macro_plays_its_lines_in_a_conversation_of_its_own(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    macro(
        chat,
        "twice",
        "variables: [{name: topic, rest: true}]\nsteps: ['.prompt Be brief.', 'About {{topic}}?', 'More?']",
    )
    await execute_line(chat, "before", person)
    done = await execute_line(chat, ".macro twice old bridges", person)
    assert done.status == "done"
    assert [each.text for each in person.told if each.kind == "echo"] == [
        ">> .prompt Be brief.",
        ">> About old bridges?",
        ">> More?",
    ]
    sent = [[each["content"] for each in request.json["messages"]] for request in fake_model.requests[-2:]]
    assert sent == [["Be brief.", "About old bridges?"], ["Be brief.", "More?"]]
    assert not chat.has_role
    assert chat.place.turns == 1


async def test_a_macro_that_is_not_isolated_plays_in_the_chat(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    macro(chat, "here", "isolated: false\nsteps: ['and more']")
    await execute_line(chat, "before", person)
    await execute_line(chat, ".macro here", person)
    assert "before" in [message["content"] for message in fake_model.requests[-1].json["messages"]]
    assert chat.place.turns == 2


async def test_an_interrupt_ends_the_macro_with_its_run(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    macro(chat, "long", "steps: [one, two, three]")
    fake_model.script(Reply("word " * 200, gap=0.02))
    done = []
    async with trio.open_nursery() as nursery:

        async def play() -> None:
            done.append(await execute_line(chat, ".macro long", person))

        nursery.start_soon(play)
        with trio.fail_after(60):
            while chat.run is None:
                await trio.sleep(0.01)
            assert chat.interrupt()
    assert done[0].status == "cancelled"
    assert len(person.runs) == 1
    assert not chat.busy


@pytest.mark.parametrize("step", [".edit config", ".vault list", ".macro other", ".install x", ".update"])
async def test_a_macro_may_not_use_what_needs_a_person(chat: Chat, person: Scripted, step: str) -> None:
    macro(chat, "bad", f"steps: ['{step}']")
    with pytest.raises(UsageError, match=says("front.chat.execution._check_allowed")):
        await execute_line(chat, ".macro bad", person)


async def test_a_macro_that_is_not_there_is_written_in_the_editor(chat: Chat, person: Scripted) -> None:
    person.edits = ["steps: 5\n", "steps: [hello]\n"]
    await execute_line(chat, ".macro greet", person)
    assert person.edited[1].problem is not None
    done = await execute_line(chat, ".macro greet", person)
    assert done.status == "done"


async def test_an_editor_that_writes_nothing_leaves_no_macro(chat: Chat, person: Scripted) -> None:
    person.edits = [None]
    await execute_line(chat, ".macro greet", person)
    assert not (chat.hub.root.config_dir / "macros" / "greet.yaml").exists()
