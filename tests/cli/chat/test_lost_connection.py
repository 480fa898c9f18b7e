"""A terminal whose connection is cut for a while: what was missed is shown in the order in which it was."""

from __future__ import annotations

from pathlib import Path

import trio
from fake_models import FakeModels, Reply
from serving_beside import begun
from talking import environment_of
from window import Window


class Wire:
    """A way to a server that can be cut."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._server = port
        self._open: set[trio.CancelScope] = set()
        self._is_cut = False

    async def carry(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._accept, listeners)

    def cut(self) -> None:
        """Nothing comes through, or in, until `mend`."""
        self._is_cut = True
        for scope in self._open:
            scope.cancel()

    def mend(self) -> None:
        """It may be used again."""
        self._is_cut = False

    async def _accept(self, client: trio.SocketStream) -> None:
        if self._is_cut:
            return
        server = await trio.open_tcp_stream("127.0.0.1", self._server)
        async with client, server:
            with trio.CancelScope() as scope:
                self._open.add(scope)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pipe, server, client, scope)
                    await self._pipe(client, server, scope)
            self._open.discard(scope)

    async def _pipe(self, one: trio.SocketStream, other: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            async for piece in one:
                await other.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


async def test_the_rest_of_a_run_stands_above_what_was_asked_after_it(
    wide: Window, window: Window, fake_model: FakeModels, tmp_path: Path, nursery: trio.Nursery
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("The first answer.", hold=hold), "The second answer.", "The third answer.")
    url, token, chat = await begun(wide, fake_model, tmp_path)
    wire = Wire(int(url.rpartition(":")[2]))
    await nursery.start(lambda task_status: wire.carry(task_status=task_status))
    there = ["--url", f"http://127.0.0.1:{wire.port}", "--token", token]
    window.start(["chat", "--attach", chat, *there], environment_of(tmp_path / "config", tmp_path))
    await window.shows("lists commands")
    wide.press("ask one", "Enter")
    await window.shows("ask one")
    await fake_model.arrived(1)
    wire.cut()
    await window.shows("trying again")
    hold.set()
    await wide.shows("The first answer.")
    for ask, answer in (("ask two", "The second answer."), ("ask three", "The third answer.")):
        wide.press(ask, "Enter")
        await wide.shows(answer)
    wire.mend()
    await window.shows("The third answer.")
    said = ("ask one", "The first answer.", "ask two", "The second answer.", "ask three", "The third answer.")
    assert [text for line in window.lines() for text in said if text in line] == list(said)
