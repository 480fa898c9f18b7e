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

from great import GreatHouse
from support.models_beside import models_beside
from support.postgres import Postgres
from test_kills import some
from test_whole import check_effects, check_output, check_questions
from whole import EFFECTS

from callboard.protocol.journal import Intends

ROWS = 368
"""That it has at least: how many it has depends on what comes first in the family."""


@pytest.fixture(scope="module")
def one_house(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[GreatHouse]:
    with models_beside() as models:
        house = GreatHouse(tmp_path_factory.mktemp("great"), models, postgres.database())
        try:
            yield house
        finally:
            house.cluster.end_all()


@pytest.fixture
def house(one_house: GreatHouse) -> Iterator[GreatHouse]:
    one_house.begin()
    yield one_house
    one_house.end()


def check(house: GreatHouse, killed: int, killed_in: str = "") -> None:
    said = house.until_over()
    assert said["error"] is None
    assert said["status"] == "done"
    check_output(house, said["output"], killed_in)
    assert said["input_tokens"] == 10 * house.replies()
    assert said["life"] > killed
    check_effects(house, killed)
    check_questions(house)
    assert house.wrongs() == []


@pytest.mark.soak
def test_unbroken_it_has_so_many_rows_and_effects(house: GreatHouse) -> None:
    worker = house.first()
    check(house, 0)
    assert house.effects == EFFECTS
    assert len(house.rows()) >= ROWS
    worker.end()


TENTH = sorted(random.Random("great rows").sample(range(1, ROWS + 1), ROWS // 10 + 1))
CHAINS = [TENTH[first::3] for first in range(3)]


@pytest.mark.parametrize("rows", CHAINS, ids=lambda rows: "-".join(map(str, rows)))
def test_killed_after_one_row_and_the_next_after_another_the_last_goes_on_to_the_same_end(
    house: GreatHouse, rows: list[int]
) -> None:
    killed = there = before = 0
    known: set[str] = set()
    for row in rows:
        if not house.until_killed(house.first(kill=max(2, row - there))):
            break
        killed += 1
        there = len(house.rows())
        assert there >= row
        assert not known & set(house.marks[before:])
        known, before = house.answered(), len(house.marks)
    house.until_taken_over()
    check(house, killed)
    assert not known & set(house.marks[before:])


@pytest.mark.soak
@pytest.mark.parametrize("row", range(1, ROWS + 1))
def test_killed_after_any_row_it_goes_on_with_another_worker_to_the_same_end_and_repeats_nothing(
    house: GreatHouse, row: int
) -> None:
    house.until_killed(house.first(kill=row))
    assert len(house.rows()) == row
    known, before = house.answered(), len(house.marks)
    replies, requests = house.replies(), house.requests
    intended = [row.what for _, row in house.rows() if isinstance(row, Intends)]
    house.until_taken_over()
    check(house, 1)
    assert not known & set(house.marks[before:])
    assert house.requests - requests >= house.replies() - replies
    assert len(EFFECTS.keys() - house.effects.keys() - {"timed"}) <= len(intended)


@pytest.mark.parametrize("effect", some("great effects", sorted(EFFECTS), 0))
def test_killed_in_the_midst_of_an_effect_it_asks_or_tells_before_it_is_repeated(
    house: GreatHouse, effect: str
) -> None:
    house.kill_in(effect)
    house.until_killed(house.first())
    house.until_taken_over()
    check(house, 1, effect)
    assert house.effects[effect] - EFFECTS[effect] <= 2
