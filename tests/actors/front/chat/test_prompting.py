"""Runs of a chat whose client goes away."""

from __future__ import annotations

import trio
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line


async def test_the_run_of_a_macro_goes_on_where_the_chat_is_kept(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("the answer", hold=hold), "fine")
    (root.config_dir / "macros").mkdir()
    (root.config_dir / "macros" / "m.yaml").write_text("steps:\n  - hello\n")
    chat.keep = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, ".macro m", person)
        await fake_model.arrived(1)
        nursery.cancel_scope.cancel()
    run = chat.run
    assert run is not None
    await trio.sleep(0.1)
    assert chat.hub.get(person.caller, run).status == "running"
    hold.set()
    with trio.fail_after(60):
        while chat.run is not None:
            await trio.sleep(0.01)
        assert (await chat.hub.wait(person.caller, run)).output == "the answer"
    assert not chat.interrupt()
    assert (await execute_line(chat, "and now?", person)).status == "done"
