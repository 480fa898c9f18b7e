"""Agents that have spawned others go on after their process was killed, at each row and in each effect."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels

from callboard.protocol.journal import Answered, Asked, Intends

sys.path.insert(0, str(Path(__file__).parent))

from family import EFFECTS, FamilyHouse
from played_agents import children, plain
from test_kills import some

ROWS = 180
"""That the run has at least; how many it has depends on what comes first."""

ONE = "one begins / ONE ['yes ONE'] ['hi']"
TWO = "two begins / TWO ['mid says yes', 'yes TWO']"
MID = f"mid begins / one: [Completed {ONE}], two: [Completed {TWO}], lead says yes, True, read ['down']"
TIMED = "Failed(\"Agent 'leaf' was stopped: it did not finish within its timeout of 1.5 s\")"
OUTPUT = (
    f"a: [Completed a begins / A ['yes A']]; mid: [Completed {MID}]; slow: [Cancelled slow begins]; "
    f"timed: [{TIMED}]; read ['from a', 'task_2', 'up']"
)
CHILDREN = [
    ["leaf", "cancelled", "slow begins", []],
    ["leaf", "completed", "a begins / A ['yes A']", []],
    ["leaf", "completed", "b begins / B []", []],
    ["leaf", "failed", "", []],
    ["mid", "completed", MID, [["leaf", "completed", ONE, []], ["leaf", "completed", TWO, []]]],
    ["served", "completed", "served begins / SERVED", []],
]


@pytest.fixture
def house(tmp_path: Path, fake_model: FakeModels) -> FamilyHouse:
    return FamilyHouse(tmp_path, fake_model)


def check_end(house: FamilyHouse, said: dict[str, Any] | None) -> None:
    assert said is not None
    assert said.get("error") is None
    assert (said["status"], plain(said["output"])) == ("done", OUTPUT)
    assert children(said["children"]) == CHILDREN
    assert said["turns"] == house.replies()
    assert said["usage"]["fake:model"]["input_tokens"] == 10 * house.replies()
    asked = [row.question.text for _, row in house.rows() if isinstance(row, Asked)]
    assert sorted(asked) == ["HOLD", "LEAD? mid asks", "MID? two asks", "PERSON A", "PERSON ONE", "PERSON TWO"]
    assert len(answered(house)) == len(asked) - 1  # under the ids that they were asked under first


def check_effects(house: FamilyHouse) -> None:
    """None was done twice. One that was under way at a kill may not have been done: its model is told that it may."""
    assert house.effects.keys() <= set(EFFECTS)
    assert set(house.effects.values()) <= {1}


def answered(house: FamilyHouse) -> set[str]:
    return {row.answer.question for _, row in house.rows() if isinstance(row, Answered)}


def open_to_people(house: FamilyHouse) -> set[str]:
    """Those that a person is to answer; the others may be answered by a parent before a person is shown them again."""
    asked = [row.question for _, row in house.rows() if isinstance(row, Asked)]
    return {question.id for question in asked if question.text.startswith("PERSON")} - answered(house)


async def test_unbroken_it_has_so_many_rows_and_effects(house: FamilyHouse) -> None:
    check_end(house, await house.play())
    assert house.news() == 0
    assert len(house.rows()) >= ROWS
    assert house.effects == dict.fromkeys(EFFECTS, 1)
    assert len(set(house.marks)) == len(house.marks)


@pytest.mark.parametrize("row", some("family rows", list(range(1, ROWS + 1)), 1))
async def test_killed_after_any_row_it_goes_on_to_the_same_end_and_repeats_nothing(
    house: FamilyHouse, row: int
) -> None:
    assert await house.play(kill=row) is None
    assert len(house.rows()) == row
    known, asked, open_, before = house.answered(), len(house.asked), open_to_people(house), len(house.marks)
    used = house.has_used()
    intended = [row.what for _, row in house.rows() if isinstance(row, Intends)]
    check_end(house, await house.play(resume=True))
    assert house.news() == used
    assert not known & set(house.marks[before:])
    check_effects(house)
    assert len(set(EFFECTS) - house.effects.keys() - {"timed"}) <= len(intended)
    assert open_ <= {id for id, _ in house.asked[asked:]}


@pytest.mark.parametrize("effect", some("family effects", EFFECTS, 0))
async def test_killed_in_the_midst_of_an_effect_of_a_child_its_model_is_told(house: FamilyHouse, effect: str) -> None:
    house.kill_in(effect)
    assert await house.play() is None
    check_end(house, await house.play(resume=True))
    assert house.effects[effect] == 1
    check_effects(house)


@pytest.mark.parametrize("seed", some("family seeds", list(range(200)), 1))
async def test_killed_up_to_ten_times_it_goes_on_to_the_same_end(house: FamilyHouse, seed: int) -> None:
    chance = random.Random(seed)
    said = await house.play(kill=chance.randrange(1, ROWS // 2))
    for _ in range(chance.randrange(10)):
        if said is None:
            known, before = house.answered(), len(house.marks)
            said = await house.play(resume=True, kill=chance.randrange(2, 40))
            assert not known & set(house.marks[before:])
    if said is None:
        said = await house.play(resume=True)
    check_end(house, said)
    check_effects(house)
