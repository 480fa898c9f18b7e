"""`@path` in a prompt: which files come along, and how many are looked for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio
from support.chat_person import Scripted
from support.waiting import PATIENCE

from callboard.actors.front.chat import prompting
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line


def test_files_that_are_there_come_along_each_once(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("x")
    (tmp_path / "c.txt").write_text("x")
    text = f'what is in @{tmp_path}/c.txt, "@{tmp_path}/c.txt"? and @"{tmp_path}/a b.txt" @nothing a@{tmp_path}/c.txt'
    assert prompting.files_in(text) == (f"{tmp_path}/c.txt", f"{tmp_path}/a b.txt")


def test_each_name_is_looked_for_once_and_no_more_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(prompting, "_is_there", looked.append)
    assert prompting.files_in("@a " * 10_000) == ()
    assert looked == ["a"]
    assert prompting.files_in(" ".join(f"@b{number}" for number in range(10_000))) == ()
    assert len(looked) == 1 + prompting.MOST_TRIED


async def test_looking_for_files_is_interrupted_at_once(
    chat: Chat, person: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, goes_on = trio.Event(), threading.Event()

    def slow(_: str) -> bool:
        trio.from_thread.run_sync(looks.set)
        return goes_on.wait(PATIENCE)

    monkeypatch.setattr(prompting, "_is_there", slow)
    try:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(execute_line, chat, "what is @this?", person)
                await looks.wait()
                assert chat.interrupt()
    finally:
        goes_on.set()
    assert not chat.busy
