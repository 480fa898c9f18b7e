"""Lines that end in the middle: by an error, or since their client takes nothing in."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import says

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.control import chat as frames
from callboard.protocol.control.caller import Caller
from callboard.protocol.errors import Denied, UsageError


class Stalled(Scripted):
    """Takes in nothing of a run."""

    async def began(self, told: frames.Began) -> None:
        self.runs.append(told)
        await trio.sleep_forever()


@pytest.mark.parametrize("how", ["ends", "is interrupted"])
async def test_a_client_that_takes_nothing_does_not_hold_the_chat_when_its_run_is_over(
    chat: Chat, person: Scripted, fake_model: FakeModels, how: str
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("slow", hold=hold), "fast")
    done: list[frames.LineDone] = []

    async def play() -> None:
        done.append(await execute_line(chat, "hello", Stalled()))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play)
            await fake_model.arrived(1)
            if how == "ends":
                hold.set()
            else:
                chat.interrupt()
    hold.set()
    assert [each.status for each in done] == ["done" if how == "ends" else "cancelled"]
    assert (await execute_line(chat, "and now?", person)).status == "done"


async def test_an_agent_that_is_not_begun_leaves_what_was_said(
    chat: Chat, person: Scripted, root: callboard.Root, fake_model: FakeModels
) -> None:
    folder = root.config_dir / "agents" / "needy"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "name: needy\ninstructions: Hello {{who}}.\nvariables: [{name: who, description: a name}]\n"
    )
    await execute_line(chat, "remember this", person)
    reply = chat.reply
    with pytest.raises(UsageError, match=says("front.chat.commands.agent._with_missing")):
        await execute_line(chat, ".agent needy", Scripted(None))
    assert (chat.agent, chat.reply, chat.place.turns) == (None, reply, 1)
    await execute_line(chat, "what was it?", person)
    assert "remember this" in str(fake_model.requests[-1].json["messages"])
    await execute_line(chat, ".undo", person)
    assert chat.place.turns == 1


@pytest.mark.parametrize("once", [True, False], ids=["asked in once", "changed since"])
async def test_a_role_whose_model_is_a_file_answers_nobody_who_may_not_have_it(
    chat: Chat, root: callboard.Root, tmp_path: Path, fake_model: FakeModels, *, once: bool
) -> None:
    file = root.config_dir / "roles" / "heavy.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("Be brief.\n")
    bob = Scripted(caller=Caller("bob", frozenset({"run:agents", "read:runs", "write:runs"})))
    chat.owner = "bob"
    if not once:
        await execute_line(chat, ".role heavy", bob)
    file.write_text(f"---\nmodel: local:{tmp_path}/weights.gguf\n---\nBe brief.\n")
    with pytest.raises(Denied, match=says("front.control.requests.check_model")):
        await execute_line(chat, ".role heavy hello" if once else "hello", bob)
    assert not fake_model.requests
