"""examples/workflows/review.yaml, played: it goes round, asks a person, and goes round again if that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_models import FakeModels, Request

import callboard
from callboard.cli.flag_values import answers

EXAMPLES = Path(__file__).parents[4] / "examples" / "workflows"
FLOW = EXAMPLES / "review.yaml"


@pytest.mark.parametrize(
    ("verdicts", "said", "drafts"),
    [
        (["ACCEPT"], ["yes"], 1),
        (["Shorter.", "ACCEPT"], ["Yes, please"], 2),
        (["Shorter.", "Longer.", "Bolder."], ["yes"], 3),
        (["ACCEPT", "ACCEPT"], ["Say more of wheels.", "yes"], 2),
    ],
)
async def test_what_is_printed_is_the_last_draft(
    verdicts: list[str], said: list[str], drafts: int, tmp_path: Path, fake_model: FakeModels
) -> None:
    left = list(verdicts)
    written: list[str] = []

    def answer(request: Request) -> str:
        if "shown a paragraph" in request.system:
            assert written[-1] in request.prompt
            return left.pop(0)
        assert "dry tone" in request.system
        written.append(f"draft {len(written) + 1}")
        return written[-1]

    fake_model.answer_with(answer)
    outcome = await callboard.run(
        FLOW,
        "bicycles",
        variables={"PROVIDER": "fake", "MODEL": "m", "TONE": "dry"},
        answers={"Editor": said},
        config_dir=fake_model.config_dir(tmp_path),
    )
    assert (outcome.status, outcome.output) == ("done", f"draft {drafts}")
    assert (left, len(written)) == ([], drafts)


def test_it_has_no_problems_and_its_batch_has_answers() -> None:
    assert callboard.validate(FLOW) == []
    assert answers([], str(EXAMPLES / "answers.yaml")) == {"Editor": "yes"}
