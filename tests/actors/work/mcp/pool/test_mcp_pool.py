"""Servers over time: idle ones end when they are due, sick ones at once, those that die come back, within reason.

The clock is trio's mock clock; it runs as a real one does, and jumps where hours have to pass.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from support.descendants import is_alive
from support.fake_mcp_http import Legacy, Talk, fake_mcp, result
from support.fake_models import Request
from support.mcp_processes import McpProcesses, scripted, tiny
from support.messages import has_message, says
from support.waiting import PATIENCE, until
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.actors.work.mcp.pool.servers import ServerScope
from callboard.protocol.errors import InvalidFile, McpError, McpLost, UsageError
from callboard.protocol.mcp.config import HealthCheck, McpConfig, PoolSettings, Server
from callboard.protocol.problems import Problem
from callboard.supervisors import Actor, Root


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    """Servers of a test; none is alive at its end."""
    async with Root() as root:
        mcp_processes = McpProcesses(root, tmp_path)
        with root.bus.listen(mcp_processes.events.append):
            yield mcp_processes
    assert mcp_processes.alive == []
    assert not root.tasks


@pytest.fixture(autouse=True)
def real_time(mock_clock: MockClock) -> None:
    mock_clock.rate = 1.0


async def use(mcp_processes: McpProcesses, *names: str) -> list[str]:
    """Call each of them once, for an agent that ends after that."""
    with mcp_processes.scope() as scope:
        return [await mcp_processes.call(scope, name) for name in names]


# --- idle ------------------------------------------------------------------------------------------------------


async def test_108_used_again_within_its_time_is_one_start(mcp_processes: McpProcesses, mock_clock: MockClock) -> None:
    mcp_processes.build(tiny("s"), serving=True)
    await use(mcp_processes, "s")
    mock_clock.jump(290)
    await use(mcp_processes, "s")
    counted = mcp_processes.servers.statistics()
    assert (counted.spawned, counted.acquire_miss, counted.acquire_idle_hit) == (1, 1, 1)
    assert len(mcp_processes.starts) == 1


async def test_108_after_its_time_it_is_evicted(mcp_processes: McpProcesses, mock_clock: MockClock) -> None:
    mcp_processes.build(tiny("s"), tiny("long", "x", idle_timeout_seconds=1000), serving=True)
    await use(mcp_processes, "s", "long")
    mock_clock.jump(299)
    await wait_all_tasks_blocked()
    assert len(mcp_processes.alive) == 2
    mock_clock.jump(2)
    await until(lambda: mcp_processes.alive == [mcp_processes.starts[1]])
    assert mcp_processes.servers.statistics().idle_evicted == 1
    mock_clock.jump(700)
    await until(lambda: mcp_processes.alive == [])


async def test_108_beyond_the_cap_the_oldest_is_evicted(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(
        tiny("a", "a"), tiny("b", "b"), tiny("c", "c"), pool=PoolSettings(max_idle_servers=2), serving=True
    )
    await use(mcp_processes, "a")
    await use(mcp_processes, "b")
    await use(mcp_processes, "a")
    await use(mcp_processes, "c")
    a, b, c = mcp_processes.starts
    await until(lambda: not is_alive(b))
    assert mcp_processes.alive == [a, c]
    assert mcp_processes.servers.statistics().lru_evicted == 1


@pytest.mark.parametrize(
    ("on_failure", "evicted", "told"), [("Evict", True, 0), ("EvictAndLog", True, 1), ("LogOnly", False, 1)]
)
async def test_108_one_that_does_not_answer_its_health_check_is_evicted(
    mcp_processes: McpProcesses, mock_clock: MockClock, on_failure: Any, evicted: bool, told: int
) -> None:
    check = HealthCheck(interval_seconds=60, timeout_seconds=5, on_failure=on_failure)
    mcp_processes.build(tiny("sick", "1"), tiny("well", "2"), pool=PoolSettings(health_check=check), serving=True)
    await use(mcp_processes, "sick", "well")
    sick, well = mcp_processes.starts
    os.kill(sick, signal.SIGSTOP)
    mock_clock.jump(61)
    await until(lambda: mcp_processes.servers.statistics().health_ok == 1)
    mock_clock.jump(5)
    await until(lambda: mcp_processes.servers.statistics().health_failed == 1)
    if evicted:
        await until(lambda: not is_alive(sick))
    else:
        os.kill(sick, signal.SIGCONT)
    assert is_alive(well)
    assert is_alive(sick) is not evicted
    warnings = [data.message for data in mcp_processes.of("run.warning") if data.code == "mcp_health"]
    assert warnings == ["MCP server 'sick' did not answer a ping within 5 s"] * told
    assert mcp_processes.servers.statistics().health_ok == 1


async def test_108_shutdown_leaves_no_child(tmp_path: Path, mock_clock: MockClock) -> None:
    async with Root() as root:
        mcp_processes = McpProcesses(root, tmp_path)
        mcp_processes.build(*(tiny(f"s{number}", str(number)) for number in range(5)), serving=True)
        await use(mcp_processes, *mcp_processes.servers.config.names)
        assert len(mcp_processes.alive) == 5
    assert mcp_processes.alive == []


async def test_one_shot_programs_keep_nothing_idle_but_what_somebody_has(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        assert await mcp_processes.call(scope, "s") == await mcp_processes.call(scope, "s")
    await until(lambda: mcp_processes.alive == [])
    assert len(mcp_processes.starts) == 1


# --- room ------------------------------------------------------------------------------------------------------


async def test_an_agent_with_more_servers_than_there_may_be_can_use_them_all(mcp_processes: McpProcesses) -> None:
    names = "abcde"
    mcp_processes.build(*(tiny(name, name) for name in names), pool=PoolSettings(max_servers=2))
    with trio.fail_after(60), mcp_processes.scope() as scope:
        for name in names * 2:
            await mcp_processes.call(scope, name)
            assert len(mcp_processes.alive) <= 2
    assert len(mcp_processes.starts) == 10


async def test_two_agents_that_want_each_others_server_don_t_wait_for_ever(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(
        scripted("a", "--plain"), scripted("b", "--plain", env={"B": ""}), pool=PoolSettings(max_servers=1)
    )
    told: list[str] = []

    async def agent(first: str, second: str) -> None:
        with mcp_processes.scope(first) as scope:
            told.extend([await mcp_processes.call(scope, name, "echo", text=name) for name in (first, second, first)])

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent, "a", "b")
            nursery.start_soon(agent, "b", "a")
    assert sorted(told) == ["a"] * 3 + ["b"] * 3


async def test_room_is_made_for_each_who_needs_it(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(*(tiny(name, name) for name in "abcd"), pool=PoolSettings(max_servers=2))
    with trio.fail_after(60), mcp_processes.scope() as first, mcp_processes.scope() as second:
        for name in "ab":
            await mcp_processes.call(first, name)
        async with trio.open_nursery() as nursery:
            for name in "cd":
                nursery.start_soon(mcp_processes.call, second, name)
        assert len(mcp_processes.starts) == 4
        assert len(mcp_processes.alive) == 2


async def test_what_only_one_agent_shares_is_never_taken_from_it(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("own", "1", share="per-agent"), tiny("s", "2"), pool=PoolSettings(max_servers=1))
    with mcp_processes.scope() as scope:
        pid = await mcp_processes.call(scope, "own")
        with trio.move_on_after(0.2):
            await mcp_processes.call(scope, "s")
        assert await mcp_processes.call(scope, "own") == pid
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")


# --- reload ----------------------------------------------------------------------------------------------------


async def test_reload_while_leased(mcp_processes: McpProcesses, tmp_path: Path) -> None:
    """A call under way ends on the old one; the next one is the new one's, with new credentials."""
    mcp_processes.build(scripted("s", env={"TOKEN": "${TOKEN}"}))
    mcp_processes.secrets["TOKEN"] = "old"
    told: list[str] = []
    with mcp_processes.scope() as scope, mcp_processes.scope("/other") as other:
        await mcp_processes.call(other, "s")

        async def slow() -> None:
            told.append(await mcp_processes.call(scope, "s", "slow", seconds=PATIENCE, file=str(tmp_path / "go")))

        async def reload() -> None:
            told.append(" ".join(await mcp_processes.servers.reload("s")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow)
            await until(lambda: mcp_processes.servers.status()[0].pending)
            mcp_processes.secrets["TOKEN"] = "new"
            nursery.start_soon(reload)
            await wait_all_tasks_blocked(0.05)
            (tmp_path / "go").touch()
            await until(lambda: len(mcp_processes.starts) == 2)
        assert sorted(told) == ["s", "slept"]
        await until(lambda: mcp_processes.alive == mcp_processes.starts[1:])
        assert await mcp_processes.call(scope, "s", "env", name="TOKEN") == "new"
        assert await mcp_processes.call(other, "s", "pid") == str(mcp_processes.starts[1])
    assert mcp_processes.servers.statistics().reloads == 1
    assert len(mcp_processes.starts) == 2


async def test_reload_reads_the_file_again_and_restarts_what_runs(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(
        tiny("a", "a"), tiny("b", "b"), tiny("cold", "c"), tiny("own", "d", share="per-agent"), serving=True
    )
    with mcp_processes.scope() as scope:
        pids = await use(mcp_processes, "a", "b")
        pids.append(await mcp_processes.call(scope, "own"))
        kept = {name: server for name, server in mcp_processes.config.servers.items() if name != "b"}
        mcp_processes.config = McpConfig(servers={**kept, "new": tiny("new", "e")})
        assert await mcp_processes.servers.reload() == ["a", "b", "own"]
        assert mcp_processes.servers.config.names == ("a", "cold", "own", "new")
        await until(lambda: not any(is_alive(int(pid)) for pid in pids))
        assert len(mcp_processes.alive) == 1
        assert await mcp_processes.call(scope, "own") not in pids
    assert await use(mcp_processes, "a") == [str(mcp_processes.starts[3])]


async def test_a_reload_that_fails_says_why_and_the_next_one_may_mend_it(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"), serving=True)
    await use(mcp_processes, "s")
    good = mcp_processes.config
    mcp_processes.config = McpConfig(servers={"s": scripted("s", "--complain", "no such key", "--exit", "3")})
    with pytest.raises(McpLost, match="no such key"):
        await mcp_processes.servers.reload()
    mcp_processes.config = good
    await mcp_processes.servers.reload("s")
    await use(mcp_processes, "s")


async def test_a_server_that_is_taken_out_of_the_file_while_it_is_reloaded_is_not_kept(
    mcp_processes: McpProcesses,
) -> None:
    mcp_processes.build(
        scripted("s", "--slow-start", "1")
    )  # so that it is still being reloaded when the file has changed
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_reload_in_vain, mcp_processes)
            await until(lambda: len(mcp_processes.starts) == 2)
            mcp_processes.config = McpConfig()
            await mcp_processes.servers.reload()
        await until(lambda: mcp_processes.alive == [])


async def _reload_in_vain(mcp_processes: McpProcesses) -> None:
    with pytest.raises(UsageError, match=says("protocol.mcp.config.McpConfig.get.4", name="s")):
        await mcp_processes.servers.reload("s")


async def test_a_file_that_can_t_be_read_any_more_reloads_nothing(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"), serving=True)
    problem = Problem(severity="error", file="mcp.json", line=3, code="syntax", message="a comma is missing")
    (pid,) = await use(mcp_processes, "s")
    mcp_processes.config = McpConfig(problems=(problem,))
    with pytest.raises(
        InvalidFile,
        match=says("work.mcp.pool.servers.McpServers.reload", problems="mcp.json:3: error: a comma is missing"),
    ):
        await mcp_processes.servers.reload()
    assert await use(mcp_processes, "s") == [pid]


async def test_an_entry_that_can_t_be_used_any_more_is_told(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"), tiny("t", "t"), serving=True)
    problem = Problem(severity="error", file="mcp.json", line=3, code="type", message="`command` is a list")
    _, pid = await use(mcp_processes, "s", "t")
    mcp_processes.config = McpConfig(
        servers={"t": mcp_processes.config.servers["t"]}, broken={"s": problem}, problems=(problem,)
    )
    with pytest.raises(
        UsageError,
        match=says("protocol.mcp.config.McpConfig.get.2", name="s", why="mcp.json:3: error: `command` is a list"),
    ):
        await mcp_processes.servers.reload()
    assert len(mcp_processes.starts) == 3
    assert await use(mcp_processes, "t") != [pid]


# --- death -----------------------------------------------------------------------------------------------------


async def test_dead_server_mid_call(mcp_processes: McpProcesses) -> None:
    """The call fails at once, is not repeated, and others don't notice; the next call starts the server anew."""
    mcp_processes.build(scripted("s"), tiny("other"))
    with mcp_processes.scope() as scope:
        pid = await mcp_processes.call(scope, "s")
        other = await mcp_processes.call(scope, "other")
        with pytest.raises(McpLost, match=r"(?s)status 7.*out of memory.*not repeated"):
            await mcp_processes.call(scope, "s", "die", words="out of memory", status=7)
        assert await mcp_processes.call(scope, "s") != pid
        assert await mcp_processes.call(scope, "other") == other
        status = {each.name: each for each in mcp_processes.servers.status()}["s"]
        assert (status.calls, status.errors, status.restarts, status.breaker) == (3, 1, 1, "closed")
        assert "out of memory" in status.last_error
    assert len(mcp_processes.starts) == 3
    counted = mcp_processes.servers.statistics()
    assert (counted.spawned, counted.lost, counted.restarts) == (3, 1, 1)
    stopped = [data for data in mcp_processes.of("mcp.stopped") if data.error]
    assert len(stopped) == 1
    assert has_message(stopped[0].error, "work.mcp.links.stdio.StdioLink._report_end.3", status="7…")


async def test_one_that_dies_between_two_calls_is_started_by_the_next(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        pids = {await mcp_processes.call(scope, "s")}
        for times in range(1, 4):
            os.kill(mcp_processes.starts[-1], signal.SIGKILL)
            await until(lambda: len(mcp_processes.of("mcp.stopped")) == times)  # noqa: B023 - it is awaited in its turn
            pids.add(await mcp_processes.call(scope, "s"))
    assert len(pids) == 4


async def test_what_a_server_had_not_read_when_it_died_is_asked_again_of_the_next_one(
    mcp_processes: McpProcesses,
) -> None:
    mcp_processes.build(scripted("s"))
    told: dict[str, str] = {}
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s", "echo", text="up")
        first = mcp_processes.starts[-1]

        async def call(tool: str, **arguments: Any) -> None:
            try:
                told[tool] = await mcp_processes.call(scope, "s", tool, **arguments)
            except McpLost as lost:
                told[tool] = str(lost)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(call, "slow", seconds=60))
            await mcp_processes.call(scope, "s", "echo", text="it has read what came before this")
            os.kill(first, signal.SIGSTOP)
            await until(lambda: psutil.Process(first).status() == psutil.STATUS_STOPPED)
            nursery.start_soon(call, "pid")
            await wait_all_tasks_blocked()
            os.kill(first, signal.SIGKILL)
    assert told["pid"] == str(mcp_processes.starts[-1])
    assert mcp_processes.starts[-1] != first
    assert has_message(
        told["slow"], "work.mcp.links.stdio.StdioLink._report_end.2", signal="9 during tools/call 'slow'…"
    )
    assert has_message(told["slow"], "work.mcp.pool.servers")


async def test_one_that_always_dies_is_left_alone_after_a_while_and_tried_again_later(
    mcp_processes: McpProcesses, mock_clock: MockClock
) -> None:
    bad = scripted("bad", "--complain", "no database", "--exit", "3")
    mcp_processes.build(bad, pool=PoolSettings(restart_window_seconds=1000))
    with mcp_processes.scope() as scope:
        for _ in range(5):
            mock_clock.jump(31)  # longer than any wait before a restart
            with pytest.raises(McpLost, match="no database"):
                await mcp_processes.call(scope, "bad")
        status = mcp_processes.servers.status()[0]
        assert (status.state, status.breaker, status.restarts) == ("down", "open", 4)
        starts = mcp_processes.servers.statistics().failed_starts
        with pytest.raises(McpLost, match=says("supervisors.policy.Breaker.check", _most=5, error="…no database")):
            await mcp_processes.call(scope, "bad")
        assert mcp_processes.servers.statistics().failed_starts == starts == 5
        mock_clock.jump(31)
        with pytest.raises(McpLost, match="no database"):
            await mcp_processes.call(scope, "bad")
        with pytest.raises(McpLost, match=says("supervisors.policy.Breaker.check", now=30)):
            await mcp_processes.call(scope, "bad")


async def test_the_second_restart_waits_a_while(mcp_processes: McpProcesses, mock_clock: MockClock) -> None:
    mcp_processes.build(scripted("bad", "--exit", "3"))
    with mcp_processes.scope() as scope:
        for _ in range(2):
            assert mcp_processes.servers.status()[0].retry_seconds == 0
            with pytest.raises(McpLost):
                await mcp_processes.call(scope, "bad")
        early = trio.current_time()
        with pytest.raises(McpLost):
            await mcp_processes.call(scope, "bad")
        assert trio.current_time() - early >= 0.25
        assert mcp_processes.servers.status()[0].retry_seconds > 0


async def test_a_start_that_nobody_waits_for_any_more_leaves_nothing(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("s", "--never"))
    with mcp_processes.scope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mcp_processes.call, scope, "s")
            await until(lambda: mcp_processes.starts)
            assert mcp_processes.servers.status()[0].state == "starting"
            nursery.cancel_scope.cancel()
        await until(lambda: mcp_processes.servers.status()[0].state == "cold")
        assert mcp_processes.alive == []
        assert mcp_processes.servers.status()[0].restarts == 0


async def test_a_call_that_a_server_has_not_begun_with_is_made_again(
    mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    """An HTTP server that has forgotten our session says so before it does anything."""
    forget = [True, False, True, True, True]
    made: list[str] = []

    async def answer(request: Request, talk: Talk) -> None:
        if forget.pop(0):
            await talk.json("gone", 404)
        else:
            made.append(request.json["params"]["name"])
            await talk.json(result(request, {"content": [{"type": "text", "text": "done"}]}))

    server = await fake_mcp(nursery, Legacy(answer))
    mcp_processes.build(Server(name="web", type="http", url=server.url))
    with mcp_processes.scope() as scope:
        assert await mcp_processes.call(scope, "web", "once") == "done"
        assert made == ["once"]
        with pytest.raises(McpLost, match=says("work.mcp.pool.servers.ServerScope.call", tool="twice", TRIES=3)):
            await mcp_processes.call(scope, "web", "twice")
    assert made == ["once"]
    assert mcp_processes.servers.statistics().lost == 4


async def test_a_server_that_never_tells_its_tools_has_not_started(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s", "mute", start_timeout_seconds=2))
    with mcp_processes.scope() as scope:
        late = says("work.mcp.pool.pool.ServerOpener._learn", name="s", start_timeout_seconds=2)
        with pytest.raises(McpLost, match=late):
            await scope.catalog("s", mcp_processes.root.actor)
        assert mcp_processes.servers.status()[0].state == "down"
    await until(lambda: mcp_processes.alive == [])


async def test_those_who_wait_for_a_start_that_fails_have_an_error_each(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("bad", "--complain", "no database", "--exit", "3"))
    errors: list[McpLost] = []

    async def call(scope: ServerScope) -> None:
        try:
            await mcp_processes.call(scope, "bad")
        except McpLost as error:
            errors.append(error)

    with mcp_processes.scope() as scope:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call, scope)
    assert len({id(error) for error in errors}) == 3
    assert len({str(error) for error in errors}) == 1
    assert "no database" in str(errors[0])


async def test_starts_and_failures_are_events_of_the_run_that_caused_them(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("good"), scripted("bad", "--exit", "3"))
    stream = mcp_processes.root.bus.open("run-7")

    async def run(me: Actor) -> None:
        with mcp_processes.servers.scope(run="run-7", agent=me.path) as scope:
            await scope.call("good", "pid", {}, CallOrigin(me=me))
            with pytest.raises(McpError):
                await scope.call("bad", "pid", {}, CallOrigin(me=me))

    actor = mcp_processes.root.actor.adopt(run, (), name="run-7", bond="linked", stream=stream)
    actor.launch()
    await actor.ref.wait()
    mcp_processes.root.bus.close(stream)
    await until(lambda: mcp_processes.of("mcp.stopped"))
    told = [
        (event.kind, event.actor, event.data.server) for event in mcp_processes.events if event.kind.startswith("mcp.")
    ]
    assert told == [
        ("mcp.starting", "/mcp/good", "good"),
        ("mcp.starting", "/run-7", "good"),
        ("mcp.started", "/mcp/good", "good"),
        ("mcp.started", "/run-7", "good"),
        ("mcp.starting", "/mcp/bad", "bad"),
        ("mcp.starting", "/run-7", "bad"),
        ("mcp.failed", "/mcp/bad", "bad"),
        ("mcp.failed", "/run-7", "bad"),
        ("mcp.stopped", "/mcp/good", "good"),
    ]
    started = mcp_processes.of("mcp.started")[0]
    assert (started.protocol, started.tools) == ("2026-07-28", 1)


# --- cross-task teardown ---------------------------------------------------------------------------------------


async def close_in_random_order(mcp_processes: McpProcesses, rand: random.Random) -> None:
    """10 servers, opened by some actors, and closed by others."""
    names = [f"s{number}" for number in range(10)]
    mcp_processes.build(*(tiny(name, name, share=rand.choice(("pool", "per-agent"))) for name in names))
    scopes = [mcp_processes.scope(f"/agent-{number}") for number in range(10)]
    rand.shuffle(names)

    async def opener(me: Actor, number: int) -> None:
        await scopes[number].call(names[number], "pid", {}, CallOrigin(me=me))
        if rand.random() < 0.3:
            await scopes[number].call(rand.choice(names), "pid", {}, CallOrigin(me=me))

    async def closer(_: Actor, number: int) -> None:
        for _turn in range(rand.randrange(3)):
            await trio.lowlevel.checkpoint()
        scopes[number].close()

    for ref in [mcp_processes.root.spawn(opener, number) for number in range(10)]:
        await ref.result()
    assert len(mcp_processes.alive) >= 10
    order = list(range(10))
    rand.shuffle(order)
    for ref in [mcp_processes.root.spawn(closer, number) for number in order]:
        await ref.result()
    await until(lambda: mcp_processes.alive == [])


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 20), marks=pytest.mark.full)], ids=str)
async def test_cross_task_teardown(tmp_path: Path, mock_clock: MockClock, seeds: range) -> None:
    for seed in seeds:
        async with Root() as root:
            await close_in_random_order(McpProcesses(root, tmp_path / str(seed)), random.Random(seed))


@pytest.mark.soak
async def test_cross_task_teardown_200_seeds(tmp_path: Path, mock_clock: MockClock) -> None:
    for seed in range(200):
        async with Root() as root:
            await close_in_random_order(McpProcesses(root, tmp_path / str(seed)), random.Random(seed))
