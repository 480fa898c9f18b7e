"""The conversation at a terminal: its first line, its commands, its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import trio
from fake_models import FakeModels, Reply
from talking import environment_of, start
from window import Window

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
    await window.shows(".help lists commands")
    window.press(".hel")
    await window.shows("Show this help")
    window.press("C-c")
    await window.gone("Show this help")
    window.press("C-c")
    await window.shows("To leave, press Ctrl-D")
    window.press("still here", "Enter")
    await window.shows("\nok")
    window.press("C-d")
    assert await window.ended() == 0


def test_without_a_terminal_it_says_how_to_give_a_prompt(callboard: Callable[..., Ended]) -> None:
    ended = callboard("chat")
    assert ended.code == 2
    assert "callboard ask" in ended.err


async def test_lines_of_earlier_chats_are_recalled_at_the_first_prompt(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    start(window, fake_model, tmp_path)
    await window.shows(".help lists commands")
    window.press("remember me", "Enter")
    await window.shows("\nok")
    window.press("C-d")
    assert await window.ended() == 0
    later = Window()
    try:
        start(later, fake_model, tmp_path)
        await later.shows(".help lists commands")
        await trio.sleep(0.5)
        later.press("Up")
        await later.shows("model> remember me")
        later.press("C-c", "C-d")
        assert await later.ended() == 0
    finally:
        later.close()


async def test_without_streaming_an_answer_comes_as_a_whole(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.script(Reply(text="begin\n\nsecond\n\n" + "more " * 60 + "end", gap=0.05))
    start(window, fake_model, tmp_path, "chat", "-S")
    await window.shows(".help lists commands")
    window.press("go", "Enter")
    while "more end" not in (text := "\n".join(window.lines())):
        assert "begin" not in text
        await trio.sleep(0.05)
    window.press("C-d")
    assert await window.ended() == 0


async def test_no_color_means_no_colours(window: Window, fake_model: FakeModels, tmp_path: Path) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    fake_model.script(Reply(text="**bold** words"))
    window.start([], {**environment_of(config, tmp_path), "NO_COLOR": "1"})
    await window.shows("model>")
    window.press("hello", "Enter")
    await window.shows("words")
    window.press(".hel")
    await window.shows("Show this help")
    assert not re.search(r"\x1b\[[0-9;]*[1-9]m", window.raw)
    window.press("C-c", "C-d")
    assert await window.ended() == 0
