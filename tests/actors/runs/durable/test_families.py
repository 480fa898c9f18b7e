"""What is special about children when a run goes on: many at once, ends of parents, limits, agents that are gone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels
from support.messages import has_message

sys.path.insert(0, str(Path(__file__).parent))

from played_agents import Call, KilledAgents, Played, Said, children, plain
from test_kills import some

# --- twenty at once ---------------------------------------------------------------------------------------------

TWENTY = [f"c{number}" for number in range(20)]


def many(said: Said, _: str) -> list[Call] | str:
    if not said.calls:
        return [("agent__spawn", {"agent": "worker", "prompt": name}) for name in TWENTY]
    ids = [said.child(f"{name} ") or said.child(name) for name in TWENTY]
    if not said.of("agent__collect"):
        return [("agent__collect", {"id": id}) for id in ids]
    return ", ".join(plain(said.collected(id)["output"]) for id in ids)


def worker(said: Said, prompt: str) -> list[Call] | str:
    return f"{prompt} done" if said.calls else [("execute_command", {"command": prompt})]


@pytest.mark.parametrize("row", some("twenty", list(range(20, 160, 5)), 2))
async def test_twenty_children_of_one_turn_are_done_once_each(tmp_path: Path, fake_model: FakeModels, row: int) -> None:
    agents = {"many": Played(many, can_spawn_agents=True, max_concurrent_agents=20), "worker": Played(worker)}
    killed_agents = KilledAgents(tmp_path, fake_model, agents)
    said = await killed_agents.play(kill=row)
    known, before = killed_agents.answered(), len(killed_agents.marks)
    said = said or await killed_agents.play(resume=True)
    assert said is not None
    assert plain(said["output"]) == ", ".join(f"{name} begins / {name} done" for name in TWENTY)
    assert not known & set(killed_agents.marks[before:])
    assert set(killed_agents.effects.values()) <= {1}
    assert [each["status"] for each in said["children"]] == ["completed"] * 20


# --- ends of parents --------------------------------------------------------------------------------------------


def goes(said: Said, _: str) -> list[Call] | str:
    """Ends as soon as its child asks something."""
    if not said.calls:
        return [("agent__spawn", {"agent": "asks", "prompt": "ASKS"})]
    return "gone" if said.asked else [("agent__task_list", {"look": len(said.calls)})]


def cancels(said: Said, _: str) -> list[Call] | str:
    """Cancels its child as soon as the child of that asks something."""
    if not said.calls:
        return [("agent__spawn", {"agent": "between", "prompt": "BETWEEN"})]
    if said.of("agent__cancel"):
        return "cancelled"
    if said.asked:
        return [("agent__cancel", {"id": said.child("BETWEEN")})]
    return [("agent__task_list", {"look": len(said.calls)})]


def between(said: Said, _: str) -> list[Call] | str:
    if not said.calls:
        return [("agent__spawn", {"agent": "asks", "prompt": "ASKS"})]
    return [("agent__collect", {"id": said.child("ASKS")})]


def asks(said: Said, _: str) -> list[Call] | str:
    return [("user__input", {"question": "HOLD"})] if said.calls else [("execute_command", {"command": "asks"})]


ASKS = ["asks", "cancelled", "asks begins", []]


@pytest.mark.parametrize("row", some("goes", list(range(1, 20)), 2))
async def test_a_parent_that_ends_ends_its_children_and_keeps_what_they_said(
    tmp_path: Path, fake_model: FakeModels, row: int
) -> None:
    agents = {"goes": Played(goes, can_spawn_agents=True), "asks": Played(asks)}
    await _killed_and_gone_on(KilledAgents(tmp_path, fake_model, agents), row, "gone", [ASKS])


@pytest.mark.parametrize("row", some("cancels", list(range(1, 30)), 3))
async def test_a_cancelled_child_ends_its_own_and_keeps_what_both_said(
    tmp_path: Path, fake_model: FakeModels, row: int
) -> None:
    agents = {
        "cancels": Played(cancels, can_spawn_agents=True),
        "between": Played(between, can_spawn_agents=True),
        "asks": Played(asks),
    }
    wanted = [["between", "cancelled", "between begins", [ASKS]]]
    await _killed_and_gone_on(KilledAgents(tmp_path, fake_model, agents), row, "cancelled", wanted)


async def _killed_and_gone_on(killed_agents: KilledAgents, row: int, output: str, wanted: list[Any]) -> None:
    said = await killed_agents.play(kill=row) or await killed_agents.play(resume=True)
    assert said is not None
    assert said["error"] is None
    assert plain(said["output"]) == output
    assert children(said["children"]) == wanted
    assert set(killed_agents.effects.values()) <= {1}


# --- limits, and what is gone -----------------------------------------------------------------------------------


def collects(said: Said, _: str) -> list[Call] | str:
    if not said.calls:
        return [("agent__spawn", {"agent": "thrifty", "prompt": "THRIFTY"})]
    result = said.collected(said.child("THRIFTY"))
    return [("agent__collect", {"id": said.child("THRIFTY")})] if result is None else str(result["exit_status"])


def thrifty(said: Said, _: str) -> list[Call] | str:
    return [("execute_command", {"command": f"t{len(said.calls)}"})]


@pytest.fixture
def agents_with_limit(tmp_path: Path, fake_model: FakeModels) -> KilledAgents:
    agents = {"collects": Played(collects, can_spawn_agents=True), "thrifty": Played(thrifty, limits={"max_turns": 3})}
    return KilledAgents(tmp_path, fake_model, agents)


async def test_a_childs_own_limits_count_what_it_had_used(agents_with_limit: KilledAgents) -> None:
    agents_with_limit.kill_in("t1")
    assert await agents_with_limit.play() is None
    said = await agents_with_limit.play(resume=True)
    assert said is not None
    assert has_message(
        said["output"], "work.spending.accounts.Account.check_own", name="…agent 'thrifty'", turns="3 model turns"
    )
    assert agents_with_limit.effects == {"t0": 1, "t1": 1, "t2": 1}


async def test_a_child_whose_agent_is_gone_goes_on_as_it_was(agents_with_limit: KilledAgents, tmp_path: Path) -> None:
    agents_with_limit.kill_in("t1")
    assert await agents_with_limit.play() is None
    (tmp_path / "config" / "agents" / "thrifty").rename(tmp_path / "away")
    said = await agents_with_limit.play(resume=True)
    assert said is not None
    assert has_message(
        said["output"], "work.spending.accounts.Account.check_own", name="…agent 'thrifty'", turns="3 model turns"
    )
    assert agents_with_limit.effects == {"t0": 1, "t1": 1, "t2": 1}


async def test_a_run_whose_child_is_gone_is_refused_with_todays_files_and_goes_on_with_its_own(
    agents_with_limit: KilledAgents, tmp_path: Path
) -> None:
    agents_with_limit.kill_in("t1")
    assert await agents_with_limit.play() is None
    (tmp_path / "config" / "agents" / "thrifty").rename(tmp_path / "away")
    rows = len(agents_with_limit.rows())
    said = await agents_with_limit.play(resume=True, with_changes=True)
    assert said is not None
    assert said["error"]["code"] == "cannot_go_on"
    assert has_message(said["error"]["message"], "work.agent.children.Children._forget", id="agent_thrifty_…")
    assert has_message(said["error"]["message"], "runs.begin.ChildAgentRunner.unknown.2", name="thrifty")
    assert len(agents_with_limit.rows()) <= rows + 2  # that it was tried, with which files
    said = await agents_with_limit.play(resume=True)
    assert said is not None
    assert has_message(
        said["output"], "work.spending.accounts.Account.check_own", name="…agent 'thrifty'", turns="3 model turns"
    )
    assert agents_with_limit.effects == {"t0": 1, "t1": 1, "t2": 1}
