"""ACP over two pipes: lines in, lines out; and an end in the middle of things leaves nothing alive."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply
from support.waiting import until

import callboard
from callboard.actors.front.acp.agent import serve_acp

Json = Any


class Pipes:
    """Our end of the pipes. Attributes: `said`, the messages so far; `ended`, set when the serving is over."""

    def __init__(self) -> None:
        theirs, ours = os.pipe()
        back, sink = os.pipe()
        self.source, self.sink = theirs, sink
        self._writing = trio.lowlevel.FdStream(ours)
        self._reading = trio.lowlevel.FdStream(back)
        self.said: list[Json] = []
        self.ended = trio.Event()

    async def serve(self, root: callboard.Root) -> None:
        """The other side."""
        await serve_acp(root, "clerk", pipes=(self.source, self.sink))
        self.ended.set()

    async def read(self) -> None:
        """Take what comes, to its end."""
        left = b""
        while piece := await self._reading.receive_some():
            *lines, left = (left + piece).split(b"\n")
            self.said += [json.loads(line) for line in lines]

    async def put(self, raw: bytes) -> None:
        await self._writing.send_all(raw)

    async def tell(self, id: int, method: str, **params: Json) -> None:
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        await self.put(json.dumps(frame).encode() + b"\n")

    async def answer(self, id: int | None) -> Json:
        """The answer to a request."""
        found: list[Json] = []

        def there() -> bool:
            found[:] = [each for each in self.said if "method" not in each and each["id"] == id]
            return bool(found)

        await until(there, 60)
        return found[0]

    async def close(self) -> None:
        """The editor is gone."""
        await self._writing.aclose()

    async def aclose(self) -> None:
        await self._writing.aclose()
        await self._reading.aclose()


@pytest.fixture
async def root(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[callboard.Root]:
    """With an agent `clerk` that can be slow in more than one way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with callboard.Root(config_dir=fake_model.config_dir(tmp_path / "config"), patient=True) as root:
        home = AgentRunner(root.config_dir, fake_model, root).plain("global_tools: [fs_write]", name="clerk")
        (home / "tools.sh").write_text(
            f"# @cmd Takes its time.\nnap() {{ echo $$ > {tmp_path}/pid; exec sleep 1000; }}\n"
        )
        yield root


@pytest.fixture
async def pipes(root: callboard.Root, nursery: trio.Nursery) -> AsyncIterator[Pipes]:
    """Pipes that are served."""
    pipes = Pipes()
    nursery.start_soon(pipes.serve, root)
    nursery.start_soon(pipes.read)
    yield pipes
    await pipes.close()
    with trio.fail_after(60):
        await pipes.ended.wait()
    await pipes.aclose()


async def session_of(pipes: Pipes, place: Path) -> str:
    await pipes.tell(1, "session/new", cwd=str(place), mcpServers=[])
    return str((await pipes.answer(1))["result"]["sessionId"])


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


async def gone(pipes: Pipes, root: callboard.Root) -> None:
    """All is over, and nothing is left below the root."""
    with trio.fail_after(60):
        await pipes.ended.wait()
    await until(lambda: not [name for name in root.kernel.actor.children if str(name).startswith("run-")])


async def test_a_line_that_is_no_message_is_answered_and_the_next_one_heard(pipes: Pipes, tmp_path: Path) -> None:
    await pipes.put(b"this is no JSON\n\n[1, 2]\n\xff\xfe\n")
    await pipes.tell(7, "session/list")
    assert (await pipes.answer(7))["result"]["sessions"] == []
    codes = [each["error"]["code"] for each in pipes.said if "error" in each]
    assert codes == [-32700, -32600, -32700]


async def test_an_end_in_the_middle_of_a_reply_cancels_the_run(
    pipes: Pipes, root: callboard.Root, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.answer_with(lambda _: Reply(text="slowly " * 500, piece=7, gap=0.05))
    session = await session_of(pipes, tmp_path)
    await pipes.tell(2, "session/prompt", sessionId=session, prompt=words("go"))
    await until(lambda: "slowly" in json.dumps(pipes.said))
    await pipes.close()
    await gone(pipes, root)
    stored = await root.sessions.get(None, session)
    assert stored.session.messages[-1]["content"].startswith("slowly")  # what was said by then is kept


async def test_an_end_while_a_tool_runs_ends_its_process(
    pipes: Pipes, root: callboard.Root, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.script(Reply(calls=[("nap", {})]))
    session = await session_of(pipes, tmp_path)
    await pipes.tell(2, "session/set_mode", sessionId=session, modeId="yes")
    await pipes.tell(3, "session/prompt", sessionId=session, prompt=words("go"))
    file = tmp_path / "pid"
    await until(lambda: file.exists() and file.read_text().strip(), 60)
    sleeper = psutil.Process(int(file.read_text()))
    await pipes.close()
    await gone(pipes, root)
    assert not sleeper.is_running()


async def test_an_end_while_a_permission_is_asked_and_in_the_middle_of_a_line_ends_all(
    pipes: Pipes, root: callboard.Root, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.script(Reply(calls=[("fs_write", {"path": "a.txt", "contents": "x"})]))
    session = await session_of(pipes, tmp_path)
    await pipes.tell(2, "session/prompt", sessionId=session, prompt=words("go"))
    await until(lambda: [each for each in pipes.said if each.get("method") == "session/request_permission"], 60)
    await pipes.put(b'{"jsonrpc": "2.0", "id": "c1", "result": {"outcome": {"outcome": "sel')
    await pipes.close()
    await gone(pipes, root)
    assert not (tmp_path / "a.txt").exists()
    assert root.questions.open == ()
