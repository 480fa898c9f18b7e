"""A worker in a network of its own, whose link to the database loses everything, or what goes one way, for longer than
its lease: the kernel's own silence, where `test_faults` has a program in between that holds back what it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cluster import SWEEPS, ClusterProcesses, all_over, over, until
from support.network_namespace import Ways, network
from support.ports import reserved_port
from support.postgres import running


@pytest.mark.parametrize("ways", ["both", *(pytest.param(way, marks=pytest.mark.soak) for way in ("up", "down"))])
def test_a_worker_whose_link_is_lost_is_replaced_and_finds_that_out_when_it_is_back(tmp_path: Path, ways: Ways) -> None:
    with network() as link, reserved_port(link.here) as port, running(port, address=link.here) as server:
        cluster_processes = ClusterProcesses(tmp_path, server.database())
        try:
            database = cluster_processes.dsn.partition("dbname=")[2].split()[0]
            far = server.dsn(database, host=link.here, port=str(port))
            cluster_processes.worker("one", dsn=far, within=link.enter)
            http = cluster_processes.client(cluster_processes.gateway())
            runs = [cluster_processes.start(http, "steps") for _ in range(4)]
            until(lambda: cluster_processes.world.exists())
            link.cut(ways)
            cluster_processes.worker("two", *SWEEPS)
            until(lambda: cluster_processes.expire("one") or all(cluster_processes.owner(run) == "two" for run in runs))
            all_over(http, runs)
            link.heal()
            until(
                lambda: cluster_processes.sql("select 1 from callboard.counts where name = 'fenced'")
            )  # it was about to go on
            until(
                lambda: cluster_processes.sql(
                    "select 1 from callboard.workers where name = 'one' and lease > clock_timestamp()"
                )
            )
            assert {over(http, run)["status"] for run in runs} == {"done"}
            assert cluster_processes.wrongs() == []
        finally:
            cluster_processes.end_all()
