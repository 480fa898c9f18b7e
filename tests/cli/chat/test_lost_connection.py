"""An answer that is given while the connection to the server is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from fake_models import FakeModels, Reply
from http_house import House, Serve, serve
from talking import environment_of
from window import Window

__all__ = ["serve"]
CALL = ("execute_command", {"command": "echo $((40 + 2))"})


class Wire:
    """The way to a server, which can be cut and mended."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._to = house.port
        self._cut = False
        self._scopes: set[trio.CancelScope] = set()
        self.port = 0

    async def carry(self, task_status: trio.TaskStatus[None]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._connection, [listener])

    def cut(self) -> None:
        self._cut = True
        for scope in self._scopes:
            scope.cancel()

    def mend(self) -> None:
        self._cut = False

    async def _connection(self, near: trio.SocketStream) -> None:
        async def pump(one: trio.SocketStream, other: trio.SocketStream) -> None:
            async for data in one:
                await other.send_all(data)
            scope.cancel()

        if self._cut:
            return
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            async with await trio.open_tcp_stream("127.0.0.1", self._to) as far, trio.open_nursery() as nursery:
                nursery.start_soon(pump, near, far)
                nursery.start_soon(pump, far, near)
        self._scopes.discard(scope)


@pytest.fixture
async def wire(
    window: Window, serve: Serve, fake_model: FakeModels, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[Wire]:
    """A conversation with a server, at the question whether a command may be run; and the way between them."""
    fake_model.script(Reply(calls=[CALL]), Reply(text="so it is"))
    async with serve(enabled_tools="execute_command") as house:
        wire = Wire(house)
        await nursery.start(wire.carry)
        there = ["chat", "--url", f"http://127.0.0.1:{wire.port}", "--token", house.token]
        window.start(there, environment_of(tmp_path / "config", tmp_path))
        await window.shows(".help lists commands")
        window.press("count", "Enter")
        await window.shows("3. no")
        wire.cut()
        await window.shows("trying again")
        window.press("1", "Enter")
        await window.shows("= yes")
        yield wire
        window.press("C-d")
        assert await window.ended() == 0


async def test_is_sent_when_there_is_another_one(window: Window, wire: Wire, fake_model: FakeModels) -> None:
    await window.shows("(sent when the connection is back)")
    assert len(fake_model.requests) == 1
    wire.mend()
    await window.shows("so it is")
    assert "42" in fake_model.requests[-1].results[-1]
    assert sum("= yes" in line for line in window.lines()) == 1
    assert sum("asks" in line for line in window.lines()) == 1  # nor is it asked again


async def test_is_said_not_to_be_taken_if_the_question_was_closed_meanwhile(
    window: Window, wire: Wire, fake_model: FakeModels
) -> None:
    await window.shows("(sent when the connection is back)")
    (question,) = (await wire.house.get("/v1/questions"))["questions"]
    await wire.house.post(f"/v1/questions/{question['id']}/answer", {"value": "no"})
    await fake_model.arrived(2)
    wire.mend()
    await window.shows("not taken, since the question is closed: yes (to:")
    await window.shows("so it is")
    assert "42" not in fake_model.requests[-1].results[-1]
