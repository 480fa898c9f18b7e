"""Writes the results of a batch's tasks: a JSON line for each done task, and a second file for the failed.

The next call resumes from the first. A line is appended whole and is on the disk before its task counts as done; half
a line is the remains of a crash, and is cut off. So a batch that was interrupted or killed resumes when it is called
again: done tasks stay done, failed ones run once more, and the file of failures begins anew.

A thread writes and waits for the disk; lines that come meanwhile are written together the next time.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import trio

from ....protocol.errors import CallboardError, UsageError
from ...io.whole_file import sync
from .tasks import Task


class ResultsLost(CallboardError):
    """A result can't be written down any more: the disk is full, or has gone."""

    code = "results_lost"


_Line = tuple[bool, bytes]
"""Whether it tells of a failure, and the line."""


class Journal:
    """See the module; to be entered.

    Attributes:
        done, failed: how many tasks, those of earlier calls included.

    Raises:
        UsageError: the file can't be written, is of another kind, or another batch has it.
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
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remember()
            sync(self.path.parent)  # a name that a crash takes away takes the lines with it
        except BlockingIOError:
            self._close()
            raise UsageError(f"another batch is writing to {self.path}") from None
        except BaseException:  # whatever it was, the file does not stay open and locked
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def left(self, tasks: Sequence[Task], target: str) -> list[Task]:
        """The tasks that are not done.

        Raises:
            UsageError: the result that is there is of another task, or of another target.
        """
        found: list[Task] = []
        for task in tasks:
            digest = self.done.get(task.id)
            if digest is None:
                found.append(task)
            elif digest != task.digest(target):
                raise UsageError(
                    f"{self.path} has a result of task '{task.id}', but the task (line {task.line}) or the target is "
                    "not the same any more; take that line out, or write elsewhere: --results FILE"
                )
        return found

    def begin(self) -> None:
        """The failures of before are tried again, so they are none any more.

        Raises:
            UsageError: their file can't be removed.
        """
        try:
            self.failures.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{self.failures} can't be removed: {error.strerror or error}") from error

    async def keep(self, line: dict[str, Any], *, failed: bool) -> None:
        """Write the result of a task; when this returns the disk has it.

        Raises:
            ResultsLost: this line, or an earlier one, could not be written.
            trio.Cancelled: it may not be written yet; `flush` does it.
        """
        self._waiting.append((failed, (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace")))
        await self.flush()
        if failed:
            self.failed += 1
        else:
            self.done[line["id"]] = line["digest"]

    @property
    def behind(self) -> bool:
        """Whether lines wait to be written, and can be."""
        return bool(self._waiting) and self._broken is None

    async def flush(self) -> None:
        """Have all on the disk that was handed over. Raises like `keep`."""
        async with self._turn:
            if self.behind:  # else another call has written our lines
                lines = tuple(self._waiting)
                try:
                    await trio.to_thread.run_sync(self._write, lines)
                except OSError as error:
                    self._broken = error
                del self._waiting[: len(lines)]
        if self._broken is not None:
            why = self._broken.strerror or str(self._broken)
            raise ResultsLost(
                f"results can't be written any more to {self.path}: {why}; mend that, and the same command goes on"
            )

    def _write(self, lines: Sequence[_Line]) -> None:
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
                        f"{self.path}, line {number}: this is no result of a batch; write elsewhere: --results FILE"
                    ) from None
                good += len(line)
        if good < os.fstat(self._file).st_size:
            os.ftruncate(self._file, good)

    def _close(self) -> None:
        os.close(self._file)


def _append(file: int, data: bytes) -> None:
    """Write it whole, and wait until the disk has it."""
    if not data:
        return
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.fsync(file)
