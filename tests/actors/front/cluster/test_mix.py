"""Graphs, agents and workflows over three workers, which are killed at moments that chance picks and replaced: each
run comes to its end, each effect is done once or asked about, each row is there once."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mix
from support import cluster_history
from support.cluster import ClusterProcesses, Process, all_over, answer_all, over
from support.models_beside import models_beside
from support.postgres import Postgres
from test_kills import some

KILLS = 4

OF_EACH = 3
"""Runs of each kind; as many of them begin before each kill."""


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[ClusterProcesses]:
    home = tmp_path_factory.mktemp("mix")
    with models_beside() as models:
        made = ClusterProcesses(home, postgres.database(), models.config_dir(home / "config"), disk=home / "state")
        mix.write(made)
        models.answer_with(partial(mix.say, made.world))
        try:
            made.gateway()
            yield made
        finally:
            made.end_all()


@pytest.fixture
def cluster_processes(shared_cluster: ClusterProcesses) -> Iterator[ClusterProcesses]:
    shared_cluster.world.unlink(missing_ok=True)
    shared_cluster.runs.clear()
    yield shared_cluster
    for each in shared_cluster.processes[1:]:
        each.end()
    del shared_cluster.processes[1:]


def begin_worker(cluster_processes: ClusterProcesses, name: str) -> Process:
    return cluster_processes.worker(name, "--room", "5")


@pytest.mark.parametrize("seed", some("mix", list(range(50)), 2))
def test_killed_at_any_moment_three_workers_bring_a_mix_of_runs_to_their_ends(
    cluster_processes: ClusterProcesses, seed: int
) -> None:
    chance = random.Random(seed)
    http = cluster_processes.client(cluster_processes.processes[0])
    workers = {name: begin_worker(cluster_processes, name) for name in ("one", "two", "three")}
    kinds = [kind for kind in mix.EFFECTS for _ in range(OF_EACH)]
    chance.shuffle(kinds)
    runs: dict[str, str] = {}
    for each in range(KILLS):
        runs |= {
            cluster_processes.start(http, mix.target(cluster_processes, kind), yes=True): kind
            for kind in kinds[each::KILLS]
        }
        moment = time.monotonic() + chance.uniform(0.1, 0.8)
        while time.monotonic() < moment:
            answer_all(http)
            time.sleep(0.05)
        busy = sorted(cluster_processes.owner(run) for run in runs)  # one with more runs is hit more often
        victim = chance.choice([name for name in busy if name] or sorted(workers))
        workers[victim].end()
        cluster_processes.bury(victim)
        workers[victim] = begin_worker(cluster_processes, victim)
    all_over(http, runs)
    assert {over(http, run)["status"] for run in runs} == {"done"}
    effects = {run: mix.EFFECTS[kind] for run, kind in runs.items()}
    assert (
        cluster_history.wrongs(
            cluster_processes.dsn, cluster_processes.world, effects, cluster_processes.runs, mix.CALLED
        )
        == []
    )
