"""A workflow whose process is killed, at each row or in an effect, goes on to the same end, and does nothing twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from flow import CALLS, EFFECTS, KilledWorkflow
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
def killed_workflow(tmp_path: Path, fake_model: FakeModels) -> KilledWorkflow:
    return KilledWorkflow(tmp_path, fake_model)


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


def check_effects(killed_workflow: KilledWorkflow) -> None:
    """Each was done; again only what was under way at a kill, and after a person has said so."""
    assert killed_workflow.effects.keys() | CALLS == set(EFFECTS)
    for name, count in killed_workflow.effects.items():
        assert count <= EFFECTS[name] or name not in CALLS  # the model is told that it is unknown
    asked_about = [
        node
        for _, node in killed_workflow.asked
        if node in ("Attach", "Lead", "Step", "Gate", "Note", "Low", "Code", "End")
    ]
    again = sum(max(0, count - EFFECTS[name]) for name, count in killed_workflow.effects.items())
    assert again <= len(asked_about)


async def test_unbroken_it_has_so_many_rows_requests_and_effects(killed_workflow: KilledWorkflow) -> None:
    check_end(await killed_workflow.play(), FILES)
    assert killed_workflow.requests == REQUESTS
    assert len(killed_workflow.rows()) == ROWS
    assert killed_workflow.effects == EFFECTS
    assert killed_workflow.left_beside() == ["note.txt"]


@pytest.mark.parametrize("row", some("rows", list(range(1, ROWS + 1)), 1))
async def test_killed_after_any_row_it_goes_on_to_the_same_end_and_repeats_nothing(
    killed_workflow: KilledWorkflow, row: int
) -> None:
    assert await killed_workflow.play(kill=row) is None
    assert len(killed_workflow.rows()) == row
    before, replies, asked, open_ = (
        killed_workflow.requests,
        killed_workflow.replies(),
        len(killed_workflow.asked),
        open_questions(killed_workflow),
    )
    intended = {row.what for _, row in killed_workflow.rows() if isinstance(row, Intends)}
    said = await killed_workflow.play(resume=True)
    missing = (
        set(EFFECTS) - killed_workflow.effects.keys()
    )  # a call that was about to be made is told to the model as unknown
    assert missing <= {name for name in CALLS if killed_workflow.what(name) in intended}
    files = {name: text for name, text in FILES.items() if name != "tool.txt" or "make_file" not in missing}
    check_end(said, files)
    assert killed_workflow.requests - before == REQUESTS - replies
    check_effects(killed_workflow)
    assert open_ <= {id for id, _ in killed_workflow.asked[asked:]}
    assert killed_workflow.left_beside() == ["note.txt"]


@pytest.mark.parametrize("effect", some("effects", sorted(EFFECTS), 1))
async def test_killed_in_the_midst_of_an_effect_it_asks_or_tells_before_it_is_repeated(
    killed_workflow: KilledWorkflow, effect: str
) -> None:
    killed_workflow.kill_in(effect)
    assert await killed_workflow.play() is None
    assert killed_workflow.effects[effect] >= 1
    said = await killed_workflow.play(resume=True)
    check_end(said, {name: text for name, text in FILES.items() if name != "tool.txt" or effect != "make_file"})
    again = killed_workflow.effects[effect] - EFFECTS[effect]
    assert again == (effect not in CALLS) or (effect == "deep" and again == 2)  # another unit's was under way as well
    check_effects(killed_workflow)


@pytest.mark.parametrize("seed", some("seeds", list(range(200)), 1))
async def test_killed_up_to_ten_times_it_goes_on_to_the_same_end(killed_workflow: KilledWorkflow, seed: int) -> None:
    chance = random.Random(seed)
    said = await killed_workflow.play(kill=chance.randrange(1, ROWS // 2))
    for _ in range(chance.randrange(10)):
        if said is None:
            said = await killed_workflow.play(resume=True, kill=chance.randrange(2, 30))
    if said is None:
        said = await killed_workflow.play(resume=True)
    files = {name: text for name, text in FILES.items() if name != "tool.txt" or "make_file" in killed_workflow.effects}
    check_end(said, files)
    check_effects(killed_workflow)
    rows = [row for _, row in killed_workflow.rows()]
    ids = [row.question.id for row in rows if isinstance(row, Asked)]
    assert len(ids) == len(set(ids))
    answered = [row.answer.question for row in rows if isinstance(row, Answered)]
    assert len(answered) == len(set(answered))
