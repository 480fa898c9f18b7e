"""The file that a batch goes on from."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from callboard.actors.runs.batch.batch import Ended, run_batch
from callboard.actors.runs.batch.journal import Journal
from callboard.actors.runs.batch.tasks import Task
from callboard.protocol.errors import LimitReached, UsageError
from callboard.protocol.outcome import Outcome

TASKS = [Task(id=str(i), prompt=f"task {i}", line=i + 2) for i in range(20)]


class Batches:
    """Batches of `TASKS` with a target that is made up.

    Attributes:
        performed: the tasks that ran, by their ids.
        most: how many ran at once at most.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.performed: list[str] = []
        self.ended: list[Ended] = []
        self.most = 0
        self._now = 0

    async def perform(self, task: Task) -> Outcome:
        self.performed.append(task.id)
        self._now += 1
        self.most = max(self.most, self._now)
        await trio.sleep(1)
        self._now -= 1
        return Outcome(run_id="run-1", status="done", output=task.prompt)

    async def run(self, perform: object = None) -> Journal:
        with Journal(self.path) as journal:
            left = journal.left(TASKS, "x")
            journal.begin()
            await run_batch(
                left,
                perform or self.perform,  # type: ignore[arg-type]
                journal,
                target="x",
                max_parallel=3,
                on_begin=lambda task: None,
                on_end=self.ended.append,
            )
        return journal


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "t.results.jsonl")


async def test_every_task_has_its_line_and_so_many_run_at_once(batches: Batches, autojump_clock: object) -> None:
    journal = await batches.run()
    assert (len(batches.path.read_text().splitlines()), batches.most) == (20, 3)
    assert set(journal.done) == {task.id for task in TASKS}
    assert not journal.failures.exists()


async def test_one_that_was_interrupted_goes_on_with_the_rest(batches: Batches, autojump_clock: object) -> None:
    with trio.move_on_after(2.5):
        await batches.run()
    done = len(batches.path.read_text().splitlines())
    assert done == 6
    batches.performed.clear()
    await batches.run()
    assert len(batches.performed) == 14
    assert len(batches.path.read_text().splitlines()) == 20


@pytest.mark.parametrize("cut", [1, 20, 60])
async def test_half_a_line_of_a_killed_one_is_cut_off_and_its_task_runs_again(
    cut: int, batches: Batches, autojump_clock: object
) -> None:
    await batches.run()
    whole = batches.path.read_bytes()
    batches.path.write_bytes(whole[:-cut])
    batches.performed.clear()
    await batches.run()
    assert len(batches.performed) == 1
    assert len(batches.path.read_text().splitlines()) == 20


async def test_failures_stand_apart_and_are_tried_again(batches: Batches, autojump_clock: object) -> None:
    async def fail_odd(task: Task) -> Outcome:
        if int(task.id) % 2:
            raise LimitReached("too dear")
        return Outcome(run_id="run-1", status="done")

    journal = await batches.run(fail_odd)
    assert (len(journal.done), journal.failed) == (10, 10)
    assert journal.failures.name == "t.results.failures.jsonl"
    assert journal.failures.read_text().count('"message": "too dear"') == 10
    journal = await batches.run()
    assert (len(journal.done), len(batches.performed)) == (20, 10)
    assert not journal.failures.exists()


async def test_a_task_that_is_another_by_now_is_not_taken_for_done(batches: Batches, autojump_clock: object) -> None:
    with Journal(batches.path) as journal:
        other = Task(id="3", prompt="something else")
        journal.keep({"id": "3", "digest": other.digest("x")}, failed=False)
    with pytest.raises(UsageError, match=r"task '3', but the task \(line 5\)"):
        await batches.run()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "r.jsonl"),
        pytest.raises(UsageError, match="another batch"),
        Journal(tmp_path / "r.jsonl"),
    ):
        pass


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"note": "mine"}\n')
    with pytest.raises(UsageError, match="line 1"), Journal(tmp_path / "notes.jsonl"):
        pass
    assert (tmp_path / "notes.jsonl").read_text() == '{"note": "mine"}\n'
