"""A workflow whose process is killed, at each row or in an effect, goes on to the same end, and does nothing twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from flow import CALLS, EFFECTS, FlowHouse
from support.fake_models import FakeModels
from test_kills import open_questions, some

from callboard.protocol.journal import Answered, Asked, Intends

ROWS, REQUESTS = 136, 19
"""Of the run as a whole. Who of the units of a map comes first, changes nothing of that."""

FILES = {
    "made.txt": "made of a note",
    "note.txt": "noted",
    **{f"numbered-{number}": "x" for number in range(1, 6)},
    "step-1": "Step.py",
    "step-2": "Step_run-2.py",
    "tool.txt": "by a tool",
}
CODE = ["Attach.py", "End.py", "Note.py", "Step.py", "Step_run-2.py"]
ORDER = [
    *("Attach", "Lead", "Boss", "Step", "Gate", "Back", "Step", "Gate", "Back", "Team", "Writer", "Critic", "Note"),
    *("Items", "Each", "Deep", *["Low", "Code"] * 3, "Sum", "Helper", "Last", "End"),
]


@pytest.fixture
def house(tmp_path: Path, fake_model: FakeModels) -> FlowHouse:
    return FlowHouse(tmp_path, fake_model)


def check_end(said: dict[str, Any] | None, files: dict[str, str]) -> None:
    assert said is not None
    assert said.get("error") is None
    assert said["status"] == "done"
    left = dict(each.partition("=")[::2] for each in said["output"].rstrip("\n").split("|"))
    assert [name for name in left if name.endswith(".py")] == CODE
    assert {name: text for name, text in left.items() if not name.endswith(".py")} == files
    assert said["order"] == ORDER
    assert said["turns"] == REQUESTS
    assert sum(used["input_tokens"] for used in said["usage"].values()) == 10 * REQUESTS


def check_effects(house: FlowHouse) -> None:
    """Each was done; again only what was under way at a kill, and after a person has said so."""
    assert house.effects.keys() | CALLS == set(EFFECTS)
    for name, count in house.effects.items():
        assert count <= EFFECTS[name] or name not in CALLS  # the model is told that it is unknown
    asked_about = [
        node for _, node in house.asked if node in ("Attach", "Lead", "Step", "Gate", "Note", "Low", "Code", "End")
    ]
    again = sum(max(0, count - EFFECTS[name]) for name, count in house.effects.items())
    assert again <= len(asked_about)


async def test_unbroken_it_has_so_many_rows_requests_and_effects(house: FlowHouse) -> None:
    check_end(await house.play(), FILES)
    assert house.requests == REQUESTS
    assert len(house.rows()) == ROWS
    assert house.effects == EFFECTS
    assert house.left_beside() == ["note.txt"]


@pytest.mark.parametrize("row", some("rows", list(range(1, ROWS + 1)), 1))
async def test_killed_after_any_row_it_goes_on_to_the_same_end_and_repeats_nothing(house: FlowHouse, row: int) -> None:
    assert await house.play(kill=row) is None
    assert len(house.rows()) == row
    before, replies, asked, open_ = house.requests, house.replies(), len(house.asked), open_questions(house)
    intended = {row.what for _, row in house.rows() if isinstance(row, Intends)}
    said = await house.play(resume=True)
    missing = set(EFFECTS) - house.effects.keys()  # a call that was about to be made is told to the model as unknown
    assert missing <= {name for name in CALLS if house.what(name) in intended}
    files = {name: text for name, text in FILES.items() if name != "tool.txt" or "make_file" not in missing}
    check_end(said, files)
    assert house.requests - before == REQUESTS - replies
    check_effects(house)
    assert open_ <= {id for id, _ in house.asked[asked:]}
    assert house.left_beside() == ["note.txt"]


@pytest.mark.parametrize("effect", some("effects", sorted(EFFECTS), 1))
async def test_killed_in_the_midst_of_an_effect_it_asks_or_tells_before_it_is_repeated(
    house: FlowHouse, effect: str
) -> None:
    house.kill_in(effect)
    assert await house.play() is None
    assert house.effects[effect] >= 1
    said = await house.play(resume=True)
    check_end(said, {name: text for name, text in FILES.items() if name != "tool.txt" or effect != "make_file"})
    again = house.effects[effect] - EFFECTS[effect]
    assert again == (effect not in CALLS) or (effect == "deep" and again == 2)  # another unit's was under way as well
    check_effects(house)


@pytest.mark.parametrize("seed", some("seeds", list(range(200)), 1))
async def test_killed_up_to_ten_times_it_goes_on_to_the_same_end(house: FlowHouse, seed: int) -> None:
    chance = random.Random(seed)
    said = await house.play(kill=chance.randrange(1, ROWS // 2))
    for _ in range(chance.randrange(10)):
        if said is None:
            said = await house.play(resume=True, kill=chance.randrange(2, 30))
    if said is None:
        said = await house.play(resume=True)
    files = {name: text for name, text in FILES.items() if name != "tool.txt" or "make_file" in house.effects}
    check_end(said, files)
    check_effects(house)
    rows = [row for _, row in house.rows()]
    ids = [row.question.id for row in rows if isinstance(row, Asked)]
    assert len(ids) == len(set(ids))
    answered = [row.answer.question for row in rows if isinstance(row, Answered)]
    assert len(answered) == len(set(answered))
