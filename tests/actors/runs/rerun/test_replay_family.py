"""Replays of agents with children: letters, questions, tasks and their ends come in the order that they had."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.fake_models import FakeModels

import callboard
from callboard.protocol.events import Event

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))

from family import PERSONS, KilledFamily
from in_process import again, again_in_any_order
from playing import Person
from test_replay import by_actor


@pytest.fixture
def killed_family(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> KilledFamily:
    for name in ("state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    return KilledFamily(tmp_path, fake_model)


async def test_a_family_is_the_same_byte_for_byte_in_whatever_order_trio_runs_its_tasks(
    killed_family: KilledFamily,
) -> None:
    said = await killed_family.play()
    assert said is not None
    requests, effects = killed_family.requests, killed_family.effects
    replayed, _ = await again_in_any_order(killed_family)
    assert (replayed.differences, replayed.ended_early) == ((), False)
    assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])
    assert (killed_family.requests, killed_family.effects) == (requests, effects)


async def test_what_happened_to_each_of_a_family_happens_again(killed_family: KilledFamily) -> None:
    events: list[Event] = []
    async with callboard.Root(config_dir=killed_family.config) as root:
        with root.questions.attach(Person(root, str(killed_family.log), together=PERSONS)):
            await callboard.run("lead", "hello", durable=True, id="run-1", yes=True, on_event=events.append)
    replayed, found = await again(killed_family)
    assert replayed.differences == ()
    assert by_actor(found) == by_actor(events)


@pytest.mark.parametrize("kill", [30, 75, *(pytest.param(row, marks=pytest.mark.soak) for row in range(5, 190, 6))])
async def test_of_a_family_that_was_killed_it_goes_as_far_as_the_rows_do_and_after_resume_to_the_end(
    killed_family: KilledFamily, kill: int
) -> None:
    if await killed_family.play(kill=kill) is None:
        replayed, _ = await again(killed_family)
        assert (replayed.ended_early, replayed.differences) == (True, ())
        said = await killed_family.play(resume=True)
        assert said is not None
        replayed, _ = await again(killed_family)
        assert (replayed.ended_early, replayed.differences) == (False, ())
        assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])
