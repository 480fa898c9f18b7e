"""Frames between a screen and a server on loopback, whose connection may break."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.fake_models import FakeModels
from support.waiting import PATIENCE

import callboard
from callboard.actors.front.server.serving import HttpServer, ListeningServer, ServeOptions
from callboard.cli.chat import remote
from callboard.cli.chat.bridge import GOODBYE, ScreenEnd, TrioEnd
from callboard.cli.control.servers import Where, find_server
from callboard.protocol import jsonrpc
from callboard.protocol.errors import CallboardError, ServerLost, Unauthorized


class Screen(ScreenEnd):
    """Keeps what comes for it, in its order."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.came: list[Any] = []
        self.full = False

    @property
    def waiting(self) -> int:
        return remote.MOST + 1 if self.full else 0

    def put(self, frame: bytes | Callable[[], None]) -> None:
        if callable(frame):
            frame()
        else:
            self.came.append(jsonrpc.decode(frame))

    def disconnected(self, why: str) -> None:
        self.came.append(why)

    def connected(self) -> None:
        self.came.append("connected")

    async def answer(self, id: int) -> Any:
        with trio.fail_after(PATIENCE):
            while True:
                for each in self.came:
                    if isinstance(each, jsonrpc.Result) and each.id == id:
                        return msgspec.json.decode(each.result)
                await trio.sleep(0.01)


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def ours() -> TrioEnd:
    return TrioEnd()


@pytest.fixture
async def root(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[callboard.Root]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = fake_model.config_dir(tmp_path / "config")
    async with callboard.Root(config_dir=config, wait_for_front_end=True, keep_servers=True) as root:
        yield root


async def serving(root: callboard.Root, nursery: trio.Nursery, port: int = 0) -> tuple[str, trio.CancelScope]:
    scope, found, listens = trio.CancelScope(), [""], trio.Event()

    def heard(served: ListeningServer) -> None:
        found[0] = served.url
        listens.set()

    async def serve() -> None:
        with scope:
            await HttpServer(ServeOptions(port=port)).serve(root, heard)

    nursery.start_soon(serve)
    with trio.fail_after(PATIENCE):
        await listens.wait()
    return found[0], scope


async def test_what_is_sent_is_answered_also_by_the_server_that_comes_after_and_a_goodbye_ends_the_chat(
    root: callboard.Root, screen: Screen, ours: TrioEnd, nursery: trio.Nursery, fake_model: FakeModels
) -> None:
    url, first = await serving(root, nursery)
    server = find_server(Where(url=url), {"XDG_STATE_HOME": str(root.config_dir.parent / "state")})
    chat = ""

    def last() -> bytes:
        return jsonrpc.encode_request(GOODBYE, "_chat/close", {"chat": chat})

    async def carry() -> None:
        ours.begin()
        with scope:
            await remote.serve(server, None, ours, screen, screen, last)

    scope = trio.CancelScope()
    nursery.start_soon(carry)
    ours.put(jsonrpc.encode_request(1, "_chat/open", {"keep": True}))
    await screen.answer(1)
    first.cancel()
    with trio.fail_after(PATIENCE):
        while not screen.came or not isinstance(screen.came[-1], str):
            await trio.sleep(0.01)
    ours.put(jsonrpc.encode_request(2, "_chat/list", {}))  # for the connection that is gone
    await serving(root, nursery, port=server.port)  # with a token of its own
    with trio.fail_after(PATIENCE):
        while screen.came[-1] != "connected":
            await trio.sleep(0.01)
    assert [each for each in screen.came if isinstance(each, str)] == [f"the connection to {url} is lost", "connected"]
    ours.put(jsonrpc.encode_request(3, "_chat/open", {"keep": True}))
    chat = (await screen.answer(3))["chat"]["chat"]
    screen.full = True  # nothing is read
    ours.put(jsonrpc.encode_request(4, "_chat/list", {}))
    await trio.sleep(0.1)
    assert not any(isinstance(each, jsonrpc.Result) and each.id in (2, 4) for each in screen.came)
    screen.full = False
    assert [each["chat"] for each in (await screen.answer(4))["chats"]] == [chat]
    scope.cancel()
    other = Screen()
    theirs = TrioEnd()
    async with trio.open_nursery() as second:
        theirs.begin()
        again = find_server(Where(url=url), {"XDG_STATE_HOME": str(root.config_dir.parent / "state")})
        second.start_soon(remote.serve, again, None, theirs, other, other, lambda: None)
        with trio.fail_after(PATIENCE):
            while True:
                theirs.put(jsonrpc.encode_request(5, "_chat/list", {}))
                if not (await other.answer(5))["chats"]:
                    break
                other.came.clear()
        second.cancel_scope.cancel()


@pytest.mark.parametrize("wrong", ["token", "gone"])
async def test_what_keeps_us_out_is_one_error(
    root: callboard.Root,
    screen: Screen,
    ours: TrioEnd,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.3)  # seconds in which a lost server may come back
    url, server = await serving(root, nursery)
    environ = {"XDG_STATE_HOME": str(root.config_dir.parent / "state")}
    where = Where(url=url, token="not the one") if wrong == "token" else Where(url=url)
    ours.begin()
    expected: type[CallboardError] = Unauthorized if wrong == "token" else ServerLost
    if wrong == "gone":
        ours.put(jsonrpc.encode_request(1, "_chat/list", {}))

        async def stop() -> None:
            await screen.answer(1)
            server.cancel()

        nursery.start_soon(stop)
    with trio.fail_after(PATIENCE), pytest.raises(ExceptionGroup) as raised:
        await remote.serve(find_server(where, environ), where.token, ours, screen, screen, lambda: None)
    assert raised.group_contains(expected)
    assert expected.exit_code == (3 if wrong == "token" else 6)
