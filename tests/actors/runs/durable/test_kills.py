"""A run whose process is killed, at each row and in each effect, goes on to the same end, and does nothing twice."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels

from callboard.protocol.journal import Answered, Asked, Intends

sys.path.insert(0, str(Path(__file__).parent))

from everything import CALLS, EFFECTS, KilledRun

ROWS, REQUESTS = 74, 15
"""Of the run as a whole."""

OUTPUT = 'began ["<ITEM 1> 1","<ITEM 2> 2","<ITEM 3> 3"] tooled 7 Annabel I think\nhelped <BESIDE> 2'


@pytest.fixture
def killed_run(tmp_path: Path, fake_model: FakeModels) -> KilledRun:
    return KilledRun(tmp_path, fake_model)


def some(name: str, of: list[Any], few: int) -> list[Any]:
    """Some of them, with a fixed seed; the others are for `make soak`."""
    chosen = random.Random(name).sample(of, few)
    return [pytest.param(each, marks=() if each in chosen else pytest.mark.soak) for each in of]


def check_end(said: dict[str, Any] | None) -> None:
    assert said is not None
    assert said.get("error") is None
    assert (said["status"], said["output"]) == ("done", OUTPUT)
    order = ["first", "each", "tool", "shape", "name", "fan", "helper", "beside", *["loop", "ok", "turn"] * 2, "done"]
    assert said["order"] == order
    assert said["turns"] == REQUESTS
    assert said["usage"]["fake:model"]["input_tokens"] == 10 * REQUESTS


def open_questions(killed_run: KilledRun) -> set[str]:
    rows = [row for _, row in killed_run.rows()]
    answered = {row.answer.question for row in rows if isinstance(row, Answered)}
    asked = {row.question.id for row in rows if isinstance(row, Asked) and row.question.permission is None}
    return asked - answered


def check_effects(killed_run: KilledRun) -> None:
    """Each was done; again only what was under way at a kill, and after a person has said so."""
    assert killed_run.effects.keys() | CALLS == set(EFFECTS)
    assert all(killed_run.effects[name] <= 1 for name in CALLS)  # the model is told that it is unknown
    asked_about = [node for _, node in killed_run.asked if node not in ("name", "ok")]
    assert sum(count - 1 for count in killed_run.effects.values()) <= len(asked_about)


async def test_unbroken_it_has_so_many_rows_requests_and_effects(killed_run: KilledRun) -> None:
    check_end(await killed_run.play())
    assert killed_run.requests == REQUESTS
    assert len(killed_run.rows()) == ROWS
    assert killed_run.effects == dict.fromkeys(EFFECTS, 1)


@pytest.mark.parametrize("row", some("rows", list(range(1, ROWS + 1)), 1))
async def test_killed_after_any_row_it_goes_on_to_the_same_end_and_repeats_nothing(
    killed_run: KilledRun, row: int
) -> None:
    assert await killed_run.play(kill=row) is None
    assert len(killed_run.rows()) == row
    before, replies, asked, open_ = (
        killed_run.requests,
        killed_run.replies(),
        len(killed_run.asked),
        open_questions(killed_run),
    )
    intended = {row.what for _, row in killed_run.rows() if isinstance(row, Intends)}
    said = await killed_run.play(resume=True)
    check_end(said)
    assert killed_run.requests - before == REQUESTS - replies
    check_effects(killed_run)
    missing = (
        set(EFFECTS) - killed_run.effects.keys()
    )  # a call that was about to be made is told to the model as unknown
    assert len(missing) <= ("execute_command" in intended)
    assert open_ <= {id for id, _ in killed_run.asked[asked:]}


@pytest.mark.parametrize("effect", some("effects", EFFECTS, 1))
async def test_killed_in_the_midst_of_an_effect_it_asks_or_tells_before_it_is_repeated(
    killed_run: KilledRun, effect: str
) -> None:
    killed_run.kill_in(effect)
    assert await killed_run.play() is None
    assert killed_run.effects[effect] == 1
    asked = len(killed_run.asked)
    check_end(await killed_run.play(resume=True))
    assert killed_run.effects[effect] == 1 + (effect not in CALLS)
    check_effects(killed_run)
    about_effects = [node for _, node in killed_run.asked[asked:] if node not in ("name", "ok")]
    assert len(about_effects) >= (effect not in CALLS)  # what runs beside it may be under way as well


@pytest.mark.parametrize("seed", some("seeds", list(range(200)), 5))
@pytest.mark.sample(2)
async def test_killed_up_to_ten_times_it_goes_on_to_the_same_end(killed_run: KilledRun, seed: int) -> None:
    chance = random.Random(seed)
    said = await killed_run.play(kill=chance.randrange(1, ROWS // 2))
    for _ in range(chance.randrange(10)):
        if said is None:
            said = await killed_run.play(resume=True, kill=chance.randrange(2, 20))
    if said is None:
        said = await killed_run.play(resume=True)
    check_end(said)
    check_effects(killed_run)
