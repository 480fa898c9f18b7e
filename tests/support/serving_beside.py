"""A conversation at a terminal with `--ui`, and clients of the server that it has."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from trio_websocket import open_websocket_url

from support.control_hub import Client
from support.fake_models import FakeModels
from support.program_window import Window
from support.talking import start


async def begun(window: Window, fake_model: FakeModels, tmp_path: Path) -> tuple[str, str, str]:
    """Starts a conversation; where it is served, the token, and the id of its chat."""
    start(window, fake_model, tmp_path, "chat", "--ui")
    await window.shows("from other terminals")
    shown = "\n".join(window.lines())
    page = re.search(r"the page: (http://127\.0\.0\.1:\d+)/#token=([^&\s]+)&chat=(\S+)", shown)
    attach = re.search(r"callboard chat --attach (chat-\w+) --url (\S+)", shown)
    assert page is not None, shown
    assert attach is not None, shown
    assert (page[1], page[3]) == (attach[2], attach[1])
    return page[1], page[2], attach[1]


@contextlib.asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[Client]:
    """A client of the server there."""
    headers = [(b"Authorization", f"Bearer {token}".encode())]
    async with open_websocket_url(f"{url.replace('http', 'ws')}/ws", extra_headers=headers) as websocket:
        yield Client(websocket)


def is_over(url: str, tmp_path: Path) -> bool:
    """Whether nothing listens there, and no file names the server."""
    port = int(url.rpartition(":")[2])
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0 and not list(tmp_path.glob("state/**/servers/*.json"))
