"""`root.stream`: a run is followed under trio and under asyncio, at the pace of its reader, and ends with its block."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.agent_runs import at_work
from support.fake_models import FakeModels, Reply
from support.messages import says
from support.waiting import POLL, until

import callboard
from callboard.actors.runs import run_stream
from callboard.actors.runs.root import in_asyncio
from callboard.protocol.agent import Agent
from callboard.protocol.errors import InvalidFile, UsageError
from callboard.protocol.events import LlmDelta, Warned

BOT = Agent(name="bot", instructions="Be brief.", can_ask_user=False)
SAID = "The quick brown fox jumps over the lazy dog."

Main = Callable[[callboard.Root], Awaitable[Any]]


@pytest.fixture
def config(fake_model: FakeModels, tmp_path: Path) -> Path:
    return fake_model.config_dir(tmp_path / "config")


@pytest.fixture(params=["trio", "asyncio"])
def program(request: pytest.FixtureRequest, config: Path) -> Callable[[Main], Awaitable[Any]]:
    """Run the body of a root's block in a loop of this kind; nothing is left under the root at its end."""

    async def main(body: Main) -> Any:
        async with callboard.Root(config_dir=config) as root:
            result = await body(root)
            assert at_work(root) == []
            assert root.kernel.loop is not None
            assert root.kernel.loop.calls == set()
            return result

    async def run(body: Main) -> Any:
        if request.param == "trio":
            return await main(body)
        return await trio.to_thread.run_sync(lambda: asyncio.run(main(body)))

    return run


async def test_events_come_without_gaps_then_the_outcome(fake_model: FakeModels, program: Any) -> None:
    fake_model.script(SAID)

    async def body(root: callboard.Root) -> None:
        async with root.stream(BOT, "hi") as run:
            kinds, last = [], 0
            async for event in run:
                assert event.run == run.id
                assert event.seq > last
                kinds.append(event.kind)
                last = event.seq
            assert (kinds[0], kinds[-1]) == ("run.started", "run.finished")
            outcome = await run.outcome()
            assert (outcome.status, outcome.output, outcome.run_id) == ("done", SAID, run.id)
            assert run.dropped == 0
            assert await run.outcome() is outcome
            assert [event async for event in run] == []

    await program(body)


async def test_text_comes_as_it_arrives(fake_model: FakeModels, program: Any) -> None:
    """The rest of the reply is sent when the first piece was read."""
    fake_model.script(Reply(SAID, stall=3))

    async def body(root: callboard.Root) -> str:
        async with root.stream(BOT, "hi") as run:
            async for text in run.text():
                return text
        raise AssertionError("no text")

    assert SAID.startswith(await program(body))


async def test_the_text_of_a_run_is_the_whole_of_it_however_slow_its_reader(
    fake_model: FakeModels, program: Any
) -> None:
    fake_model.script(Reply(SAID, piece=1))

    async def body(root: callboard.Root) -> tuple[str, int]:
        async with root.stream(BOT, "hi") as run:
            await run.outcome()
            pieces = [text async for text in run.text()]
            return "".join(pieces), len(pieces)

    assert await program(body) == (SAID, 1)


GRAPH = """\
name: g
start: ask
nodes:
  ask: {type: llm, prompt: "{{initial_prompt}}", state_updates: {said: "{{output}}"}, next: done}
  done: {type: end, output: "{{said}}"}
"""


@pytest.mark.parametrize("target", ["agent", "graph"])
async def test_the_text_of_a_model_that_does_not_stream_comes_once_and_whole(
    fake_model: FakeModels, config: Path, program: Any, target: str
) -> None:
    file = config / "config.yaml"
    keys = json.loads(file.read_text())
    keys["clients"][0]["models"] = [{"name": "model", "no_stream": True}]
    file.write_text(json.dumps(keys))
    graph = config / "g.yaml"
    graph.write_text(GRAPH)
    fake_model.script(SAID)

    async def body(root: callboard.Root) -> list[str]:
        async with root.stream(BOT if target == "agent" else graph, "hi") as run:
            pieces = [text async for text in run.text()]
            assert [text async for text in run.text()] == []
            assert (await run.outcome()).final == SAID
            return pieces

    assert await program(body) == [SAID]
    assert not fake_model.requests[0].json.get("stream")


async def test_text_is_that_of_the_run_s_own_agent(fake_model: FakeModels, config: Path, program: Any) -> None:
    (config / "agents" / "helper").mkdir(parents=True)
    (config / "agents" / "helper" / "config.yaml").write_text(
        "name: helper\ninstructions: Help.\ncan_ask_user: false\n"
    )
    boss = Agent(
        name="boss",
        instructions="x",
        can_ask_user=False,
        can_spawn_agents=True,
        spawnable_agents=("helper",),
    )
    spawn = ("agent__spawn", {"agent": "helper", "prompt": "do it"})

    def answer(request: Any) -> Reply | str:
        if request.system.startswith("Help"):
            return "helper speaks"
        if not request.results:
            return Reply(calls=[spawn])
        if len(request.results) == 1:
            return Reply(calls=[("agent__collect", {"id": "helper_1"})])
        return "boss speaks"

    fake_model.answer_with(answer)

    async def body(root: callboard.Root) -> tuple[str, int]:
        async with root.stream(boss, "hi") as run:
            said = "".join([text async for text in run.text()])
            return said, len(fake_model.requests)

    said, _ = await program(body)
    assert "helper speaks" not in said
    assert said.endswith("boss speaks")


async def test_leaving_the_block_cancels_the_run(fake_model: FakeModels, program: Any) -> None:
    fake_model.answer_with(lambda _: Reply(SAID, stall=3))

    async def body(root: callboard.Root) -> callboard.Outcome:
        async with root.stream(BOT, "hi") as run:
            async for _ in run.text():
                break
        assert at_work(root) == []
        return await run.outcome()

    outcome = await program(body)
    assert (outcome.status, outcome.exit_code) == ("cancelled", 130)
    await fake_model.until(lambda server: server.cut == 1)


async def test_a_cancelled_run_ends_its_events_and_has_an_outcome(fake_model: FakeModels, program: Any) -> None:
    fake_model.answer_with(lambda _: Reply(SAID, stall=3))

    async def body(root: callboard.Root) -> tuple[str, str]:
        async with root.stream(BOT, "hi") as run:
            async for event in run:
                if isinstance(event.data, LlmDelta):
                    run.cancel()
            return (await run.outcome()).status, event.kind

    assert await program(body) == ("cancelled", "run.cancelled")


async def test_a_run_that_is_cancelled_at_once_has_an_outcome_too(fake_model: FakeModels, program: Any) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))

    async def body(root: callboard.Root) -> callboard.Outcome:
        async with root.stream(BOT, "hi", id="run-7") as run:
            run.cancel()
            return await run.outcome()

    outcome = await program(body)
    assert (outcome.run_id, outcome.status) == ("run-7", "cancelled")


@pytest.mark.parametrize("way", ["events", "text", "outcome", "nothing"])
async def test_a_run_that_can_t_start_raises_why(program: Any, way: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("nodes: 3")

    async def follow(root: callboard.Root) -> None:
        async with root.stream(tmp_path / "bad.yaml", "hi") as run:
            if way == "events":
                assert [event async for event in run] == []
            elif way == "text":
                assert [text async for text in run.text()] == []
            elif way == "outcome":
                await run.outcome()
            else:
                pause = asyncio.sleep if in_asyncio() else trio.sleep
                await pause(POLL)
                root.kernel.in_loop(lambda: None)  # the call has begun
                assert root.kernel.loop is not None
                while root.kernel.loop.calls:
                    await pause(POLL)

    async def body(root: callboard.Root) -> None:
        with pytest.raises(InvalidFile):
            await follow(root)

    await program(body)


async def test_a_stream_is_one_run_of_an_open_root(program: Any) -> None:
    async def body(root: callboard.Root) -> None:
        stream = root.stream(BOT, "hi")
        with pytest.raises(UsageError, match=says("runs.run_stream.RunStream._new_reply")):
            await stream.outcome()
        async with stream:
            await stream.outcome()
        with pytest.raises(UsageError, match=says("runs.run_stream.RunStream.__aenter__")):
            async with stream:
                pass

    await program(body)


async def test_a_reader_that_is_too_slow_is_told_what_was_left_out_and_delays_no_run(
    fake_model: FakeModels, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_stream, "MOST", 10)
    count = 0

    def answer(request: Any) -> Reply | str:
        nonlocal count
        count += 1
        return Reply(f"{count}.", calls=[("add", {"a": count, "b": 1})]) if count < 20 else "Done."

    fake_model.answer_with(answer)

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    heard: list[int] = []

    async def body(root: callboard.Root) -> None:
        async with root.stream(BOT, "hi", tools=[add], on_event=lambda event: heard.append(event.seq)) as run:
            outcome = await run.outcome()  # the run has ended; not an event of it was read
            assert outcome.output.endswith("Done.")
            events = [event async for event in run]
            told = [event for event in events if isinstance(event.data, Warned)]
            assert [event.data.code for event in told] == ["events_left_out"]
            assert [event.kind for event in events][-1] == "run.finished"
            text = "".join(event.data.text for event in events if isinstance(event.data, LlmDelta))
            assert text == "".join(f"{number}." for number in range(1, 20)) + "Done."
            assert run.dropped > 0

    await program(body)
    assert heard == list(range(1, len(heard) + 1))


async def test_tools_of_an_asyncio_stream_run_in_its_loop(fake_model: FakeModels, config: Path) -> None:
    fake_model.script(Reply(calls=[("where", {})]), "there")
    loops: list[object] = []

    async def where() -> None:
        """Where."""
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root, root.stream(BOT, "hi", tools=[where]) as run:
            assert (await run.outcome()).output == "there"
            assert loops == [asyncio.get_running_loop()]

    await trio.to_thread.run_sync(lambda: asyncio.run(main()))


async def test_streams_abandoned_in_the_middle_leave_nothing(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(SAID, stall=3))
    threads = {thread.name for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}

    @asynccontextmanager
    async def first_words(root: callboard.Root) -> AsyncIterator[str]:
        async with root.stream(BOT, "hi") as run:
            async for text in run.text():
                yield text

    async def client(root: callboard.Root) -> None:
        async with first_words(root):
            raise ConnectionResetError

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            ended = await asyncio.gather(*(client(root) for _ in range(50)), return_exceptions=True)
            assert {type(error) for error in ended} == {ConnectionResetError}
            assert at_work(root) == []
            assert asyncio.all_tasks() == {asyncio.current_task()}

    await trio.to_thread.run_sync(lambda: asyncio.run(main()))
    await until(lambda: fake_model.open == 0)
    assert {thread.name for thread in threading.enumerate() if not thread.name.startswith("Trio thread")} == threads
