"""Ids that programs choose for durable runs: one that is in use is refused, and nothing else suffers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from support.messages import says
from support.waiting import until

import callboard
from callboard.actors.io.directories import journal_dir
from callboard.errors import Conflict
from callboard.testing import ScriptedModel

CLERK = callboard.Agent(name="clerk", instructions="Answer.")

PROGRAM = """
import callboard, sys, trio
from callboard.testing import ScriptedModel

class Asks:
    name = "test:asks"

    async def request(self, request):
        print("asked", flush=True)
        await trio.sleep_forever()
        yield ""

model = Asks() if sys.argv[1:] else ScriptedModel(["Hello."])
clerk = callboard.Agent(name="clerk", instructions="Answer.")
print(callboard.run_sync(clerk, "Hi", model=model, durable=True, id="run-7").final)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return tmp_path


async def run(root: callboard.Root, id: str) -> str:
    outcome = await root.run(CLERK, "Hi", model=ScriptedModel(["Hello."]), durable=True, id=id)
    return outcome.final


async def test_the_id_of_a_run_that_is_over_is_refused_and_others_stay_durable() -> None:
    async with callboard.Root() as root:
        assert await run(root, "run-a") == "Hello."
        for _ in range(2):
            with pytest.raises(Conflict, match="run-a already exists, and has ended"):
                await run(root, "run-a")
        assert await run(root, "run-b") == "Hello."
    async with callboard.Root() as root:
        with pytest.raises(Conflict, match="run-b already exists"):
            await run(root, "run-b")


async def test_the_id_of_a_run_under_way_is_refused_and_that_run_goes_on() -> None:
    ended = list[str]()
    asked, answer = trio.Event(), trio.Event()

    class Waits:
        name = "test:waits"

        async def request(self, request: callboard.chat.ChatRequest) -> callboard.chat.ChatReply:
            asked.set()
            await answer.wait()
            return callboard.chat.ChatReply(text="Hello.", model=self.name)

    async def first() -> None:
        ended.append((await root.run(CLERK, "Hi", model=Waits(), durable=True, id="run-a")).unwrap())

    async with callboard.Root() as root, trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await asked.wait()
        with pytest.raises(Conflict, match=says("runs.first_row.check_id.3", run="run-a")):
            await run(root, "run-a")
        with pytest.raises(Conflict, match="run-a is already being executed by this process"):
            await root.resume("run-a", agent=CLERK)
        answer.set()
    assert ended == ["Hello."]


async def test_a_run_that_is_over_cant_be_resumed_and_says_so() -> None:
    async with callboard.Root() as root:
        await run(root, "run-a")
        with pytest.raises(Conflict, match="run-a has already ended"):
            await root.resume("run-a", agent=CLERK)


@pytest.mark.parametrize("state", ["has ended", "was interrupted", "is under way"])
async def test_the_id_of_a_run_of_another_process_is_refused(state: str) -> None:
    words = [] if state == "has ended" else ["asks"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / ".types")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stdout is not None
            await trio.to_thread.run_sync(process.stdout.readline)
            # Rows are stored in groups, a moment after the request: a kill before that leaves no run of this id.
            await until(lambda: any(b"run-7" in each.read_bytes() for each in journal_dir(os.environ).iterdir()))
            if state != "is under way":
                if words:
                    process.kill()
                await trio.to_thread.run_sync(process.wait)
            async with callboard.Root() as root:
                with pytest.raises(Conflict, match=f"run-7 already exists, and {state}"):
                    await run(root, "run-7")
                assert await run(root, "run-8") == "Hello."
        finally:
            process.kill()
