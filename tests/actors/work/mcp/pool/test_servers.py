"""Servers are shared by key, started when they are first used, and gone when nobody has them any more."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest
import trio
from support.descendants import is_alive
from support.mcp_processes import McpProcesses, scripted, tiny
from support.messages import says
from support.waiting import PATIENCE, until

from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import ConfigError, UsageError
from callboard.protocol.mcp.config import ToolList
from callboard.supervisors import Actor, Root


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    """Servers of a test; none is alive at its end."""
    with trio.fail_after(600):
        async with Root() as root:
            mcp_processes = McpProcesses(root, tmp_path)
            with root.bus.listen(mcp_processes.events.append):
                yield mcp_processes
    assert mcp_processes.alive == []
    assert not root.tasks


# --- sharing ------------------------------------------------------------------------------------------------


async def test_process_explosion(mcp_processes: McpProcesses) -> None:
    """100 agents with 5 servers each are 5 processes, started once."""
    names = [f"s{number}" for number in range(5)]
    mcp_processes.build(*(tiny(name, name) for name in names))
    told: dict[str, set[str]] = {name: set() for name in names}
    here, together = 0, trio.Event()

    async def agent(me: Actor) -> None:
        nonlocal here
        with mcp_processes.servers.scope(run="run-1", agent=me.path) as scope:
            for name in names:
                result = await scope.call(name, "pid", {}, CallOrigin(me=me))
                told[name].add(result["content"][0]["text"])
            here += 1
            if here == 100:
                together.set()
            await together.wait()

    for ref in [mcp_processes.root.spawn(agent) for _ in range(100)]:
        await ref.wait()
    assert [len(pids) for pids in told.values()] == [1] * 5
    assert len(mcp_processes.starts) == 5
    assert mcp_processes.servers.statistics().spawned == 5
    await until(lambda: mcp_processes.alive == [])


async def test_95_another_order_of_arguments_another_environment_or_directory_is_another_process(
    mcp_processes: McpProcesses,
) -> None:
    """Loki shares the first two (V4); we don't."""
    mcp_processes.build(
        tiny("ab", "a", "b"),
        tiny("ba", "b", "a"),
        tiny("env", "a", "b", env={"WHO": "1"}),
        tiny("cwd", "a", "b", cwd="/"),
        tiny("same", "a", "b", description="the first one by another name"),
    )
    with mcp_processes.scope() as scope:
        pids = {name: await mcp_processes.call(scope, name) for name in mcp_processes.servers.config.names}
    assert pids.pop("same") == pids["ab"]
    assert len(set(pids.values())) == 4 == len(mcp_processes.starts)


async def test_two_runs_with_another_environment_have_separate_processes(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("s", env={"WHO": "${WHO}"}))
    mcp_processes.secrets["WHO"] = "ada"
    with mcp_processes.scope(run="run-1") as scope:
        assert await mcp_processes.call(scope, "s", "env", name="WHO") == "ada"
        other = McpProcesses(mcp_processes.root, mcp_processes.directory)
        other.build(*mcp_processes.config.servers.values())
        other.secrets["WHO"] = "bob"
        with other.scope(run="run-2") as theirs:
            assert await other.call(theirs, "s", "env", name="WHO") == "bob"
    assert len(mcp_processes.starts) == 2


async def test_1000_first_calls_at_once_are_one_start(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        pids: list[str] = []

        async def call() -> None:
            pids.append(await mcp_processes.call(scope, "s"))

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(call)
    assert (len(pids), len(set(pids)), len(mcp_processes.starts)) == (1000, 1, 1)
    counted = mcp_processes.servers.statistics()
    assert (counted.acquire_miss, counted.acquire_active_hit + counted.acquire_idle_hit) == (1000, 0)
    assert counted.acquire_seconds > 0


async def test_who_shares_what(mcp_processes: McpProcesses) -> None:
    shares = ("pool", "per-run", "per-agent", "never")
    mcp_processes.build(*(tiny(share, share, share=share) for share in shares))
    pids: dict[str, list[str]] = {share: [] for share in shares}
    with (
        mcp_processes.scope("/run-1/a", "run-1") as a,
        mcp_processes.scope("/run-1/b", "run-1") as b,
        mcp_processes.scope("/x", "run-2") as x,
    ):
        for agent in (a, b, x):
            with agent.inner("first") as one, agent.inner("second") as two:
                for share in shares:
                    for scope in (agent, one, two, one):
                        pids[share].append(await mcp_processes.call(scope, share))
    count = {share: len(set(found)) for share, found in pids.items()}
    assert count == {"pool": 1, "per-run": 2, "per-agent": 3, "never": 9}
    for share in shares:
        asked = pids[share]
        assert all(asked[turn + 1] == asked[turn + 3] for turn in (0, 4, 8)), "a conversation keeps its own"
    mcp_processes.servers.end_run("run-1")
    mcp_processes.servers.end_run("run-2")
    mcp_processes.servers.end_run("a run that had none")
    await until(lambda: mcp_processes.alive == [])


async def test_each_ends_with_what_it_is_shared_by(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(*(tiny(share, share, share=share) for share in ("per-run", "per-agent", "never")), serving=True)
    agent = mcp_processes.scope()
    inner = agent.inner("c")
    pids = {share: int(await mcp_processes.call(inner, share)) for share in mcp_processes.servers.config.names}
    inner.close()
    await until(lambda: not is_alive(pids["never"]))
    assert is_alive(pids["per-agent"])
    agent.close()
    await until(lambda: not is_alive(pids["per-agent"]))
    assert is_alive(pids["per-run"])
    mcp_processes.servers.end_run("run-1")
    await until(lambda: not is_alive(pids["per-run"]))


# --- starting and ending -------------------------------------------------------------------------------------


async def test_unused_servers(mcp_processes: McpProcesses) -> None:
    """What a server offers is known from the last time; it starts at the first call, and not before."""
    mcp_processes.build(scripted("s"), tiny("never_used"))
    with mcp_processes.scope() as scope:
        first = await scope.catalog("s", mcp_processes.root.actor)
    assert len(mcp_processes.starts) == 1
    mcp_processes.build(*mcp_processes.config.servers.values())
    with mcp_processes.scope() as scope:
        again = await scope.catalog("s", mcp_processes.root.actor)
        assert again == first
        assert "echo" in [tool.name for tool in again.tools]
        assert (again.server.name, again.instructions) == ("scripted", "Be kind.")
        assert mcp_processes.servers.statistics().spawned == 0
        assert len(mcp_processes.starts) == 1
        await mcp_processes.call(scope, "s")
    assert len(mcp_processes.starts) == 2


async def test_servers_that_are_not_used_cost_nothing(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"), scripted("t"))
    tasks = set(mcp_processes.root.tasks)
    with mcp_processes.scope() as scope, scope.inner("c"):
        assert mcp_processes.servers.config.names == ("s", "t")
        assert [status.state for status in mcp_processes.servers.status()] == ["cold", "cold"]
        assert mcp_processes.servers.statistics().spawned == 0
    assert set(mcp_processes.root.tasks) == tasks
    assert list(mcp_processes.directory.iterdir()) == []


async def test_only_admitted_tools_are_in_a_catalogue(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("s", tools=ToolList(allow=("e*", "add"), deny=("env",))), scripted("t"))
    with mcp_processes.scope() as scope:
        names = {
            name: [tool.name for tool in (await scope.catalog(name, mcp_processes.root.actor)).tools] for name in "st"
        }
    assert names["s"] == ["echo", "add", "endless"]
    assert len(names["t"]) > 20
    assert len(mcp_processes.starts) == 1


async def test_a_catalogue_follows_the_server_when_its_tools_change(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("s", "--modern"))
    with mcp_processes.scope() as scope:
        before = await scope.catalog("s", mcp_processes.root.actor)
        now = before
        await mcp_processes.call(scope, "s", "change")
        with trio.fail_after(60):
            while len(now.tools) == len(before.tools):
                await trio.sleep(0.002)
                now = await scope.catalog("s", mcp_processes.root.actor)
    assert {tool.name for tool in now.tools} - {tool.name for tool in before.tools} == {"more_0"}
    mcp_processes.build(*mcp_processes.config.servers.values())
    with mcp_processes.scope() as scope:
        assert await scope.catalog("s", mcp_processes.root.actor) == now


async def test_what_a_server_spoke_is_remembered(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("s", "--legacy"))
    for methods in (["server/discover", "initialize"], ["initialize"]):
        with mcp_processes.scope() as scope:
            seen = msgspec.json.decode(await mcp_processes.call(scope, "s", "seen"))
        assert [message["method"] for message in seen if "id" in message][: len(methods)] == methods
        await until(lambda: mcp_processes.alive == [])


async def test_resources_and_prompts_are_read_over_a_leased_connection(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(scripted("s"))
    with mcp_processes.scope() as scope:
        async with scope.client("s", mcp_processes.root.actor) as client:
            read = await client.request("resources/read", {"uri": "memo://x"})
        assert read["contents"][0]["text"] == "about memo://x"
        assert mcp_processes.alive == mcp_processes.starts != []


async def test_polite_leader_leaving_a_grandchild(mcp_processes: McpProcesses) -> None:
    mcp_processes.environ["GRANDCHILD"] = str(mcp_processes.directory / "grandchild")
    mcp_processes.build(scripted("s", "--grandchild"))
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        grandchild = int((mcp_processes.directory / "grandchild").read_text())
        assert is_alive(grandchild)
    await until(lambda: not is_alive(grandchild))


async def test_shutdown_with_leases(tmp_path: Path) -> None:
    """Calls under way, leases that are kept, and a start: all over when the root's block is."""
    ended: list[BaseException] = []
    with trio.fail_after(60):
        async with Root() as root:
            mcp_processes = McpProcesses(root, tmp_path)
            mcp_processes.build(scripted("busy"), tiny("kept"), scripted("slow", "--never"))

            async def agent(me: Actor, server: str, tool: str) -> None:
                with mcp_processes.servers.scope(run="r", agent=me.path) as scope:
                    try:
                        await scope.call(server, tool, {"seconds": 600}, CallOrigin(me=me))
                    except BaseException as error:
                        ended.append(error)
                        raise

            root.spawn(agent, "busy", "slow", link=False)
            root.spawn(agent, "slow", "pid", link=False)
            await mcp_processes.call(mcp_processes.scope(), "kept")
            await until(lambda: len(mcp_processes.starts) == 3)
    assert [type(error) for error in ended] == [trio.Cancelled] * 2
    assert mcp_processes.alive == []


async def test_warm_servers_start_at_once_and_stay(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("w", "w", warm=True), tiny("other"), scripted("broken", "--exit", "3", warm=True))
    await mcp_processes.servers.warm()
    states = {status.name: status.state for status in mcp_processes.servers.status()}
    assert states == {"w": "idle", "other": "cold", "broken": "down"}
    assert mcp_processes.of("mcp.failed")[0].server == "broken"
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "w")
    assert mcp_processes.servers.statistics().idle_evicted == 0
    assert (await mcp_processes.call(mcp_processes.scope(), "w")) == str(mcp_processes.starts[0])


async def test_a_warm_server_that_dies_comes_back_by_itself(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("w", "w", warm=True))
    await mcp_processes.servers.warm()
    [pid] = mcp_processes.starts
    os.kill(pid, signal.SIGKILL)
    await until(lambda: len(mcp_processes.starts) == 2)
    await until(lambda: mcp_processes.servers.status()[0].state == "idle")
    assert mcp_processes.alive == [mcp_processes.starts[1]]


# --- names and values ----------------------------------------------------------------------------------------


async def test_a_name_that_is_not_there_is_told_with_the_nearest_one(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("time"), tiny("off", disabled=True))
    assert mcp_processes.servers.config.names == ("time",)
    with mcp_processes.scope() as scope:
        with pytest.raises(UsageError, match=r"'tiem'.*mcp\.json.*did you mean 'time'"):
            await mcp_processes.call(scope, "tiem")
        with pytest.raises(UsageError, match=says("protocol.mcp.config.McpConfig.get", name="off")):
            await scope.catalog("off", mcp_processes.root.actor)


async def test_a_value_that_is_missing_costs_its_own_server_only(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s", "${TOKEN}"), tiny("t"))
    with mcp_processes.scope() as scope:
        with pytest.raises(ConfigError, match="TOKEN"):
            await mcp_processes.call(scope, "s")
        await mcp_processes.call(scope, "t")
        mcp_processes.secrets["TOKEN"] = "x"
        await mcp_processes.call(scope, "s")


# --- leaving --------------------------------------------------------------------------------------------------


async def test_a_scope_is_left_in_any_task_also_while_calls_are_under_way(
    mcp_processes: McpProcesses, tmp_path: Path
) -> None:
    mcp_processes.build(scripted("s"))
    scope = mcp_processes.scope()
    done: list[str] = []

    async def call() -> None:
        done.append(await mcp_processes.call(scope, "s", "slow", seconds=PATIENCE, file=str(tmp_path / "go")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await until(lambda: mcp_processes.servers.status()[0].pending)
        scope.close()
        scope.close()
        assert mcp_processes.servers.status()[0].state == "leased"
        (tmp_path / "go").touch()
    assert done == ["slept"]
    await until(lambda: mcp_processes.alive == [])


async def test_10000_leases_leave_nothing(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    process = psutil.Process()
    with mcp_processes.scope() as outer:
        await mcp_processes.call(outer, "s")

        async def lease(times: int) -> tuple[tuple[int, int], int]:
            for _ in range(times):
                with mcp_processes.scope() as scope, scope.inner("c") as inner:
                    async with inner.client("s", mcp_processes.root.actor):
                        pass
            gc.collect()
            return (process.num_fds(), len(mcp_processes.root.tasks)), process.memory_info().rss

        before, memory = await lease(1000)
        after, grown = await lease(10_000)
        assert after[0] <= before[0]  # what other tests have left may go meanwhile
        assert after[1] == before[1]
        assert grown - memory < 2_000_000
    assert len(mcp_processes.starts) == 1
    assert mcp_processes.servers.statistics().acquire_active_hit == 11_000


async def test_servers_that_come_and_go_leave_nothing(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))

    async def once() -> tuple[int, int]:
        with mcp_processes.scope() as scope:
            await mcp_processes.call(scope, "s")
        await until(lambda: mcp_processes.servers.status()[0].state == "cold")
        return left()

    def left() -> tuple[int, int]:
        return psutil.Process().num_fds(), len(mcp_processes.root.tasks)

    most = await once()
    for _ in range(10):
        await once()
        # The descriptor of an ended process is closed by a task of its own, after the state has changed.
        await until(lambda: all(now <= before for now, before in zip(left(), most, strict=True)))
    assert len(mcp_processes.starts) == 11
