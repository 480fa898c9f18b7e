"""Takes back what runs have changed in files: reads the records, asks `plan` path by path, and carries it out.

First goes what was made, the deepest first, a directory only if nothing else is in it; then comes what was removed or
changed, the directories before what is in them. Each file is looked at again under the lock of its directory, and is
replaced as a whole. A directory's own mode is set last, since it may forbid what is still to be put into it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection

import msgspec

from .....protocol.changes import Back, FileBack, FileLeft, Restored
from .....protocol.errors import ToolFailed
from ..builtin.allowed_paths import AllowedPath
from ..builtin.writing import locked, replace
from .plan import BY_OTHERS, Step, goal_of
from .present import place_of, present, seen
from .record import Change, State, decoded, same, told
from .store import Store

LOOK_BACK = 2.0
"""Seconds by which the clock of a file system may be behind ours."""


class _Task(msgspec.Struct, frozen=True):
    """A path, what it holds, what it shall hold, and whether the mode counts as well."""

    place: AllowedPath
    now: State | None
    then: State | None
    anew: bool

    @property
    def done(self) -> bool:
        """Whether nothing is to be done."""
        modes = self.now.mode == self.then.mode if self.now and self.then and self.now.kind == "file" else True
        return same(self.now, self.then) and (modes or not self.anew)

    @property
    def path(self) -> str:
        return told(self.place.path)


def steps_of(store: Store, runs: Collection[str], since: int) -> dict[str, list[Step]]:
    """The changes of each path that these runs have changed after `since`, with those of other runs, in order."""
    chosen = [change for run in runs for change in store.changes(run) if change.at > since]
    if not chosen:
        return {}
    paths: dict[str, list[Step]] = {str(change.whole): [] for change in chosen}
    first = min(change.at for change in chosen)
    others = {run for run in store.runs(since=first / 1e9 - LOOK_BACK) if run not in runs}
    for run in (*runs, *others):
        for change in store.changes(run):
            if (steps := paths.get(str(change.whole))) is not None:
                steps.append(Step(change, run, run in runs and change.at > since))
    for steps in paths.values():
        steps.sort(key=lambda step: step.change.at)
    return paths


def take_back(store: Store, runs: Collection[str], since: int) -> Restored:
    """See `of_runs.restore`."""
    report = Restored(restored=[], left=[])
    tasks = []
    for steps in steps_of(store, runs, since).values():
        change = next(step.change for step in steps if step.chosen)
        try:
            task = _task(change, steps, report)
        except OSError as error:
            report.left.append(FileLeft(path=told(change.whole), why=_words(error)))
            continue
        if not task.done:
            tasks.append(task)
    _Carrier(store, report).carry_out(tasks)
    report.restored.sort(key=lambda each: each.path)
    report.left.sort(key=lambda each: each.path)
    return report


def _task(change: Change, steps: list[Step], report: Restored) -> _Task:
    place = place_of(change)
    now, _ = present(place)
    goal = goal_of(steps, now)
    if goal.left:
        report.left.append(FileLeft(path=told(place.path), why=goal.left))
    return _Task(place, now, goal.state, goal.anew)


class _Carrier:
    """Carries out what was decided, and reports it."""

    def __init__(self, store: Store, report: Restored) -> None:
        self._store = store
        self._report = report
        self._modes: list[_Task] = []

    def carry_out(self, tasks: list[_Task]) -> None:
        tasks.sort(key=lambda task: len(task.place.path.parts))
        for task in reversed(tasks):
            if task.then is None:
                self._attempt(task, self._remove)
        for task in tasks:
            if task.then is not None:
                self._attempt(task, self._put)
        for task in reversed(self._modes):
            self._attempt(task, self._set_mode)

    def _attempt(self, task: _Task, work: Callable[[_Task], None]) -> None:
        try:
            work(task)
        except ToolFailed as failed:
            why = _words(failed.__cause__) if isinstance(failed.__cause__, OSError) else str(failed)
            self._report.left.append(FileLeft(path=task.path, why=why))
        except OSError as error:
            self._report.left.append(FileLeft(path=task.path, why=_words(error)))

    def _remove(self, task: _Task) -> None:
        with task.place.above() as above, locked(above):
            self._check(task, above)
            self._clear(task, above)
        self._report.restored.append(FileBack(path=task.path, done="removed"))

    def _put(self, task: _Task) -> None:
        then = task.then
        assert then is not None
        content = self._store.content(then.sha) if then.kind == "file" else b""
        if content is None:
            raise OSError("what it was before was removed from the store to make room")
        with task.place.above(make=True) as above, locked(above):
            self._check(task, above)
            if task.now is not None and (task.now.kind, then.kind) != ("file", "file"):
                self._clear(task, above)
            match then.kind:
                case "file":
                    self._write(task, then, above, content)
                case "link":
                    os.symlink(decoded(then.target), task.place.name, dir_fd=above)
                case _:
                    os.mkdir(task.place.name, 0o700, dir_fd=above)
                    self._modes.append(task)
        done: Back = "content" if task.now is not None else "returned"
        self._report.restored.append(FileBack(path=task.path, done=done))

    def _write(self, task: _Task, then: State, above: int, content: bytes) -> None:
        old = None
        if task.now is not None and task.now.kind == "file":
            old = os.stat(task.place.name, dir_fd=above, follow_symlinks=False)
        replace(task.place, above, old, content, mode=then.mode if old is None or task.anew else None)

    def _set_mode(self, task: _Task) -> None:
        assert task.then is not None
        with task.place.opened() as descriptor:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, task.then.mode)

    def _check(self, task: _Task, above: int) -> None:
        now, _ = seen(above, task.place.name)
        if not same(now, task.now):
            raise OSError(BY_OTHERS)

    def _clear(self, task: _Task, above: int) -> None:
        if task.now is not None and task.now.kind == "directory":
            os.rmdir(task.place.name, dir_fd=above)
        else:
            os.unlink(task.place.name, dir_fd=above)


def _words(error: OSError) -> str:
    if error.errno == errno.ENOTEMPTY:
        return "other files are in it now"
    return error.strerror or str(error)
