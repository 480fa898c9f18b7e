"""The file that a batch goes on from."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from support.messages import fragment, says
from support.waiting import PATIENCE

from callboard.actors.runs.batch.batch import Ended, Perform, run_batch
from callboard.actors.runs.batch.decider import ALIKE, GivenUp
from callboard.actors.runs.batch.journal import BatchJournal, ResultsLost
from callboard.actors.runs.batch.tasks import BatchTask
from callboard.protocol.errors import ConfigError, LimitReached, UsageError
from callboard.protocol.outcome import Outcome
from callboard.supervisors import Actor, Root

TASKS = [BatchTask(id=str(i), prompt=f"task {i}", line=i + 2) for i in range(20)]


class Batches:
    """Batches of `TASKS` with a target that is made up.

    Attributes:
        performed: the tasks that ran, by their ids.
        ended: what was told of them.
        most: how many ran at once at most.
        ending: so many of the tasks end by themselves.
        told: called when one is told to have ended.
        given_up: what the last batch has returned.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.performed: list[str] = []
        self.ended: list[Ended] = []
        self.most = 0
        self.ending = len(TASKS)
        self.told: Callable[[Ended], None] = lambda ended: None
        self.given_up: GivenUp | None = None
        self._now = 0

    async def perform(self, task: BatchTask) -> Outcome:
        self.performed.append(task.id)
        self._now += 1
        self.most = max(self.most, self._now)
        if int(task.id) >= self.ending:
            await trio.sleep_forever()
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        self._now -= 1
        return Outcome(run_id="run-1", status="done", output=task.prompt)

    async def run(
        self,
        perform: Perform | None = None,
        *,
        tasks: Sequence[BatchTask] = TASKS,
        at_once: int = 3,
        max_failures: int | None = None,
    ) -> BatchJournal:
        async def batch(me: Actor) -> GivenUp | None:
            return await run_batch(
                me,
                left,
                perform or self.perform,
                journal,
                target="x",
                max_parallel=at_once,
                max_failures=max_failures,
                on_begin=lambda task: None,
                on_end=self._end,
            )

        async with Root() as root:
            with BatchJournal(self.path) as journal:
                left = journal.remaining_tasks(tasks, "x")
                journal.begin()
                ref = root.spawn(batch, link=False)
                try:
                    end = await ref.wait()
                except trio.Cancelled:
                    ref.cancel()
                    with trio.move_on_after(10, shield=True):
                        await ref.wait()
                    raise
                if end.error is not None:
                    raise end.error
                self.given_up = end.value
        return journal

    def _end(self, ended: Ended) -> None:
        self.ended.append(ended)
        self.told(ended)

    @property
    def lines(self) -> list[str]:
        """The ids of the results, in their order."""
        return [json.loads(line)["id"] for line in self.path.read_text().splitlines()]


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "t.results.jsonl")


async def test_every_task_has_its_line_and_so_many_run_at_once(batches: Batches) -> None:
    journal = await batches.run()
    assert (len(batches.lines), batches.most) == (20, 3)
    assert set(journal.done) == {task.id for task in TASKS}
    assert not journal.failures.exists()
    assert batches.given_up is None


async def test_one_that_was_interrupted_goes_on_with_the_rest(batches: Batches) -> None:
    batches.ending = 6
    with trio.CancelScope() as scope:
        batches.told = lambda _: scope.cancel() if len(batches.ended) == 6 else None
        await batches.run()
    assert len(batches.lines) == 6
    batches.performed.clear()
    batches.ending = 20
    await batches.run()
    assert len(batches.performed) == 14
    assert sorted(batches.lines, key=int) == [task.id for task in TASKS]


async def test_when_a_task_is_told_to_be_done_the_disk_has_its_line(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def counted(file: int) -> None:
        synced.append(os.fstat(file).st_size)
        fsync(file)

    def told(ended: Ended) -> None:
        place = batches.path.read_bytes().index(b'"id": "%s"' % ended.task.id.encode())
        assert place < max(synced)

    monkeypatch.setattr(os, "fsync", counted)
    batches.told = told
    await batches.run(at_once=20)
    assert len(batches.ended) == 20


async def test_lines_that_come_while_the_disk_is_busy_go_there_together(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    all_ended = threading.Event()
    write = BatchJournal._write

    def slow(journal: BatchJournal, lines: Any) -> None:
        all_ended.wait(PATIENCE)
        written.append(len(lines))
        write(journal, lines)

    async def perform(task: BatchTask) -> Outcome:
        if task is TASKS[-1]:
            await trio.testing.wait_all_tasks_blocked()
            all_ended.set()
        return await batches.perform(task)

    monkeypatch.setattr(BatchJournal, "_write", slow)
    await batches.run(perform, at_once=20)
    assert sum(written) == len(batches.lines) == 20
    assert len(written) <= 3


async def test_what_has_ended_when_somebody_interrupts_is_kept_though_the_disk_is_slow(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BatchJournal._write
    interrupted = threading.Event()
    batches.ending = 3

    def slow(journal: BatchJournal, lines: Any) -> None:
        interrupted.wait(PATIENCE)
        write(journal, lines)

    async def interrupt() -> None:
        while len(batches.performed) < 6:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        interrupted.set()

    monkeypatch.setattr(BatchJournal, "_write", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt)
        with trio.CancelScope() as scope:
            await batches.run(at_once=6)
    assert sorted(batches.lines) == ["0", "1", "2"]


async def test_a_full_disk_ends_the_batch_with_one_error_and_the_next_goes_on(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def full(file: int) -> None:
        if os.fstat(file).st_size > 400 and stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsLost, match=r"t\.results\.jsonl: No space left on device"):
        await batches.run()
    monkeypatch.setattr(os, "fsync", fsync)
    await batches.run()
    assert sorted(batches.lines, key=int) == [task.id for task in TASKS]


async def test_what_every_task_would_fail_with_ends_the_batch_and_nothing_else_does(batches: Batches) -> None:
    async def refuse(task: BatchTask) -> Outcome:
        raise ConfigError("there is no key for openai")

    async def refuse_later(task: BatchTask) -> Outcome:
        if task.id == "0":
            return await batches.perform(task)
        await trio.testing.wait_all_tasks_blocked()
        raise ConfigError("there is no such model")

    journal = await batches.run(refuse, at_once=1)
    assert (journal.failed, len(journal.done)) == (1, 0)
    assert batches.given_up is not None
    assert (batches.given_up.shared, batches.given_up.error.message) == (True, "there is no key for openai")
    journal = await batches.run(refuse_later, at_once=1)
    assert (journal.failed, len(journal.done), batches.given_up) == (19, 1, None)


async def test_a_task_whose_own_vars_ask_for_too_much_is_not_taken_for_all(batches: Batches) -> None:
    async def refuse(task: BatchTask) -> Outcome:
        if "MODEL" in task.vars:
            raise ConfigError(fragment("work.models.signed_in.client_to_sign_in.4", name="x"))
        return await batches.perform(task)

    every = [msgspec.structs.replace(task, vars={"MODEL": "x:y"}) for task in TASKS]
    for tasks, ended in (([every[0], *TASKS[1:]], (19, 1)), (every, (0, ALIKE))):
        batches.path.unlink(missing_ok=True)
        journal = await batches.run(refuse, at_once=1, tasks=tasks)
        assert (len(journal.done), journal.failed) == ended
    assert batches.given_up is not None
    assert batches.given_up.shared


@pytest.mark.parametrize(("most", "failed"), [(1, 1), (4, 4), (None, 10)])
async def test_so_many_failures_are_enough(most: int | None, failed: int, batches: Batches) -> None:
    async def fail_odd(task: BatchTask) -> Outcome:
        if int(task.id) % 2:
            raise LimitReached("too dear")
        return await batches.perform(task)

    journal = await batches.run(fail_odd, at_once=1, max_failures=most)
    assert (journal.failed, len(journal.done)) == (failed, failed)
    assert (batches.given_up is None) == (most is None)


@pytest.mark.parametrize("cut", [1, 20, 60])
async def test_half_a_line_of_a_killed_one_is_cut_off_and_its_task_runs_again(cut: int, batches: Batches) -> None:
    await batches.run()
    whole = batches.path.read_bytes()
    batches.path.write_bytes(whole[:-cut])
    batches.performed.clear()
    await batches.run()
    assert len(batches.performed) == 1
    assert len(batches.path.read_text().splitlines()) == 20


async def test_failures_stand_apart_and_are_tried_again(batches: Batches) -> None:
    async def fail_odd(task: BatchTask) -> Outcome:
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


async def test_a_task_that_is_another_by_now_is_not_taken_for_done(batches: Batches) -> None:
    with BatchJournal(batches.path) as journal:
        other = BatchTask(id="3", prompt="something else")
        await journal.store({"id": "3", "digest": other.digest("x")}, failed=False)
    with pytest.raises(UsageError, match=says("runs.batch.journal.BatchJournal.remaining_tasks", id=3, line=5)):
        await batches.run()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        BatchJournal(tmp_path / "r.jsonl"),
        pytest.raises(UsageError, match=says("runs.batch.journal.BatchJournal.__enter__.2")),
        BatchJournal(tmp_path / "r.jsonl"),
    ):
        pass


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"note": "mine"}\n')
    with (
        pytest.raises(UsageError, match=says("runs.batch.journal.BatchJournal._remember", number=1)),
        BatchJournal(tmp_path / "notes.jsonl"),
    ):
        pass
    assert (tmp_path / "notes.jsonl").read_text() == '{"note": "mine"}\n'
