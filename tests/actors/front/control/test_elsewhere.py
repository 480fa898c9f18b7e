"""Runs of another process that writes into the same directory: they are listed and can be watched, and no more.

The other process is a second hub: what tells processes apart is the sign that each puts up, and each hub has its own.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner
from support.control_hub import Client, hub_of
from support.fake_models import FakeModels
from support.messages import says
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.liveness import Alive
from callboard.actors.front.control.logs import run_logs
from callboard.actors.front.control.logs.files import LogPage, StoredRun, write_summary
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.control.resources import RunInfo
from callboard.protocol.errors import Conflict, UsageError


@pytest.fixture
async def other(root: callboard.Root, fake_model: FakeModels, tmp_path: Path) -> AsyncIterator[Hub]:
    """The hub of the other process."""
    async with (
        callboard.Root(config_dir=root.config_dir, wait_for_front_end=True) as root,
        hub_of(root, tmp_path / "state") as hub,
    ):
        yield hub


async def _asking(other: Hub) -> tuple[str, str]:
    run = (await other.start(LOCAL, StartRun(target="asks"))).run
    await until(lambda: other.questions(LOCAL, run))
    await other.logs.flush()
    return run, other.questions(LOCAL, run)[0].id


async def test_a_run_begun_elsewhere_is_listed_and_so_is_its_end(
    agent_runner: AgentRunner, hub: Hub, other: Hub
) -> None:
    run, question = await _asking(other)
    await hub.logs.rescan(())
    assert [info.run for info in hub.list(LOCAL)] == [run]
    assert not hub.list(LOCAL)[0].over
    assert await other.answer(LOCAL, question, "Anna")
    await other.wait(LOCAL, run)
    await other.logs.flush()
    with trio.fail_after(60):
        while not hub.list(LOCAL)[0].over:
            await hub.logs.rescan(())
            await trio.sleep(0.01)
    assert hub.list(LOCAL)[0].status == "done"


async def test_runs_of_ones_own_are_not_taken_for_those_of_others(agent_runner: AgentRunner, hub: Hub) -> None:
    run, _ = await _asking(hub)
    await hub.logs.flush()
    await hub.logs.rescan(())
    assert run not in hub.logs.past
    assert [info.run for info in hub.list(LOCAL)] == [run]


async def test_a_directory_that_is_gone_is_no_reason_to_end(
    agent_runner: AgentRunner, hub: Hub, tmp_path: Path
) -> None:
    shutil.rmtree(hub.logs.directory)
    await hub.logs.rescan(())
    assert hub.list(LOCAL) == []


async def test_a_run_elsewhere_is_followed_to_its_end_without_a_gap(
    agent_runner: AgentRunner, hub: Hub, other: Hub
) -> None:
    run, question = await _asking(other)
    seen: list[int] = []
    kinds: list[str] = []
    with trio.fail_after(60), hub.subscribe(LOCAL, run) as events:
        async for event in events:
            seen.append(event.seq)
            kinds.append(event.kind)
            if event.kind == "question.asked":
                assert await other.answer(LOCAL, question, "Anna")
    assert seen == list(range(1, len(seen) + 1))
    assert kinds[-1] == "run.finished"
    assert hub.get(LOCAL, run).status == "done"


async def test_a_run_elsewhere_can_be_followed_from_where_one_was(
    agent_runner: AgentRunner, hub: Hub, other: Hub
) -> None:
    run, question = await _asking(other)
    after = other.get(LOCAL, run).seq
    with trio.fail_after(60), hub.subscribe(LOCAL, run, after) as events:
        assert await other.answer(LOCAL, question, "Anna")
        seqs = [event.seq async for event in events]
    assert seqs[0] == after + 1
    with pytest.raises(UsageError, match=says("front.control.hub.Hub.subscribe")):
        hub.subscribe(LOCAL, run, -1)


async def test_who_follows_a_run_elsewhere_is_told_how_it_ended(
    agent_runner: AgentRunner, hub: Hub, other: Hub, client: Client
) -> None:
    run, question = await _asking(other)
    begun = await client.result("_run/subscribe", run=run)
    assert await other.answer(LOCAL, question, "Anna")
    ended = await client.until_told("_run/ended")
    assert ended == {"subscription": begun["subscription"], "run": run, "status": "done"}
    assert client.seqs() == list(range(1, other.get(LOCAL, run).seq + 1))


async def test_many_who_follow_a_run_elsewhere_read_its_log_once(
    agent_runner: AgentRunner, hub: Hub, other: Hub, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    reads = looks = 0
    real_read, real_look = run_logs.read_page, run_logs.RunLogs.is_over

    def read(*place: Any) -> LogPage:
        nonlocal reads
        reads += 1
        return real_read(*place)

    async def look(logs: run_logs.RunLogs, run: str) -> bool:
        nonlocal looks
        looks += 1
        return await real_look(logs, run)

    monkeypatch.setattr(run_logs, "read_page", read)
    monkeypatch.setattr(run_logs.RunLogs, "is_over", look)
    monkeypatch.setattr(run_logs, "LOOK_EVERY", 0.02)
    run, question = await _asking(other)
    so_far = other.get(LOCAL, run).seq
    seen: list[list[int]] = [[] for _ in range(300)]
    leading = trio.CancelScope()

    async def follow(mine: list[int]) -> None:
        with hub.subscribe(LOCAL, run) as events:
            async for event in events:
                mine += [event.seq]

    async def begin_and_leave() -> None:
        with leading:
            await follow([])

    with trio.fail_after(60):
        nursery.start_soon(begin_and_leave)
        await until(lambda: looks >= 2)
        async with trio.open_nursery() as following:
            for mine in seen:
                following.start_soon(follow, mine)
            await until(lambda: all(len(mine) == so_far for mine in seen))
            leading.cancel()  # it was the one who looked for all of them
            begun = looks
            await until(lambda: looks > begun + 2)
            assert reads <= 5
            assert await other.answer(LOCAL, question, "Anna")
    assert {tuple(mine) for mine in seen} == {tuple(range(1, other.get(LOCAL, run).seq + 1))}
    assert reads <= 30, "each piece of the log is read once or twice, whoever follows"


LINE = '{"seq":%d,"kind":"llm.delta","ts":"2026-01-01T00:00:00Z","data":{"text":"x"}}\n'


def _begun_elsewhere(hub: Hub) -> tuple[Alive, Path]:
    """The sign of a process that can be killed, and the log of its run, `run-killed`."""
    other = Alive(hub.logs.directory / ".alive")
    other.begin()
    directory = hub.logs.directory / "run-killed"
    directory.mkdir()
    write_summary(
        directory, StoredRun(process=other.token, info=RunInfo(run="run-killed", owner="local", status="running"))
    )
    log = directory / "events.jsonl"
    log.write_text(LINE % 1)
    return other, log


async def test_a_long_log_of_a_process_that_was_killed_is_not_read_while_everybody_waits(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, log = _begun_elsewhere(hub)
    log.write_text("".join(LINE % number for number in range(1, 31)))
    other.end()
    monkeypatch.setattr(run_logs, "QUICKLY_READ", 1000)
    assert hub.get(LOCAL, "run-killed").status == "running"
    await hub.logs.rescan(())
    info = hub.get(LOCAL, "run-killed")
    assert (info.status, info.seq) == ("lost", 30)


async def test_a_run_elsewhere_whose_process_was_killed_ends_for_all_who_follow_it(
    root: callboard.Root, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "LOOK_EVERY", 0.02)
    other, log = _begun_elsewhere(hub)
    seen: list[list[int]] = [[], [], []]

    async def follow(mine: list[int]) -> None:
        with hub.subscribe(LOCAL, "run-killed") as events:
            async for event in events:
                mine += [event.seq]

    with trio.fail_after(60):
        async with trio.open_nursery() as following:
            for mine in seen:
                following.start_soon(follow, mine)
            await until(lambda: all(seen))
            with log.open("a") as file:
                file.write(LINE % 2 + '{"seq":3,"ki')  # the last words, and half a one
            other.end()
    assert seen == [[1, 2]] * 3
    assert hub.get(LOCAL, "run-killed").status == "lost"


async def test_a_run_elsewhere_can_not_be_steered_and_the_reason_is_said(
    agent_runner: AgentRunner, hub: Hub, other: Hub
) -> None:
    run, _ = await _asking(other)
    with pytest.raises(Conflict, match=says("front.control.runs.running.owned_by_other_process")):
        hub.cancel(LOCAL, run)
    assert not other.get(LOCAL, run).over
    assert hub.actors.tree(LOCAL, run) == []
