"""The conversation at a terminal: its first line, its commands, its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.program_window import Window
from support.talking import allow_commands, environment_of, start
from support.waiting import PATIENCE

from ..conftest import Ended


async def test_a_conversation_begins_below_its_welcome_is_drawn_once_and_exit_leaves(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.script(Reply(text="# Title\n\nThis is **bold**.\n"))
    start(window, fake_model, tmp_path)
    await window.shows("model>")
    window.press("hello", "Enter")
    await window.shows("This is bold.\n\nmodel>")
    welcome, *lines = window.lines()
    assert welcome.startswith("callboard ")  # nothing stands above it
    assert [line.lstrip("# ") for line in lines if line][:3] == ["model> hello", "Title", "This is bold."]
    window.press(":::", "Enter", "one", "Enter", "two", "Enter", ":::", "Enter")
    await window.shows("\nok\n\nmodel>")
    assert fake_model.requests[-1].json["messages"][-1]["content"] == "one\ntwo"
    window.press(".prompt last", "Enter")
    await window.shows("--- reply (end) ---")
    assert "--- user ---" in "\n".join(window.lines())
    window.press(".exit", "Enter")
    assert await window.ended() == 0
    history = list((tmp_path / "state").rglob("history/*.jsonl"))
    assert len(history) == 1
    assert history[0].stat().st_mode & 0o777 == 0o600


async def test_completion_says_what_commands_do_and_ctrl_c_drops_the_line_then_says_how_to_leave(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    start(window, fake_model, tmp_path)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press(".hel")
    await window.shows(fragment("front.chat.commands.info._help.3"))
    window.press("C-c")
    await window.gone(fragment("front.chat.commands.info._help.3"))
    window.press("C-c")
    await window.shows("To leave, press Ctrl-D")
    window.press("still here", "Enter")
    await window.shows("\nok")
    assert await window.leave() == 0


def test_without_a_terminal_it_says_how_to_give_a_prompt(callboard: Callable[..., Ended]) -> None:
    ended = callboard("chat")
    assert ended.code == 2
    assert "callboard ask" in ended.err


async def test_lines_of_earlier_chats_are_recalled_at_the_first_prompt(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    start(window, fake_model, tmp_path)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press("remember me", "Enter")
    await window.shows("\nok")
    assert await window.leave() == 0
    later = Window()
    try:
        start(later, fake_model, tmp_path)
        await later.shows(fragment("cli.chat.conversation.ChatConversation._open"))
        with trio.fail_after(PATIENCE):
            while "model> remember me" not in later.lines()[-1]:
                later.press("Up")  # the file is read behind the first picture
                await trio.sleep(0.1)
        later.press("C-c", "C-d")
        assert await later.ended() == 0
    finally:
        later.close()


async def test_without_streaming_an_answer_comes_as_a_whole(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.script(Reply(text="begin\n\nsecond\n\n" + "more " * 60 + "end", gap=0.05))
    start(window, fake_model, tmp_path, "chat", "-S")
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press("go", "Enter")
    with trio.fail_after(PATIENCE):
        while "more end" not in (text := "\n".join(window.lines())):
            assert "begin" not in text
            await trio.sleep(0.05)
    assert await window.leave() == 0


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {}], ids=["NO_COLOR", "colours"])
async def test_no_color_means_no_colours(
    window: Window, fake_model: FakeModels, tmp_path: Path, more: dict[str, str]
) -> None:
    """The other half shows that this test sees colours where there are some."""
    config = fake_model.config_dir(tmp_path / "config")
    call = ("execute_command", {"command": "echo $((40 + 2))"})
    fake_model.script(Reply(text="**bold** words\n\n```python\nimport os\n```\n"), Reply(calls=[call]), "at the end")
    allow_commands(tmp_path)
    window.start([], {**environment_of(config, tmp_path), **more})
    await window.shows("model>")
    window.press("hello", "Enter")
    await window.shows("import os")
    await window.until(lambda lines: "tokens" in lines[-1])  # the run is over
    window.press("count", "Enter")
    await window.shows("4. No")
    window.press("1", "Enter")
    await window.shows("at the end")
    window.press(".hel")
    await window.shows(fragment("front.chat.commands.info._help.3"))
    window.press("Tab", "Tab")
    codes = {code for found in re.findall(r"\x1b\[([0-9;:]*)m", window.raw) for code in found.split(";")}
    coloured = {code for code in codes if re.match(r"[349][0-8]|10[0-7]", code)}
    assert bool(coloured) is not bool(more), codes
    window.press("C-u", "C-d")
    assert await window.ended() == 0
