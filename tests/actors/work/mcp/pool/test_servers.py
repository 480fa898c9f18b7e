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
from support.mcp_processes import House, scripted, tiny
from support.messages import says
from support.waiting import PATIENCE, until

from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import ConfigError, UsageError
from callboard.protocol.mcp.config import ToolList
from callboard.supervisors import Actor, Root


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A house at whose end no server is alive."""
    with trio.fail_after(600):
        async with Root() as root:
            house = House(root, tmp_path)
            with root.bus.listen(house.events.append):
                yield house
    assert house.alive == []
    assert not root.tasks


# --- sharing ------------------------------------------------------------------------------------------------


async def test_process_explosion(house: House) -> None:
    """100 agents with 5 servers each are 5 processes, started once."""
    names = [f"s{number}" for number in range(5)]
    house.build(*(tiny(name, name) for name in names))
    told: dict[str, set[str]] = {name: set() for name in names}
    here, together = 0, trio.Event()

    async def agent(me: Actor) -> None:
        nonlocal here
        with house.servers.scope(run="run-1", agent=me.path) as scope:
            for name in names:
                result = await scope.call(name, "pid", {}, CallOrigin(me=me))
                told[name].add(result["content"][0]["text"])
            here += 1
            if here == 100:
                together.set()
            await together.wait()

    for ref in [house.root.spawn(agent) for _ in range(100)]:
        await ref.wait()
    assert [len(pids) for pids in told.values()] == [1] * 5
    assert len(house.starts) == 5
    assert house.servers.statistics().spawned == 5
    await until(lambda: house.alive == [])


async def test_95_another_order_of_arguments_another_environment_or_directory_is_another_process(house: House) -> None:
    """Loki shares the first two (V4); we don't."""
    house.build(
        tiny("ab", "a", "b"),
        tiny("ba", "b", "a"),
        tiny("env", "a", "b", env={"WHO": "1"}),
        tiny("cwd", "a", "b", cwd="/"),
        tiny("same", "a", "b", description="the first one by another name"),
    )
    with house.scope() as scope:
        pids = {name: await house.call(scope, name) for name in house.servers.config.names}
    assert pids.pop("same") == pids["ab"]
    assert len(set(pids.values())) == 4 == len(house.starts)


async def test_two_runs_with_another_environment_have_separate_processes(house: House) -> None:
    house.build(scripted("s", env={"WHO": "${WHO}"}))
    house.secrets["WHO"] = "ada"
    with house.scope(run="run-1") as scope:
        assert await house.call(scope, "s", "env", name="WHO") == "ada"
        other = House(house.root, house.directory)
        other.build(*house.config.servers.values())
        other.secrets["WHO"] = "bob"
        with other.scope(run="run-2") as theirs:
            assert await other.call(theirs, "s", "env", name="WHO") == "bob"
    assert len(house.starts) == 2


async def test_1000_first_calls_at_once_are_one_start(house: House) -> None:
    house.build(tiny("s"))
    with house.scope() as scope:
        pids: list[str] = []

        async def call() -> None:
            pids.append(await house.call(scope, "s"))

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(call)
    assert (len(pids), len(set(pids)), len(house.starts)) == (1000, 1, 1)
    counted = house.servers.statistics()
    assert (counted.acquire_miss, counted.acquire_active_hit + counted.acquire_idle_hit) == (1000, 0)
    assert counted.acquire_seconds > 0


async def test_who_shares_what(house: House) -> None:
    shares = ("pool", "per-run", "per-agent", "never")
    house.build(*(tiny(share, share, share=share) for share in shares))
    pids: dict[str, list[str]] = {share: [] for share in shares}
    with house.scope("/run-1/a", "run-1") as a, house.scope("/run-1/b", "run-1") as b, house.scope("/x", "run-2") as x:
        for agent in (a, b, x):
            with agent.inner("first") as one, agent.inner("second") as two:
                for share in shares:
                    for scope in (agent, one, two, one):
                        pids[share].append(await house.call(scope, share))
    count = {share: len(set(found)) for share, found in pids.items()}
    assert count == {"pool": 1, "per-run": 2, "per-agent": 3, "never": 9}
    for share in shares:
        asked = pids[share]
        assert all(asked[turn + 1] == asked[turn + 3] for turn in (0, 4, 8)), "a conversation keeps its own"
    house.servers.end_run("run-1")
    house.servers.end_run("run-2")
    house.servers.end_run("a run that had none")
    await until(lambda: house.alive == [])


async def test_each_ends_with_what_it_is_shared_by(house: House) -> None:
    house.build(*(tiny(share, share, share=share) for share in ("per-run", "per-agent", "never")), serving=True)
    agent = house.scope()
    inner = agent.inner("c")
    pids = {share: int(await house.call(inner, share)) for share in house.servers.config.names}
    inner.close()
    await until(lambda: not is_alive(pids["never"]))
    assert is_alive(pids["per-agent"])
    agent.close()
    await until(lambda: not is_alive(pids["per-agent"]))
    assert is_alive(pids["per-run"])
    house.servers.end_run("run-1")
    await until(lambda: not is_alive(pids["per-run"]))


# --- starting and ending -------------------------------------------------------------------------------------


async def test_unused_servers(house: House) -> None:
    """What a server offers is known from the last time; it starts at the first call, and not before."""
    house.build(scripted("s"), tiny("never_used"))
    with house.scope() as scope:
        first = await scope.catalog("s", house.root.actor)
    assert len(house.starts) == 1
    house.build(*house.config.servers.values())
    with house.scope() as scope:
        again = await scope.catalog("s", house.root.actor)
        assert again == first
        assert "echo" in [tool.name for tool in again.tools]
        assert (again.server.name, again.instructions) == ("scripted", "Be kind.")
        assert house.servers.statistics().spawned == 0
        assert len(house.starts) == 1
        await house.call(scope, "s")
    assert len(house.starts) == 2


async def test_a_house_that_nobody_uses_costs_nothing(house: House) -> None:
    house.build(tiny("s"), scripted("t"))
    tasks = set(house.root.tasks)
    with house.scope() as scope, scope.inner("c"):
        assert house.servers.config.names == ("s", "t")
        assert [status.state for status in house.servers.status()] == ["cold", "cold"]
        assert house.servers.statistics().spawned == 0
    assert set(house.root.tasks) == tasks
    assert list(house.directory.iterdir()) == []


async def test_only_admitted_tools_are_in_a_catalogue(house: House) -> None:
    house.build(scripted("s", tools=ToolList(allow=("e*", "add"), deny=("env",))), scripted("t"))
    with house.scope() as scope:
        names = {name: [tool.name for tool in (await scope.catalog(name, house.root.actor)).tools] for name in "st"}
    assert names["s"] == ["echo", "add", "endless"]
    assert len(names["t"]) > 20
    assert len(house.starts) == 1


async def test_a_catalogue_follows_the_server_when_its_tools_change(house: House) -> None:
    house.build(scripted("s", "--modern"))
    with house.scope() as scope:
        before = await scope.catalog("s", house.root.actor)
        now = before
        await house.call(scope, "s", "change")
        with trio.fail_after(60):
            while len(now.tools) == len(before.tools):
                await trio.sleep(0.002)
                now = await scope.catalog("s", house.root.actor)
    assert {tool.name for tool in now.tools} - {tool.name for tool in before.tools} == {"more_0"}
    house.build(*house.config.servers.values())
    with house.scope() as scope:
        assert await scope.catalog("s", house.root.actor) == now


async def test_what_a_server_spoke_is_remembered(house: House) -> None:
    house.build(scripted("s", "--legacy"))
    for methods in (["server/discover", "initialize"], ["initialize"]):
        with house.scope() as scope:
            seen = msgspec.json.decode(await house.call(scope, "s", "seen"))
        assert [message["method"] for message in seen if "id" in message][: len(methods)] == methods
        await until(lambda: house.alive == [])


async def test_resources_and_prompts_are_read_over_a_leased_connection(house: House) -> None:
    house.build(scripted("s"))
    with house.scope() as scope:
        async with scope.client("s", house.root.actor) as client:
            read = await client.request("resources/read", {"uri": "memo://x"})
        assert read["contents"][0]["text"] == "about memo://x"
        assert house.alive == house.starts != []


async def test_polite_leader_leaving_a_grandchild(house: House) -> None:
    house.environ["GRANDCHILD"] = str(house.directory / "grandchild")
    house.build(scripted("s", "--grandchild"))
    with house.scope() as scope:
        await house.call(scope, "s")
        grandchild = int((house.directory / "grandchild").read_text())
        assert is_alive(grandchild)
    await until(lambda: not is_alive(grandchild))


async def test_shutdown_with_leases(tmp_path: Path) -> None:
    """Calls under way, leases that are kept, and a start: all over when the root's block is."""
    ended: list[BaseException] = []
    with trio.fail_after(60):
        async with Root() as root:
            house = House(root, tmp_path)
            house.build(scripted("busy"), tiny("kept"), scripted("slow", "--never"))

            async def agent(me: Actor, server: str, tool: str) -> None:
                with house.servers.scope(run="r", agent=me.path) as scope:
                    try:
                        await scope.call(server, tool, {"seconds": 600}, CallOrigin(me=me))
                    except BaseException as error:
                        ended.append(error)
                        raise

            root.spawn(agent, "busy", "slow", link=False)
            root.spawn(agent, "slow", "pid", link=False)
            await house.call(house.scope(), "kept")
            await until(lambda: len(house.starts) == 3)
    assert [type(error) for error in ended] == [trio.Cancelled] * 2
    assert house.alive == []


async def test_warm_servers_start_at_once_and_stay(house: House) -> None:
    house.build(tiny("w", "w", warm=True), tiny("other"), scripted("broken", "--exit", "3", warm=True))
    await house.servers.warm()
    states = {status.name: status.state for status in house.servers.status()}
    assert states == {"w": "idle", "other": "cold", "broken": "down"}
    assert house.of("mcp.failed")[0].server == "broken"
    with house.scope() as scope:
        await house.call(scope, "w")
    assert house.servers.statistics().idle_evicted == 0
    assert (await house.call(house.scope(), "w")) == str(house.starts[0])


async def test_a_warm_server_that_dies_comes_back_by_itself(house: House) -> None:
    house.build(tiny("w", "w", warm=True))
    await house.servers.warm()
    [pid] = house.starts
    os.kill(pid, signal.SIGKILL)
    await until(lambda: len(house.starts) == 2)
    await until(lambda: house.servers.status()[0].state == "idle")
    assert house.alive == [house.starts[1]]


# --- names and values ----------------------------------------------------------------------------------------


async def test_a_name_that_is_not_there_is_told_with_the_nearest_one(house: House) -> None:
    house.build(tiny("time"), tiny("off", disabled=True))
    assert house.servers.config.names == ("time",)
    with house.scope() as scope:
        with pytest.raises(UsageError, match=r"'tiem'.*mcp\.json.*did you mean 'time'"):
            await house.call(scope, "tiem")
        with pytest.raises(UsageError, match=says("protocol.mcp.config.McpConfig.get", name="off")):
            await scope.catalog("off", house.root.actor)


async def test_a_value_that_is_missing_costs_its_own_server_only(house: House) -> None:
    house.build(tiny("s", "${TOKEN}"), tiny("t"))
    with house.scope() as scope:
        with pytest.raises(ConfigError, match="TOKEN"):
            await house.call(scope, "s")
        await house.call(scope, "t")
        house.secrets["TOKEN"] = "x"
        await house.call(scope, "s")


# --- leaving --------------------------------------------------------------------------------------------------


async def test_a_scope_is_left_in_any_task_also_while_calls_are_under_way(house: House, tmp_path: Path) -> None:
    house.build(scripted("s"))
    scope = house.scope()
    done: list[str] = []

    async def call() -> None:
        done.append(await house.call(scope, "s", "slow", seconds=PATIENCE, file=str(tmp_path / "go")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await until(lambda: house.servers.status()[0].pending)
        scope.close()
        scope.close()
        assert house.servers.status()[0].state == "leased"
        (tmp_path / "go").touch()
    assert done == ["slept"]
    await until(lambda: house.alive == [])


async def test_10000_leases_leave_nothing(house: House) -> None:
    house.build(tiny("s"))
    process = psutil.Process()
    with house.scope() as outer:
        await house.call(outer, "s")

        async def lease(times: int) -> tuple[tuple[int, int], int]:
            for _ in range(times):
                with house.scope() as scope, scope.inner("c") as inner:
                    async with inner.client("s", house.root.actor):
                        pass
            gc.collect()
            return (process.num_fds(), len(house.root.tasks)), process.memory_info().rss

        before, memory = await lease(1000)
        after, grown = await lease(10_000)
        assert after[0] <= before[0]  # what other tests have left may go meanwhile
        assert after[1] == before[1]
        assert grown - memory < 2_000_000
    assert len(house.starts) == 1
    assert house.servers.statistics().acquire_active_hit == 11_000


async def test_servers_that_come_and_go_leave_nothing(house: House) -> None:
    house.build(tiny("s"))

    async def once() -> tuple[int, int]:
        with house.scope() as scope:
            await house.call(scope, "s")
        await until(lambda: house.servers.status()[0].state == "cold")
        return left()

    def left() -> tuple[int, int]:
        return psutil.Process().num_fds(), len(house.root.tasks)

    most = await once()
    for _ in range(10):
        await once()
        # The descriptor of an ended process is closed by a task of its own, after the state has changed.
        await until(lambda: all(now <= before for now, before in zip(left(), most, strict=True)))
    assert len(house.starts) == 11
