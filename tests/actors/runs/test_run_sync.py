"""`callboard.run_sync`: a run for threads without an event loop. For asyncio see test_asyncio_programs.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trio
from support.messages import says

import callboard
from callboard.protocol.errors import UsageError

GRAPH = "name: g\nstart: e\nnodes:\n  e: {type: end, output: 'said {{initial_prompt}}'}\n"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph that needs no model."""
    file = tmp_path / "echo.yaml"
    file.write_text(GRAPH)
    return file


def test_it_runs_trio_by_itself_and_takes_the_arguments_of_run(graph: Path) -> None:
    kinds: list[str] = []
    outcome = callboard.run_sync(
        graph, "hi", config_dir=graph.parent, id="run-7", on_event=lambda event: kinds.append(event.kind)
    )
    assert (outcome.output, outcome.run_id) == ("said hi", "run-7")
    assert (kinds[0], kinds[-1]) == ("run.started", "run.finished")


def test_it_raises_what_run_raises(graph: Path) -> None:
    with pytest.raises(UsageError, match=says("protocol.requests.RunRequest.__post_init__")):
        callboard.run_sync(graph, compat="lokki")
    with pytest.raises(TypeError, match="colour"):
        callboard.run_sync(graph, colour="red")  # type: ignore[call-arg]  # the test


def test_many_of_them_at_once_in_threads_have_a_root_each(graph: Path) -> None:
    async def main() -> list[str]:
        calls = [asyncio.to_thread(callboard.run_sync, graph, word, config_dir=graph.parent) for word in "abc"]
        return [outcome.output for outcome in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == ["said a", "said b", "said c"]


def test_under_asyncio_it_does_not_block_the_loop_and_says_what_to_call(graph: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=says("runs.run.run_sync.2")):
            callboard.run_sync(graph, "hi")

    asyncio.run(main())


def test_without_any_loop_run_says_how(graph: Path) -> None:
    with pytest.raises(UsageError, match=says("runs.root.check_new_root.2")):
        callboard.run(graph, "hi").send(None)


async def test_in_a_trio_task_it_says_to_await_run(graph: Path) -> None:
    with pytest.raises(UsageError, match=says("runs.run.run_sync")):
        callboard.run_sync(graph, "hi")


async def test_in_a_thread_of_a_trio_program_it_has_a_root_of_its_own(graph: Path) -> None:
    heard: list[str] = []
    async with callboard.Root(config_dir=graph.parent) as root:
        with root.bus.listen(lambda event: heard.append(event.run)):
            outcome = await trio.to_thread.run_sync(callboard.run_sync, graph, "hi")
    assert outcome.output == "said hi"
    assert outcome.run_id not in heard


async def test_in_a_thread_it_runs_under_the_root_that_it_is_given(graph: Path) -> None:
    heard: list[str] = []
    async with callboard.Root(config_dir=graph.parent) as root:
        with root.bus.listen(lambda event: heard.append(event.run)):
            outcome = await trio.to_thread.run_sync(lambda: callboard.run_sync(graph, "hi", root=root))
    assert outcome.output == "said hi"
    assert set(heard) - {""} == {outcome.run_id}
