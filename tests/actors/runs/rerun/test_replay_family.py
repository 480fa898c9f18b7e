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

from family import PERSONS, FamilyHouse
from in_process import again, again_in_any_order
from playing import Person
from test_replay import by_actor


@pytest.fixture
def house(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> FamilyHouse:
    for name in ("state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    return FamilyHouse(tmp_path, fake_model)


async def test_a_family_is_the_same_byte_for_byte_in_whatever_order_trio_runs_its_tasks(house: FamilyHouse) -> None:
    said = await house.play()
    assert said is not None
    requests, effects = house.requests, house.effects
    replayed, _ = await again_in_any_order(house)
    assert (replayed.differences, replayed.ended_early) == ((), False)
    assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])
    assert (house.requests, house.effects) == (requests, effects)


async def test_what_happened_to_each_of_a_family_happens_again(house: FamilyHouse) -> None:
    events: list[Event] = []
    async with callboard.Root(config_dir=house.config) as root:
        with root.questions.attach(Person(root, str(house.log), together=PERSONS)):
            await callboard.run("lead", "hello", durable=True, id="run-1", yes=True, on_event=events.append)
    replayed, found = await again(house)
    assert replayed.differences == ()
    assert by_actor(found) == by_actor(events)


@pytest.mark.parametrize("kill", [30, 75, *(pytest.param(row, marks=pytest.mark.soak) for row in range(5, 190, 6))])
async def test_of_a_family_that_was_killed_it_goes_as_far_as_the_rows_do_and_after_resume_to_the_end(
    house: FamilyHouse, kill: int
) -> None:
    if await house.play(kill=kill) is None:
        replayed, _ = await again(house)
        assert (replayed.ended_early, replayed.differences) == (True, ())
        said = await house.play(resume=True)
        assert said is not None
        replayed, _ = await again(house)
        assert (replayed.ended_early, replayed.differences) == (False, ())
        assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])
