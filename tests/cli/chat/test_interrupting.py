"""Interrupting: what was said stays, a second Ctrl-C leaves; `test_interrupt_terminal` has a moment of each kind."""

from __future__ import annotations

from pathlib import Path

from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.program_window import Window
from support.talking import start


async def test_an_interrupt_keeps_what_was_said_and_a_second_ctrl_c_soon_after_leaves(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    long = [Reply(text="first words\n\n" + "more " * 2000, stall=40) for _ in range(3)]
    fake_model.script(long[0], "well", long[1], "good", long[2])
    start(window, fake_model, tmp_path)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    for number, (key, answer) in enumerate((("Escape", "well"), ("C-c", "good")), 1):
        window.press("go on", "Enter")
        await window.until(lambda lines: "more more" in "\n".join(lines[-4:]))
        window.press(key)
        await window.until(lambda lines, least=number: sum("interrupted" in line for line in lines) == least)
        window.press("and now", "Enter")
        await window.shows(f"\n{answer}\n")
        assert sum("first words" in line for line in window.lines()) == number
    window.press("go on", "Enter")
    await fake_model.arrived(5)
    await window.until(lambda lines: "more more" in "\n".join(lines[-4:]))
    window.press("C-c", "C-c")
    assert await window.ended() == 0
