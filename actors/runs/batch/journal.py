"""Results of a batch's tasks, as files, and the durable run of each task.

`BatchJournal` writes a JSON line for each done task, and a second file for failed tasks. The next call resumes from the
first file. A line is appended as a whole, and is on disk before its task counts as done. An incomplete last line is
left by a crash and is cut off. So an interrupted or killed batch is resumed by the same command: done tasks stay done,
failed tasks run once more, and the file of failures starts empty. A thread writes and waits for the disk. Lines that
arrive meanwhile are written together by the next write.

`TaskRuns` assigns each task a durable run: unfinished runs are resumed after a kill, and no task is done twice. The id
of a run is derived from the file of results, the task's id, and the task's contents. A failed task is retried by a new
run, whose id ends with the number of the attempt. A run is marked as over when its result is on disk (`first_row`). So
for a run that is not over, either there is no result, or the result is stored and only the mark is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import trio

from ....protocol.errors import CallboardError, UsageError
from ...io.atomic_write import sync
from ...io.directories import journal_dir
from ...io.tenancy import environ
from ..stored_runs import InterruptedRun, interrupted
from .tasks import BatchTask


class ResultsLost(CallboardError):
    """A result cannot be stored any more: the disk is full or missing."""

    code = "results_lost"


_Line = tuple[bool, bytes]
"""Pair of a flag, True for a failure, and the line."""


class BatchJournal:
    """File of results, locked against other batches; a context manager.

    Attributes:
        done: digests of done tasks by id, including results of earlier calls.
        failed: number of tasks that failed in this call.

    Raises:
        UsageError: the file cannot be written, is of another kind, or is locked by another batch.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = path.with_name(f"{path.name.removesuffix(path.suffix)}.failures{path.suffix or '.jsonl'}")
        self.done: dict[str, str] = {}
        self.failed = 0
        self._file = -1
        self._turn = trio.Lock()
        self._waiting: list[_Line] = []
        self._broken: OSError | None = None

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"results can't be written to {self.path}: {error.strerror or error}") from error
        try:
            # Two batches that append to one file would both run each task.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remember()
            sync(self.path.parent)  # A new file's lines are lost in a crash if its directory entry is.
        except BlockingIOError:
            self._close()
            raise UsageError(f"another batch is writing to {self.path}") from None
        except BaseException:  # Whatever was raised, the file does not stay open and locked.
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def remaining_tasks(self, tasks: Sequence[BatchTask], target: str) -> list[BatchTask]:
        """Return the tasks that are not done.

        Raises:
            UsageError: a stored result belongs to a different task with the same id, or to another target.
        """
        found: list[BatchTask] = []
        for task in tasks:
            digest = self.done.get(task.id)
            if digest is None:
                found.append(task)
            elif digest != task.digest(target):
                raise UsageError(
                    f"{self.path} has a result of task '{task.id}', but the task (line {task.line}) "
                    "or the target has changed since; remove that result, or write to another file "
                    "with --results FILE"
                )
        return found

    def begin(self) -> None:
        """Remove the file of failures: earlier failures are retried.

        Raises:
            UsageError: the file cannot be removed.
        """
        try:
            self.failures.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{self.failures} can't be removed: {error.strerror or error}") from error

    async def store(self, line: dict[str, Any], *, failed: bool) -> None:
        """Write the result of a task. When this returns, it is on disk.

        Raises:
            ResultsLost: this line, or an earlier one, could not be written.
            trio.Cancelled: it may not have been written yet; `flush` writes it.
        """
        # `replace`: a model's output may contain a lone surrogate, which UTF-8 can't encode.
        self._waiting.append((failed, (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace")))
        await self.flush()
        if failed:
            self.failed += 1
        else:
            self.done[line["id"]] = line["digest"]

    @property
    def behind(self) -> bool:
        """True if lines wait to be written, and no write has failed."""
        return bool(self._waiting) and self._broken is None

    async def flush(self) -> None:
        """Write all pending lines to disk. Raises as `store` does."""
        async with self._turn:
            if self.behind:  # Otherwise another call has written the pending lines.
                lines = tuple(self._waiting)
                try:
                    await trio.to_thread.run_sync(self._write, lines)
                except OSError as error:
                    self._broken = error
                # Lines that arrived during the write stay for the next one.
                del self._waiting[: len(lines)]
        if self._broken is not None:
            why = self._broken.strerror or str(self._broken)
            raise ResultsLost(
                f"results can no longer be written to {self.path}: {why}. Fix this, then run the same "
                "command again: it continues with the remaining tasks"
            )

    def _write(self, lines: Sequence[_Line]) -> None:
        # Not called again after a failed write: a line joined to a partial one would make the file unreadable.
        _append(self._file, b"".join(text for failed, text in lines if not failed))
        failures = b"".join(text for failed, text in lines if failed)
        if failures:
            file = os.open(self.failures, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _append(file, failures)
            finally:
                os.close(file)

    def _remember(self) -> None:
        good = 0
        with open(self._file, "rb", closefd=False) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    value = json.loads(line)
                    self.done[value["id"]] = value["digest"]
                except (ValueError, TypeError, KeyError):
                    raise UsageError(
                        f"{self.path}, line {number}: this is not the result of a batch task; write "
                        "to another file with --results FILE"
                    ) from None
                good += len(line)
        # An append to a partial line would make one unreadable line of two.
        if good < os.fstat(self._file).st_size:
            os.ftruncate(self._file, good)

    def _close(self) -> None:
        os.close(self._file)


def _append(file: int, data: bytes) -> None:
    """Write all data, and wait until it is on disk."""
    if not data:
        return
    rest = memoryview(data)
    while rest:
        # `os.write` may write only a part, for example if the disk becomes full.
        rest = rest[os.write(file, rest) :]
    os.fsync(file)


class TaskRuns:
    """Assignment of durable runs to the tasks of a batch, by ids that are derived from the tasks (see the module).

    Args:
        results: the file of results.
        target: the name under which results are stored.
    """

    def __init__(self, results: Path, target: str) -> None:
        self._results = results.absolute()
        self._target = target
        self._known: set[str] = set()
        self._interrupted: dict[str, InterruptedRun] = {}
        self._over: dict[str, Callable[[], None]] = {}

    async def find_unfinished(self, done: Iterable[BatchTask]) -> None:
        """Find unfinished runs. Remove unfinished runs of tasks that are `done`, because their result is stored."""
        await trio.to_thread.run_sync(partial(self._find_interrupted, list(done)))

    def _find_interrupted(self, done: list[BatchTask]) -> None:
        from ....supervisors.journal.reading import stored_runs
        from ....supervisors.journal.retention import remove_run

        directory = journal_dir(environ())
        # All stored runs, ended ones included: each counts as an attempt of its task.
        self._known = {stored.run for stored in stored_runs(directory)}
        self._interrupted = {run.run: run for run in interrupted(environ())}
        for task in done:
            for id in self._tries(task):
                if id in self._interrupted:
                    remove_run(directory, id)

    def _tries(self, task: BatchTask) -> list[str]:
        ids: list[str] = []
        for number in count(1):
            id = self._id(task, number)
            if id not in self._known:
                return ids
            ids.append(id)
        raise AssertionError("unreachable: it counts for ever")

    def of(self, task: BatchTask) -> tuple[str, bool]:
        """Return the id of the task's run, and True if that run was interrupted and can be resumed, else a new id."""
        tries = self._tries(task)
        last = self._interrupted.get(tries[-1]) if tries else None
        if last is not None and not last.why_not:
            return last.run, True
        return self._id(task, len(tries) + 1), False

    def forget(self, run: str) -> None:
        """Forget an unfinished run that cannot be resumed: its task is run from the start."""
        self._interrupted.pop(run, None)

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """Store the function that marks a run as over, until `mark_over` is called; see `RunCallbacks.holds`."""
        self._over[run] = over

    def mark_over(self, run: str) -> None:
        """Mark the run as over, because its result is on disk."""
        over = self._over.pop(run, None)
        if over is not None:
            over()

    def _id(self, task: BatchTask, number: int) -> str:
        said = f"{self._results}\0{task.id}\0{task.digest(self._target)}".encode("utf-8", "surrogatepass")
        return f"run-{hashlib.sha256(said).hexdigest()[:16]}" + (f"x{number}" if number > 1 else "")
