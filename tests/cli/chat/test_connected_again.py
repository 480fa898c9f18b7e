"""A terminal whose connection is cut for a while: what was missed is shown in the order in which it was."""

from __future__ import annotations

from pathlib import Path

import trio
from support.fake_models import FakeModels, Reply
from support.program_window import Window
from support.serving_beside import begun
from support.talking import environment_of
from support.wire import Wire


async def test_the_rest_of_a_run_stands_above_what_was_asked_after_it(
    wide: Window, window: Window, fake_model: FakeModels, tmp_path: Path, nursery: trio.Nursery
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("The first answer.", hold=hold), "The second answer.", "The third answer.")
    url, token, chat = await begun(wide, fake_model, tmp_path)
    wire = Wire(int(url.rpartition(":")[2]))
    await nursery.start(lambda task_status: wire.carry(task_status=task_status))
    there = ["--url", f"http://127.0.0.1:{wire.port}", "--token", token]
    window.start(["chat", "--attach", chat, *there], environment_of(tmp_path / "config", tmp_path))
    await window.shows("lists commands")
    window.press(".ps", "Enter")  # it has joined the chat when that is answered
    await window.shows("Nothing runs.")
    wide.press("ask one", "Enter")
    await window.shows("ask one")
    await fake_model.arrived(1)
    wire.cut()
    await window.shows("reconnecting")
    hold.set()
    await wide.shows("The first answer.")
    for ask, answer in (("ask two", "The second answer."), ("ask three", "The third answer.")):
        wide.press(ask, "Enter")
        await wide.shows(answer)
    wire.mend()
    await window.shows("The third answer.")
    said = ("ask one", "The first answer.", "ask two", "The second answer.", "ask three", "The third answer.")
    assert [text for line in window.lines() for text in said if text in line] == list(said)
