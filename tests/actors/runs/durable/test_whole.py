"""One run with everything, whose process is killed at each row and in each effect, goes on to the same end.

A tenth of that is in every run of the tests, several kills to a run: a process takes a second to begin. Its parts alone
(`test_kills`, `test_family_kills`, `test_flow_kills`) are nearly all among the long repetitions.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels

from callboard.protocol.journal import Answered, Asked, Intends

sys.path.insert(0, str(Path(__file__).parent))

import test_family_kills
import test_flow_kills
import test_kills
from played_agents import plain
from test_kills import some
from whole import CALLS, EFFECTS, KilledWholeRun

ROWS = 370
"""That it has at least: how many it has depends on what comes first in the family."""


@pytest.fixture
def killed_whole_run(tmp_path: Path, fake_model: FakeModels) -> KilledWholeRun:
    return KilledWholeRun(tmp_path, fake_model)


def check_end(killed_whole_run: KilledWholeRun, said: dict[str, Any] | None, killed_in: str = "") -> None:
    assert said is not None
    assert said.get("error") is None
    assert said["status"] == "done"
    check_output(killed_whole_run, said["output"], killed_in)
    assert said["turns"] == killed_whole_run.replies()
    assert sum(used["input_tokens"] for used in said["usage"].values()) == 10 * killed_whole_run.replies()
    said_in_session = killed_whole_run.said_in_session()
    assert said_in_session == [("user", "hello"), ("assistant", said["output"])]


def check_output(killed_whole_run: KilledWholeRun, output: str, killed_in: str = "") -> None:
    graph, kin, flow = output.split("||")
    assert graph == test_kills.OUTPUT
    assert plain(kin) == test_family_kills.OUTPUT
    left = dict(each.partition("=")[::2] for each in flow.rstrip("\n").split("|"))
    assert [name for name in left if name.endswith(".py")] == test_flow_kills.CODE
    tool = (
        "make_file" in killed_whole_run.effects and killed_in != "make_file"
    )  # its model was told, and did not call it again
    made = {name for name in test_flow_kills.FILES if name != "tool.txt" or tool}
    assert {name: left[name] for name in left if not name.endswith(".py")} == {
        name: test_flow_kills.FILES[name] for name in made
    }


def check_questions(killed_whole_run: KilledWholeRun) -> None:
    """Each was asked under one id, and answered once."""
    rows = [row for _, row in killed_whole_run.rows()]
    ids = [row.question.id for row in rows if isinstance(row, Asked)]
    assert len(ids) == len(set(ids))
    answered = [row.answer.question for row in rows if isinstance(row, Answered)]
    assert len(answered) == len(set(answered))


def check_effects(killed_whole_run: KilledWholeRun, killed: int) -> None:
    """Calls of models were never made twice; code only after a person has said so, at most once more for each kill."""
    assert killed_whole_run.effects.keys() | CALLS == EFFECTS.keys()
    assert all(count <= EFFECTS[name] for name, count in killed_whole_run.effects.items() if name in CALLS)
    again = sum(max(0, count - EFFECTS[name]) for name, count in killed_whole_run.effects.items())
    permitted = [
        node for _, node in killed_whole_run.asked if node not in ("name", "ok", "Boss", "Critic", "asked", "None")
    ]
    assert again <= len(permitted)
    assert killed or not again


def people(killed_whole_run: KilledWholeRun) -> set[str]:
    """Questions that only a person answers, and that have no answer on disk."""
    rows = [row for _, row in killed_whole_run.rows()]
    answered = {row.answer.question for row in rows if isinstance(row, Answered)}
    asked = [row.question for row in rows if isinstance(row, Asked) and row.question.permission is None]
    words = ("LEAD?", "MID?", "HOLD")
    return {question.id for question in asked if not question.text.startswith(words)} - answered


async def test_unbroken_it_has_so_many_rows_and_effects(killed_whole_run: KilledWholeRun) -> None:
    check_end(killed_whole_run, await killed_whole_run.play())
    check_effects(killed_whole_run, 0)
    check_questions(killed_whole_run)
    assert killed_whole_run.effects == EFFECTS
    assert len(killed_whole_run.rows()) >= ROWS


TENTH = sorted(random.Random("whole rows").sample(range(1, ROWS + 1), ROWS // 10))
CHAINS = [TENTH[first::4] for first in range(4)]


@pytest.mark.parametrize("rows", CHAINS, ids=lambda rows: "-".join(map(str, rows)))
@pytest.mark.sample(1)
async def test_killed_after_one_row_and_after_another_it_goes_on_to_the_same_end(
    killed_whole_run: KilledWholeRun, rows: list[int]
) -> None:
    said = await killed_whole_run.play(kill=rows[0])
    assert len(killed_whole_run.rows()) == rows[0]
    kills = 1
    for row in [*rows[1:], 0]:
        if said is not None:
            break
        there, known, before = len(killed_whole_run.rows()), killed_whole_run.answered(), len(killed_whole_run.marks)
        open_, asked = people(killed_whole_run), len(killed_whole_run.asked)
        said = await killed_whole_run.play(resume=True, **({"kill": max(2, row - there)} if row else {}))
        kills += said is None
        assert not known & set(killed_whole_run.marks[before:])
        assert said is None or open_ <= {id for id, _ in killed_whole_run.asked[asked:]}
        assert said is not None or len(killed_whole_run.rows()) >= row
    check_end(killed_whole_run, said)
    check_effects(killed_whole_run, kills)
    check_questions(killed_whole_run)


@pytest.mark.soak
@pytest.mark.parametrize("row", range(1, ROWS + 1))
async def test_killed_after_any_row_it_goes_on_to_the_same_end_and_repeats_nothing(
    killed_whole_run: KilledWholeRun, row: int
) -> None:
    assert await killed_whole_run.play(kill=row) is None
    assert len(killed_whole_run.rows()) == row
    known, asked, open_, before = (
        killed_whole_run.answered(),
        len(killed_whole_run.asked),
        people(killed_whole_run),
        len(killed_whole_run.marks),
    )
    replies, requests = killed_whole_run.replies(), killed_whole_run.requests
    intended = [row.what for _, row in killed_whole_run.rows() if isinstance(row, Intends)]
    check_end(killed_whole_run, await killed_whole_run.play(resume=True))
    assert not known & set(killed_whole_run.marks[before:])
    assert killed_whole_run.requests - requests >= killed_whole_run.replies() - replies
    check_effects(killed_whole_run, 1)
    check_questions(killed_whole_run)
    assert len(EFFECTS.keys() - killed_whole_run.effects.keys() - {"timed"}) <= len(intended)
    assert open_ <= {id for id, _ in killed_whole_run.asked[asked:]}


@pytest.mark.parametrize("effect", some("whole effects", sorted(EFFECTS), 1))
async def test_killed_in_the_midst_of_an_effect_it_asks_or_tells_before_it_is_repeated(
    killed_whole_run: KilledWholeRun, effect: str
) -> None:
    killed_whole_run.kill_in(effect)
    assert await killed_whole_run.play() is None
    check_end(killed_whole_run, await killed_whole_run.play(resume=True), effect)
    assert killed_whole_run.effects[effect] - EFFECTS[effect] <= 2
    check_effects(killed_whole_run, 1)
    check_questions(killed_whole_run)


@pytest.mark.parametrize("seed", some("whole seeds", list(range(200)), 2))
@pytest.mark.sample(1)
async def test_killed_up_to_ten_times_it_goes_on_to_the_same_end(killed_whole_run: KilledWholeRun, seed: int) -> None:
    chance = random.Random(seed)
    kills = chance.randrange(1, 11)
    said = await killed_whole_run.play(kill=chance.randrange(1, ROWS // 2))
    for _ in range(kills - 1):
        if said is None:
            said = await killed_whole_run.play(resume=True, kill=chance.randrange(2, 60))
    if said is None:
        said = await killed_whole_run.play(resume=True)
    check_end(killed_whole_run, said)
    check_effects(killed_whole_run, kills)
    check_questions(killed_whole_run)
