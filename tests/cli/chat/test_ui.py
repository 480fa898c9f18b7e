"""`callboard chat --ui`: the conversation of this terminal, on the page and for other terminals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.program_window import Window
from support.serving_beside import begun, connected, is_over
from support.talking import environment_of, start


async def test_it_is_seen_by_clients_of_its_server_and_by_another_terminal_and_ends_for_all(
    wide: Window, window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    first, second = wide, window
    fake_model.script("The first answer.", "The second answer.")
    url, token, chat = await begun(first, fake_model, tmp_path)
    first.press("hello", "Enter")
    await first.shows("The first answer.")
    async with connected(url, token) as client:
        listed = (await client.result("_chat/list"))["chats"]
        assert [each["chat"] for each in listed] == [chat]
        told = (await client.result("_chat/watch", chat=chat, after=0))["told"]
        assert [each["began"]["prompt"] for each in told] == ["hello"]
    second.start(["chat", "--attach", chat, "--url", url], environment_of(tmp_path / "config", tmp_path))
    await second.shows("The first answer.")
    second.press("from the other side", "Enter")
    await first.shows("The second answer.")
    lines = first.lines()
    assert sum("from the other side" in line for line in lines) == 1
    assert sum("the page:" in line for line in lines) == 1
    assert await first.leave() == 0
    assert is_over(url, tmp_path)
    await second.shows(fragment("cli.chat.conversation.ChatConversation._end_if_closed"))
    assert await second.ended() == 0


def terminate(window: Window) -> None:
    os.kill(window.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "code"), [(terminate, 143), (lambda window: window.press("C-c", "C-c"), 0)], ids=["SIGTERM", "Ctrl-C"]
)
async def test_a_signal_and_two_ctrl_c_end_the_server_with_the_answer_that_is_under_way(
    wide: Window, fake_model: FakeModels, tmp_path: Path, end: Callable[[Window], None], code: int
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("never", hold=hold))
    url, _, _ = await begun(wide, fake_model, tmp_path)
    wide.press("hello", "Enter")
    await fake_model.arrived(1)
    end(wide)
    assert await wide.ended() == code
    assert is_over(url, tmp_path)
    hold.set()


async def test_a_server_elsewhere_has_a_page_of_its_own(window: Window, fake_model: FakeModels, tmp_path: Path) -> None:
    start(window, fake_model, tmp_path, "chat", "--ui", "--url", "http://127.0.0.1:1")
    await window.shows("--ui is for a chat of this process")
    assert await window.ended() == 2


async def test_attach_alone_is_the_only_chat_and_of_several_a_list(
    wide: Window, window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    url, token, mine = await begun(wide, fake_model, tmp_path)
    environment = environment_of(tmp_path / "config", tmp_path)
    async with connected(url, token) as client:
        other = (await client.result("_chat/open"))["chat"]["chat"]
        window.start(["chat", "--url", url, "--attach"], environment)
        await window.shows("several chats are open")
        assert await window.ended() == 2
        assert {mine, other} <= {word for line in window.lines() for word in line.split()}
        window.close()
        await client.result("_chat/close", chat=other)
        window.start(["chat", "--attach"], environment)
        await window.shows("lists commands")
        assert await window.leave() == 0
