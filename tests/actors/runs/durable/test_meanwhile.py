"""Files that have changed while no process played a run: those that it was begun with count, or today's are wanted."""

from __future__ import annotations

from pathlib import Path

import pytest
from lives import Lives, entered
from support.fake_models import FakeModels
from support.messages import says

from callboard.actors.runs.rerun.fork import fork
from callboard.actors.work.journal.run_journal import CannotGoOn
from callboard.protocol.events import Event, Warned
from callboard.protocol.journal import Asked

GRAPH = """
name: g
start: first
nodes:
  first: {type: agent, agent: helper, prompt: ONE, state_updates: {one: "{{output}}"}, next: ask}
  ask: {type: input, question: "Well?", state_updates: {said: "{{input}}"}, next: script}
  script: {type: script, script: say.sh, next: second}
  second: {type: agent, agent: helper, prompt: TWO, state_updates: {two: "{{output}}"}, next: done}
  done: {type: end, output: "WORD {{one}} {{word}} {{two}}"}
"""
HELPER = """
name: helper
start: say
nodes:
  say: {type: script, script: in.sh, next: done}
  done: {type: end, output: "HELPER({{inner}})"}
"""


@pytest.fixture
def lives(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Lives:
    lives = Lives(tmp_path, fake_model, monkeypatch)
    write(lives, "before")
    return lives


def write(lives: Lives, word: str, *, scripts: str | None = None) -> None:
    """All files say this word, scripts perhaps another."""
    agents = lives.config / "agents"
    for place, graph, script, key in (("g", GRAPH, "say.sh", "word"), ("helper", HELPER, "in.sh", "inner")):
        (agents / place).mkdir(parents=True, exist_ok=True)
        (agents / place / "graph.yaml").write_text(graph.replace("WORD", word).replace("HELPER", word))
        (agents / place / script).write_text(f'echo \'{{"{key}": "{scripts or word}"}}\'\n')


def warned(lives: Lives) -> list[str]:
    found = [event.data for event in lives.events if isinstance(event.data, Warned)]
    return [Path(data.message.partition(": ")[0]).name for data in found if data.code == "changed_since"]


async def test_it_goes_on_with_the_files_of_agents_that_it_began_with(lives: Lives) -> None:
    await lives.begin("g", until=entered("ask"), answers={})
    write(lives, "after", scripts="before")
    outcome = await lives.go_on(answers={"ask": "go"})
    assert outcome.output == "before before(before) before before(before)"
    assert warned(lives) == []


async def test_scripts_are_those_of_today_with_a_warning_each(lives: Lives) -> None:
    await lives.begin("g", until=entered("ask"), answers={})
    write(lives, "before", scripts="mended")
    outcome = await lives.go_on(answers={"ask": "go"})
    assert outcome.output == "before before(before) mended before(mended)"
    assert sorted(warned(lives)) == ["in.sh", "say.sh"]


async def test_a_strict_run_is_refused_and_stays_until_its_scripts_are_what_they_were(lives: Lives) -> None:
    await lives.begin("g", until=entered("ask"), answers={})
    write(lives, "before", scripts="mended")
    rows = len(lives.rows())
    with pytest.raises(CannotGoOn, match=says("runs.pinned_files.check_files", changed="…say.sh, …")):
        await lives.go_on(strict=True, answers={})
    assert len(lives.rows()) == rows
    write(lives, "before")
    outcome = await lives.go_on(strict=True, answers={"ask": "go"})
    assert outcome.output == "before before(before) before before(before)"


async def test_a_run_that_was_begun_strict_is_so_in_each_life(lives: Lives) -> None:
    await lives.begin("g", until=entered("ask"), answers={}, strict=True)
    write(lives, "before", scripts="mended")
    with pytest.raises(CannotGoOn, match=says("runs.pinned_files.check_files")):
        await lives.go_on(answers={})


async def test_with_changes_it_goes_on_with_todays_files_from_then_on(lives: Lives) -> None:
    await lives.begin("g", until=entered("ask"), answers={})
    write(lives, "after")
    await lives.go_on(with_changes=True, until=entered("script"), answers={"ask": "go"})
    write(lives, "later", scripts="after")
    outcome = await lives.go_on(answers={"ask": "again"})
    assert outcome.output == "after before(before) after later(after)"  # helper was first read by those lives then
    assert warned(lives) == []


async def test_a_file_that_is_gone_has_changed(lives: Lives) -> None:
    await lives.begin("g", until=entered("ask"), answers={})
    (lives.config / "agents" / "helper" / "in.sh").unlink()
    with pytest.raises(CannotGoOn, match=says("runs.pinned_files.check_files", changed="…in.sh")):
        await lives.go_on(strict=True, answers={})


async def test_a_fork_has_the_files_of_the_run_or_todays(lives: Lives) -> None:
    await lives.begin("g", answers={"ask": "go"})
    write(lives, "after", scripts="before")
    same = await fork("run-1", at="script#1", config_dir=lives.config)
    assert same.output == "before before(before) before before(before)"
    other = await fork("run-1", at="script#1", config_dir=lives.config, with_changes=True)
    assert other.output == "after before(before) before after(before)"


async def test_a_question_is_on_the_disk_before_anybody_sees_it(lives: Lives) -> None:
    seen: list[list[str]] = []

    def asked(event: Event) -> bool:
        if event.kind == "question.asked":
            seen.append([row.question.id for _, row in lives.rows() if isinstance(row, Asked)])
        return False

    await lives.begin("g", until=asked, answers={"ask": "go"})
    assert seen == [["q-1-1"]]
