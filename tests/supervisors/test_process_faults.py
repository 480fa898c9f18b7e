"""The fault matrix: whatever child we have and however we end, nothing of it is alive afterwards.

Five kinds of child (`faults/kinds.py`) and eight endings of the host. The cells are run a few at a time, before
the first test asks for one; each test looks at its own. Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from matrix import CELLS, Outcome, run_cells

EXITS = {
    "normal": 0,
    "crash": 1,
    "SIGINT": 130,
    "double SIGINT": 130,
    "SIGTERM": 143,
    "SIGHUP": 129,
    "SIGKILL": -9,
    "cancel": 0,
}

PASSES = 100


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Outcome]:
    """Of the cells that were asked for in this test run."""
    asked = [
        (item.callspec.params["kind"], item.callspec.params["ending"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and "outcomes" in item.fixturenames
    ]
    return trio.run(run_cells, asked, tmp_path_factory.mktemp("faults"))


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "ending"), [cell for cell in CELLS if cell[1] == "cancel"])
def test_76_nothing_is_left_of_starts_that_were_cancelled(
    kind: str, ending: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    check(kind, ending, outcomes[kind, ending])


@pytest.mark.sample(10)
@pytest.mark.parametrize(("kind", "ending"), [cell for cell in CELLS if cell[1] not in ("cancel", "SIGKILL")])
def test_80_nothing_outlives_the_host(kind: str, ending: str, outcomes: dict[tuple[str, str], Outcome]) -> None:
    check(kind, ending, outcomes[kind, ending])


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "ending"), [cell for cell in CELLS if cell[1] == "SIGKILL"])
def test_81_nothing_outlives_a_host_that_is_killed(
    kind: str, ending: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    check(kind, ending, outcomes[kind, ending])


@pytest.mark.soak
@pytest.mark.parametrize("number", range(PASSES))
async def test_nothing_outlives_the_host_in_a_hundred_passes(number: int, tmp_path: Path) -> None:
    for cell, outcome in (await run_cells(CELLS, tmp_path)).items():
        check(*cell, outcome)


def check(kind: str, ending: str, outcome: Outcome) -> None:
    """The promises of one cell. The seconds that it takes are printed by benchmarks/processes.py."""
    what = f"{kind} child, {ending}: {outcome}"
    assert outcome.to_silence is not None, f"a process outlived the host: {what}"
    assert not outcome.orphans, what
    assert outcome.status == EXITS[ending], what
    if ending == "crash":
        assert "RuntimeError: the host crashed" in outcome.stderr
    else:
        assert outcome.stderr == "", what
