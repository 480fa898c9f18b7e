"""A fork has the files of its run: the workspace of a workflow, and what it came with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.fake_models import FakeModels

sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))

from lives import Lives, entered

from callboard.actors.runs.rerun.fork import fork
from callboard.actors.runs.stored_runs import remove_stored_run
from callboard.protocol.events import Event

FLOW = """
graph:
  start: [Make]
  nodes:
    - {id: Make, type: python, config: {code: "open('made.txt', 'w').write(open('attachments/note.txt').read())"}}
    - {id: Ask, type: human, config: {}}
    - {id: Read, type: python, config: {code: "print(open('made.txt').read(), open('attachments/note.txt').read())"}}
  edges: [{from: Make, to: Ask}, {from: Ask, to: Read}]
"""


@pytest.fixture
def lives(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Lives:
    return Lives(tmp_path, fake_model, monkeypatch)


def asked(event: Event) -> bool:
    return event.kind == "question.asked"


async def test_a_fork_works_on_a_copy_and_both_go_on(lives: Lives, tmp_path: Path) -> None:
    lives.put(FLOW)
    (tmp_path / "note.txt").write_text("a note")
    await lives.begin(until=asked, answers={}, attach=[tmp_path / "note.txt"])
    (tmp_path / "note.txt").unlink()
    rows = len(lives.rows())
    forked = await fork("run-1", at=rows, answers={"Ask": "go"}, config_dir=lives.config)
    assert (forked.status, forked.output) == ("done", "a note a note\n"), forked.error
    outcome = await lives.go_on(answers={"Ask": "go"})
    assert outcome.output == "a note a note\n"
    assert {path.name for path in lives.beside()} == {"note.txt"}


async def test_a_run_that_is_over_is_forked_with_the_files_that_it_came_with(lives: Lives, tmp_path: Path) -> None:
    lives.put(FLOW)
    (tmp_path / "note.txt").write_text("a note")
    await lives.begin(answers={"Ask": "go"}, attach=[tmp_path / "note.txt"])
    (tmp_path / "note.txt").unlink()
    forked = await fork("run-1", at=1, answers={}, id="run-2", config_dir=lives.config)
    assert forked.error is not None
    assert forked.error.code == "nobody_to_ask"
    assert sorted(path.read_text() for path in lives.beside()) == ["a note", "a note"]
    assert remove_stored_run("run-1")
    assert remove_stored_run("run-2")
    assert lives.beside() == []


async def test_what_is_kept_of_a_run_is_removed_with_its_directory(lives: Lives, tmp_path: Path) -> None:
    lives.put(FLOW)
    (tmp_path / "note.txt").write_text("a note")
    await lives.begin(until=entered("Ask"), answers={}, attach=[tmp_path / "note.txt"])
    assert lives.beside() != []
    assert remove_stored_run("run-1")
    assert lives.beside() == []
