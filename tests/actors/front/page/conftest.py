"""A browser for the whole module, servers for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
from support.browser import Browser, launched, program
from support.fake_models import FakeModels
from support.page_server import PageServer

import callboard
from callboard.actors.front.server.serving import HttpServer, ListeningServer, ServeOptions


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a file: it takes a second to start. No longer, as others count our processes."""
    if program() is None:
        pytest.skip("no Chromium on this machine: install chromium-headless-shell to see the page tested")
    with launched() as found:
        yield found


@pytest.fixture
async def page_server(
    tmp_path: Path, fake_model: FakeModels, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PageServer]:
    """The real server, in this process, with the scripted model behind it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CALLBOARD_KEEP_REQUESTS", "true")
    config_dir = fake_model.config_dir(tmp_path / "config")
    server = HttpServer(ServeOptions(port=0))
    async with callboard.Root(config_dir=config_dir, wait_for_front_end=True, keep_servers=True) as root:
        page_server = PageServer(config_dir, fake_model, root)
        listens = trio.Event()

        def heard(served: ListeningServer) -> None:
            page_server.page = served.page
            listens.set()

        async with trio.open_nursery() as servers:
            servers.start_soon(server.serve, root, heard)
            with trio.fail_after(60):
                await listens.wait()
            yield page_server
            servers.cancel_scope.cancel()
