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
from support.cluster import House, Process, all_over, answer_all, over
from support.models_beside import models_beside
from support.postgres import Postgres
from test_kills import some

KILLS = 4

OF_EACH = 3
"""Runs of each kind; as many of them begin before each kill."""


@pytest.fixture(scope="module")
def one_house(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[House]:
    home = tmp_path_factory.mktemp("mix")
    with models_beside() as models:
        made = House(home, postgres.database(), models.config_dir(home / "config"), disk=home / "state")
        mix.write(made)
        models.answer_with(partial(mix.say, made.world))
        try:
            made.gateway()
            yield made
        finally:
            made.end_all()


@pytest.fixture
def house(one_house: House) -> Iterator[House]:
    one_house.world.unlink(missing_ok=True)
    one_house.runs.clear()
    yield one_house
    for each in one_house.processes[1:]:
        each.end()
    del one_house.processes[1:]


def begin_worker(house: House, name: str) -> Process:
    return house.worker(name, "--room", "5")


@pytest.mark.parametrize("seed", some("mix", list(range(50)), 2))
def test_killed_at_any_moment_three_workers_bring_a_mix_of_runs_to_their_ends(house: House, seed: int) -> None:
    chance = random.Random(seed)
    http = house.client(house.processes[0])
    workers = {name: begin_worker(house, name) for name in ("one", "two", "three")}
    kinds = [kind for kind in mix.EFFECTS for _ in range(OF_EACH)]
    chance.shuffle(kinds)
    runs: dict[str, str] = {}
    for each in range(KILLS):
        runs |= {house.start(http, mix.target(house, kind), yes=True): kind for kind in kinds[each::KILLS]}
        moment = time.monotonic() + chance.uniform(0.1, 0.8)
        while time.monotonic() < moment:
            answer_all(http)
            time.sleep(0.05)
        busy = sorted(house.owner(run) for run in runs)  # one with more runs is hit more often
        victim = chance.choice([name for name in busy if name] or sorted(workers))
        workers[victim].end()
        house.bury(victim)
        workers[victim] = begin_worker(house, victim)
    all_over(http, runs)
    assert {over(http, run)["status"] for run in runs} == {"done"}
    effects = {run: mix.EFFECTS[kind] for run, kind in runs.items()}
    assert cluster_history.wrongs(house.dsn, house.world, effects, house.runs, mix.CALLED) == []
