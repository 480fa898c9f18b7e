"""`callboard chat --ui`: the conversation of this terminal, on the page and for other terminals."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from control_house import Client
from fake_models import FakeModels, Reply
from talking import environment_of, start
from trio_websocket import open_websocket_url
from window import Window


@pytest.fixture
def two() -> Iterator[tuple[Window, Window]]:
    """Two windows, wide enough for an address."""
    both = Window(160, 40), Window(160, 40)
    yield both
    for each in both:
        each.close()


async def begun(window: Window, fake_model: FakeModels, tmp_path: Path) -> tuple[str, str, str]:
    """Starts a conversation; where it is served, the token, and the id of its chat."""
    start(window, fake_model, tmp_path, "chat", "--ui")
    await window.shows("from other terminals")
    shown = "\n".join(window.lines())
    page = re.search(r"the page: (http://127\.0\.0\.1:\d+)/#token=(\S+)", shown)
    attach = re.search(r"callboard chat --attach (chat-\w+) --url (\S+)", shown)
    assert page is not None, shown
    assert attach is not None, shown
    assert page[1] == attach[2]
    return page[1], page[2], attach[1]


def is_over(url: str, tmp_path: Path) -> bool:
    """Whether nothing listens there, and no file names the server."""
    port = int(url.rpartition(":")[2])
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0 and not list(tmp_path.glob("state/**/servers/*.json"))


async def test_it_is_seen_by_clients_of_its_server_and_by_another_terminal_and_ends_for_all(
    two: tuple[Window, Window], fake_model: FakeModels, tmp_path: Path
) -> None:
    first, second = two
    fake_model.script("The first answer.", "The second answer.")
    url, token, chat = await begun(first, fake_model, tmp_path)
    first.press("hello", "Enter")
    await first.shows("The first answer.")
    headers = [(b"Authorization", f"Bearer {token}".encode())]
    async with open_websocket_url(f"{url.replace('http', 'ws')}/ws", extra_headers=headers) as websocket:
        client = Client(websocket)
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
    first.press("C-d")
    assert await first.ended() == 0
    assert is_over(url, tmp_path)
    await second.shows("this chat was ended by another client")
    assert await second.ended() == 0


def terminate(window: Window) -> None:
    os.kill(window.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "code"), [(terminate, 143), (lambda window: window.press("C-c", "C-c"), 0)], ids=["SIGTERM", "Ctrl-C"]
)
async def test_a_signal_and_two_ctrl_c_end_the_server_with_the_answer_that_is_under_way(
    two: tuple[Window, Window], fake_model: FakeModels, tmp_path: Path, end: Callable[[Window], None], code: int
) -> None:
    first, _ = two
    hold = trio.Event()
    fake_model.script(Reply("never", hold=hold))
    url, _, _ = await begun(first, fake_model, tmp_path)
    first.press("hello", "Enter")
    await fake_model.arrived(1)
    end(first)
    assert await first.ended() == code
    assert is_over(url, tmp_path)
    hold.set()


async def test_a_server_elsewhere_has_a_page_of_its_own(window: Window, fake_model: FakeModels, tmp_path: Path) -> None:
    start(window, fake_model, tmp_path, "chat", "--ui", "--url", "http://127.0.0.1:1")
    await window.shows("--ui is for a conversation of this process")
    assert await window.ended() == 2
