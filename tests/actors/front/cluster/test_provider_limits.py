"""What a provider allows is shared by workers of a cluster: what one of them was told, and what the settings say."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import trio
from support.cluster import SOON, ClusterProcesses, all_over, until
from support.fake_models import FakeModels, Reply, Request
from support.postgres import Postgres

from callboard.actors.front.cluster.membership import ClusterMembership, ClusterOptions
from callboard.actors.front.cluster.shared_limits import ProviderLimits
from callboard.actors.work.models.limiter import AllowanceRules, Gates, LimiterGate
from callboard.supervisors import Root
from callboard.supervisors.cluster import tables, workers
from callboard.supervisors.cluster.database import connected
from callboard.supervisors.cluster.workers import Worker

REST = 2.0


async def test_how_long_a_provider_wants_one_worker_to_wait_the_others_know(
    tmp_path: Path, postgres: Postgres, fake_model: FakeModels
) -> None:
    came: list[float] = []

    def answer(_: Request) -> Reply:
        came.append(time.monotonic())
        if len(came) == 1:
            return Reply(status=429, error="slow down", headers={"retry-after": str(REST)})
        return Reply(text="ok")

    fake_model.answer_with(answer)
    cluster_processes = ClusterProcesses(tmp_path, postgres.database(), fake_model.config_dir(tmp_path / "config"))

    def plays() -> None:
        try:
            for name in ("one", "two"):
                cluster_processes.worker(name, "--has", name)
            http = cluster_processes.client(cluster_processes.gateway())
            with connected(cluster_processes.dsn, "test", SOON) as db:
                db.execute(f"listen {tables.CHANNEL}")
                runs = [cluster_processes.start(http, "thinks", needs=["one"])]
                until(lambda: any(each.payload.startswith("l ") for each in db.notifies(timeout=0.1)))
            runs += [cluster_processes.start(http, "thinks", needs=["two"]) for _ in range(2)]
            all_over(http, runs)
        finally:
            cluster_processes.end_all()

    await trio.to_thread.run_sync(plays)
    assert len(came) == 4
    assert min(came[1:]) - came[0] >= REST - 0.1


async def test_what_the_settings_allow_is_divided_among_the_workers_that_live(postgres: Postgres) -> None:
    seat = ClusterMembership(ClusterOptions(dsn=postgres.database()), "one")
    await seat.do(tables.migrate)
    async with Root() as root, trio.open_nursery() as nursery:
        gates = Gates(root)
        nursery.start_soon(ProviderLimits(gates, seat).work)
        gate = await gates.of("a:b", AllowanceRules(max_concurrency=4), "somebody")
        assert await at_once(gates, gate) == 4
        for sign in ("one", "two", "three"):
            row = Worker(sign=sign, name=sign, room=1, version="1")
            await seat.do(partial(workers.register, worker=row, lease=SOON if sign != "three" else 0.0))
        with trio.fail_after(SOON):
            while await at_once(gates, gate) != 2:
                await trio.sleep(0.05)
        new = await gates.of("a:c", AllowanceRules(max_concurrency=6), "somebody")
        assert await at_once(gates, new) == 3
        of_this_machine = await gates.of("local:d", AllowanceRules(max_concurrency=4))
        assert await at_once(gates, of_this_machine) == 4
        nursery.cancel_scope.cancel()
    seat.close()


async def at_once(gates: Gates, gate: LimiterGate) -> int:
    """How many requests may be under way."""
    admitted: list[int] = []

    async def ask() -> None:
        ticket = gates.ticket()
        await gate.admit(ticket, "run", lambda: 1, lambda _: None)
        admitted.append(ticket)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.02)
        nursery.cancel_scope.cancel()
    for ticket in admitted:
        gate.done(ticket, 1)
    return len(admitted)
