"""The run with everything (`whole`: a graph, an agent with its family, a workflow), whose worker is killed behind each
of its rows: another worker goes on with it to the same end, within the lease and a second, and repeats nothing.

A tenth of the rows is in every run of the tests, several workers to a run, each of which is killed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from great import ClusterRun
from support.models_beside import models_beside
from support.postgres import Postgres
from test_kills import some
from test_whole import check_effects, check_output, check_questions
from whole import EFFECTS

from callboard.protocol.journal import Intends

ROWS = 368
"""That it has at least: how many it has depends on what comes first in the family."""


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[ClusterRun]:
    with models_beside() as models:
        cluster_run = ClusterRun(tmp_path_factory.mktemp("great"), models, postgres.database())
        try:
            yield cluster_run
        finally:
            cluster_run.cluster.end_all()


@pytest.fixture
def cluster_run(shared_cluster: ClusterRun) -> Iterator[ClusterRun]:
    shared_cluster.begin()
    yield shared_cluster
    shared_cluster.end()


def check(cluster_run: ClusterRun, killed: int, killed_in: str = "") -> None:
    said = cluster_run.until_over()
    assert said["error"] is None
    assert said["status"] == "done"
    check_output(cluster_run, said["output"], killed_in)
    assert said["input_tokens"] == 10 * cluster_run.replies()
    assert said["life"] > killed
    check_effects(cluster_run, killed)
    check_questions(cluster_run)
    assert cluster_run.wrongs() == []


@pytest.mark.soak
def test_unbroken_it_has_so_many_rows_and_effects(cluster_run: ClusterRun) -> None:
    worker = cluster_run.first()
    check(cluster_run, 0)
    assert cluster_run.effects == EFFECTS
    assert len(cluster_run.rows()) >= ROWS
    worker.end()


TENTH = sorted(random.Random("great rows").sample(range(1, ROWS + 1), ROWS // 10 + 1))
CHAINS = [TENTH[first::3] for first in range(3)]


@pytest.mark.parametrize("rows", CHAINS, ids=lambda rows: "-".join(map(str, rows)))
def test_killed_after_one_row_and_the_next_after_another_the_last_goes_on_to_the_same_end(
    cluster_run: ClusterRun, rows: list[int]
) -> None:
    killed = there = before = 0
    known: set[str] = set()
    for row in rows:
        if not cluster_run.until_killed(cluster_run.first(kill=max(2, row - there))):
            break
        killed += 1
        there = len(cluster_run.rows())
        assert there >= row
        assert not known & set(cluster_run.marks[before:])
        known, before = cluster_run.answered(), len(cluster_run.marks)
    cluster_run.until_taken_over()
    check(cluster_run, killed)
    assert not known & set(cluster_run.marks[before:])


@pytest.mark.soak
@pytest.mark.parametrize("row", range(1, ROWS + 1))
def test_killed_after_any_row_it_goes_on_with_another_worker_to_the_same_end_and_repeats_nothing(
    cluster_run: ClusterRun, row: int
) -> None:
    cluster_run.until_killed(cluster_run.first(kill=row))
    assert len(cluster_run.rows()) == row
    known, before = cluster_run.answered(), len(cluster_run.marks)
    replies, requests = cluster_run.replies(), cluster_run.requests
    intended = [row.what for _, row in cluster_run.rows() if isinstance(row, Intends)]
    cluster_run.until_taken_over()
    check(cluster_run, 1)
    assert not known & set(cluster_run.marks[before:])
    assert cluster_run.requests - requests >= cluster_run.replies() - replies
    assert len(EFFECTS.keys() - cluster_run.effects.keys() - {"timed"}) <= len(intended)


@pytest.mark.parametrize("effect", some("great effects", sorted(EFFECTS), 0))
def test_killed_in_the_midst_of_an_effect_it_asks_or_tells_before_it_is_repeated(
    cluster_run: ClusterRun, effect: str
) -> None:
    cluster_run.kill_in(effect)
    cluster_run.until_killed(cluster_run.first())
    cluster_run.until_taken_over()
    check(cluster_run, 1, effect)
    assert cluster_run.effects[effect] - EFFECTS[effect] <= 2
