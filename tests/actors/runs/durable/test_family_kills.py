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

from family import EFFECTS, KilledFamily
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
def killed_family(tmp_path: Path, fake_model: FakeModels) -> KilledFamily:
    return KilledFamily(tmp_path, fake_model)


def check_end(killed_family: KilledFamily, said: dict[str, Any] | None) -> None:
    assert said is not None
    assert said.get("error") is None
    assert (said["status"], plain(said["output"])) == ("done", OUTPUT)
    assert children(said["children"]) == CHILDREN
    assert said["turns"] == killed_family.replies()
    assert said["usage"]["fake:model"]["input_tokens"] == 10 * killed_family.replies()
    asked = [row.question.text for _, row in killed_family.rows() if isinstance(row, Asked)]
    assert sorted(asked) == ["HOLD", "LEAD? mid asks", "MID? two asks", "PERSON A", "PERSON ONE", "PERSON TWO"]
    assert len(answered(killed_family)) == len(asked) - 1  # under the ids that they were asked under first


def check_effects(killed_family: KilledFamily) -> None:
    """None was done twice. One that was under way at a kill may not have been done: its model is told that it may."""
    assert killed_family.effects.keys() <= set(EFFECTS)
    assert set(killed_family.effects.values()) <= {1}


def answered(killed_family: KilledFamily) -> set[str]:
    return {row.answer.question for _, row in killed_family.rows() if isinstance(row, Answered)}


def open_to_people(killed_family: KilledFamily) -> set[str]:
    """Those that a person is to answer; the others may be answered by a parent before a person is shown them again."""
    asked = [row.question for _, row in killed_family.rows() if isinstance(row, Asked)]
    return {question.id for question in asked if question.text.startswith("PERSON")} - answered(killed_family)


async def test_unbroken_it_has_so_many_rows_and_effects(killed_family: KilledFamily) -> None:
    check_end(killed_family, await killed_family.play())
    assert killed_family.news() == 0
    assert len(killed_family.rows()) >= ROWS
    assert killed_family.effects == dict.fromkeys(EFFECTS, 1)
    assert len(set(killed_family.marks)) == len(killed_family.marks)


@pytest.mark.parametrize("row", some("family rows", list(range(1, ROWS + 1)), 1))
async def test_killed_after_any_row_it_goes_on_to_the_same_end_and_repeats_nothing(
    killed_family: KilledFamily, row: int
) -> None:
    assert await killed_family.play(kill=row) is None
    assert len(killed_family.rows()) == row
    known, asked, open_, before = (
        killed_family.answered(),
        len(killed_family.asked),
        open_to_people(killed_family),
        len(killed_family.marks),
    )
    used = killed_family.has_used()
    intended = [row.what for _, row in killed_family.rows() if isinstance(row, Intends)]
    check_end(killed_family, await killed_family.play(resume=True))
    assert killed_family.news() == used
    assert not known & set(killed_family.marks[before:])
    check_effects(killed_family)
    assert len(set(EFFECTS) - killed_family.effects.keys() - {"timed"}) <= len(intended)
    assert open_ <= {id for id, _ in killed_family.asked[asked:]}


@pytest.mark.parametrize("effect", some("family effects", EFFECTS, 0))
async def test_killed_in_the_midst_of_an_effect_of_a_child_its_model_is_told(
    killed_family: KilledFamily, effect: str
) -> None:
    killed_family.kill_in(effect)
    assert await killed_family.play() is None
    check_end(killed_family, await killed_family.play(resume=True))
    assert killed_family.effects[effect] == 1
    check_effects(killed_family)


@pytest.mark.parametrize("seed", some("family seeds", list(range(200)), 1))
async def test_killed_up_to_ten_times_it_goes_on_to_the_same_end(killed_family: KilledFamily, seed: int) -> None:
    chance = random.Random(seed)
    said = await killed_family.play(kill=chance.randrange(1, ROWS // 2))
    for _ in range(chance.randrange(10)):
        if said is None:
            known, before = killed_family.answered(), len(killed_family.marks)
            said = await killed_family.play(resume=True, kill=chance.randrange(2, 40))
            assert not known & set(killed_family.marks[before:])
    if said is None:
        said = await killed_family.play(resume=True)
    check_end(killed_family, said)
    check_effects(killed_family)
