"""An answer that is given while the connection to the server is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.http_server import ApiServer, Serve, serve
from support.messages import fragment
from support.program_window import Window
from support.talking import environment_of
from support.wire import Wire

__all__ = ["serve"]
CALL = ("execute_command", {"command": "echo $((40 + 2))"})


@pytest.fixture
async def wire(
    window: Window, serve: Serve, fake_model: FakeModels, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[tuple[Wire, ApiServer]]:
    """A conversation with a server, at the question whether a command may be run; and the way between them."""
    fake_model.script(Reply(calls=[CALL]), Reply(text="so it is"))
    async with serve(enabled_tools="execute_command") as control_server:
        wire = Wire(control_server.port)
        await nursery.start(lambda task_status: wire.carry(task_status=task_status))
        there = ["chat", "--url", f"http://127.0.0.1:{wire.port}", "--token", control_server.token]
        window.start(there, environment_of(tmp_path / "config", tmp_path))
        await window.shows(".help lists commands")
        window.press("count", "Enter")
        await window.shows("4. No")
        wire.cut()
        await window.shows("reconnecting")
        window.press("1", "Enter")
        await window.shows("= Yes, once")
        yield wire, control_server
        assert await window.leave() == 0


async def test_is_sent_when_there_is_another_one(
    window: Window, wire: tuple[Wire, ApiServer], fake_model: FakeModels
) -> None:
    cut, _ = wire
    await window.shows(fragment("cli.chat.server_requests.PersonAsked._answer"))
    assert len(fake_model.requests) == 1
    cut.mend()
    await window.shows("so it is")
    assert "42" in fake_model.requests[-1].results[-1]
    assert sum("= Yes, once" in line for line in window.lines()) == 1
    assert sum("asks" in line for line in window.lines()) == 1  # nor is it asked again


async def test_is_said_not_to_be_taken_if_the_question_was_closed_meanwhile(
    window: Window, wire: tuple[Wire, ApiServer], fake_model: FakeModels
) -> None:
    cut, control_server = wire
    await window.shows(fragment("cli.chat.server_requests.PersonAsked._answer"))
    (question,) = (await control_server.get("/v1/questions"))["questions"]
    await control_server.post(f"/v1/questions/{question['id']}/answer", {"value": "no"})
    await fake_model.arrived(2)
    cut.mend()
    await window.shows("not accepted, because the question is closed: Yes, once (to:")
    await window.shows("so it is")
    assert "42" not in fake_model.requests[-1].results[-1]
