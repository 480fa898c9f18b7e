"""The first screen of a chat, and the agent that answers where nobody is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.program_window import Window
from support.talking import environment_of


@pytest.mark.parametrize("line", [[], ["chat"]])
async def test_the_first_screen_says_what_the_assistant_can_do_and_it_works_on_files(
    window: Window, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "stats.py").write_text("def median(numbers):\n    return sorted(numbers)[0]\n")
    monkeypatch.chdir(work)
    fake_model.script(Reply(calls=[("fs_read", {"path": "stats.py"})]), "It takes the first number.")
    window.start(line, environment_of(fake_model.config_dir(tmp_path / "config"), tmp_path))
    await window.shows("\nassistant>")
    welcome, about, agents, *_ = window.lines()
    assert welcome.startswith("callboard ")
    assert about.startswith("assistant: ")
    assert "coder" in agents
    assert agents.endswith("(.agent NAME)")
    window.press("what is wrong with median?", "Enter")
    await window.shows("It takes the first number.\n\nassistant>")
    assert "sorted(numbers)[0]" in str(fake_model.requests[-1].json["messages"][-1])
    assert await window.leave() == 0


@pytest.mark.parametrize("line", [["--no-tools"], ["chat", "--no-tools"], ["loki"]])
async def test_without_tools_a_model_answers_alone(
    window: Window, fake_model: FakeModels, tmp_path: Path, line: list[str]
) -> None:
    window.start(line, environment_of(fake_model.config_dir(tmp_path / "config"), tmp_path))
    await window.shows("\nmodel>")
    window.press("hello", "Enter")
    await window.shows("\nok\n\nmodel>")
    assert "tools" not in fake_model.requests[-1].json
    assert await window.leave() == 0


async def test_a_chat_is_continued_another_day_by_its_directory_or_from_a_list(
    window: Window, wide: Window, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    environ = environment_of(fake_model.config_dir(tmp_path / "config"), tmp_path)
    fake_model.script("It takes the first number.", "In line 2.", "Because it is sorted.")
    window.start([], environ)
    await window.shows("\nassistant>")
    window.press("what is wrong with median?", "Enter")
    await window.shows("It takes the first number.\n\nassistant>")
    assert await window.leave() == 0
    window.start(["-c"], environ)
    await window.shows("> what is wrong with median?\nIt takes the first number.\n\nassistant>")
    window.press("where?", "Enter")
    await window.shows("In line 2.\n\nassistant>")
    assert len(fake_model.requests[-1].json["messages"]) == 4
    assert await window.leave() == 0
    wide.start(["--resume"], environ)
    await wide.shows("Which chat?")
    await wide.shows("what is wrong with median?")
    await wide.shows("~/work, assistant")
    wide.press("Enter")
    await wide.shows("In line 2.\n\nassistant>")
    wide.press("why?", "Enter")
    await wide.shows("Because it is sorted.\n\nassistant>")
    assert await wide.leave() == 0
