"""Undo of file changes. `goal_of` decides for one path; it is pure, so that its law can be tested.

The decision walks the changes of a path from the newest to the oldest:

- If the path has the state that a change left, it may return to the state before that change, and the walk continues
  from there.
- If it has the file or link that was there before the change, that change never happened (the process was killed) or
  was already undone. The walk continues.
- If it has neither, another program changed it in between. The walk ends, and the current state remains. The same holds
  where nothing or a directory exists now as before the change: another program may have removed the file or created the
  directory, and no content proves the opposite.

The walk also ends at a change of a run that is not undone, and at a change whose earlier content is not stored.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Sequence

import msgspec

from .....protocol.changes import Back, FileBack, FileLeft, Restored
from .....protocol.errors import ToolFailed
from ..builtin.allowed_paths import AllowedPath
from ..builtin.writing import locked, replace
from .file_state import place_of, present, seen
from .record import PathChange, PathState, decoded, printable_path, same
from .store import ChangeStore

BY_OTHERS = "it was changed since by another program"
IN_BETWEEN = "it was changed in between by another program; only what came after that was taken back"
LATER = "it was changed later by {run}"


class UndoStep(msgspec.Struct, frozen=True):
    """A change of a path, with its run; `chosen` if it is to be undone."""

    change: PathChange
    run: str
    chosen: bool


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Target state of a path.

    Attributes:
        state: the state to restore; None to remove the path.
        left: why not every change is undone; empty if all are.
        anew: the file was recreated in between, so its current mode is not the original one. Otherwise the current mode
            is kept, which is the original mode or one that a user has set.
    """

    state: PathState | None
    left: str = ""
    anew: bool = False


def goal_of(steps: Sequence[UndoStep], now: PathState | None) -> Goal:
    """Return the target state of a path.

    Args:
        steps: all its changes, the oldest first, including changes by runs that are not undone.
        now: its current state.
    """
    first = next((at for at, step in enumerate(steps) if step.chosen), len(steps))
    state, anew = now, False
    for step in reversed(steps[first:]):
        change = step.change
        if same(change.after, state):
            if not step.chosen:
                return Goal(state=state, left=LATER.format(run=step.run), anew=anew)
            if change.lost:
                return Goal(state=state, left=f"what it was before is not kept: {change.lost}", anew=anew)
            state = change.before
            anew = anew or state is None or state.kind != "file"
        elif not (same(change.before, state) and state is not None and state.kind in ("file", "link")):
            if same(state, steps[first].change.before):  # Everything is already as it was before the first change.
                return Goal(state=state, anew=anew)
            return Goal(state=state, left=BY_OTHERS if same(state, now) else IN_BETWEEN, anew=anew)
    return Goal(state=state, anew=anew)


CLOCK_SLACK = 2.0
"""Seconds by which a file system's clock may be behind the local clock."""


class _Task(msgspec.Struct, frozen=True):
    """A path with its current and target state; `anew` means that the mode must be restored too."""

    place: AllowedPath
    now: PathState | None
    then: PathState | None
    anew: bool

    @property
    def done(self) -> bool:
        """True if nothing has to change."""
        modes = self.now.mode == self.then.mode if self.now and self.then and self.now.kind == "file" else True
        return same(self.now, self.then) and (modes or not self.anew)

    @property
    def path(self) -> str:
        return printable_path(self.place.path)


def steps_of(store: ChangeStore, runs: Collection[str], since: int) -> dict[str, list[UndoStep]]:
    """Return all changes of each path that these runs changed after `since`, in order.

    Changes of the same path by other runs are included.
    """
    chosen = [change for run in runs for change in store.changes(run) if change.at > since]
    if not chosen:
        return {}
    paths: dict[str, list[UndoStep]] = {str(change.whole): [] for change in chosen}
    first = min(change.at for change in chosen)
    others = {run for run in store.runs(since=first / 1e9 - CLOCK_SLACK) if run not in runs}
    for run in (*runs, *others):
        for change in store.changes(run):
            if (steps := paths.get(str(change.whole))) is not None:
                steps.append(UndoStep(change, run, run in runs and change.at > since))
    for steps in paths.values():
        steps.sort(key=lambda step: step.change.at)
    return paths


def undo_changes(store: ChangeStore, runs: Collection[str], since: int) -> Restored:
    """Undo the changes; see `of_runs.restore`."""
    report = Restored(restored=[], left=[])
    tasks = []
    for steps in steps_of(store, runs, since).values():
        change = next(step.change for step in steps if step.chosen)
        try:
            task = _task(change, steps, report)
        except OSError as error:
            report.left.append(FileLeft(path=printable_path(change.whole), why=_words(error)))
            continue
        if not task.done:
            tasks.append(task)
    _Undoer(store, report).execute(tasks)
    report.restored.sort(key=lambda each: each.path)
    report.left.sort(key=lambda each: each.path)
    return report


def _task(change: PathChange, steps: list[UndoStep], report: Restored) -> _Task:
    place = place_of(change)
    now, _ = present(place)
    goal = goal_of(steps, now)
    if goal.left:
        report.left.append(FileLeft(path=printable_path(place.path), why=goal.left))
    return _Task(place, now, goal.state, goal.anew)


class _Undoer:
    """Executor of undo tasks, with a report."""

    def __init__(self, store: ChangeStore, report: Restored) -> None:
        self._store = store
        self._report = report
        self._modes: list[_Task] = []

    def execute(self, tasks: list[_Task]) -> None:
        # Shortest paths first; removal goes in reverse order, so that a directory is empty when it is removed.
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
        # Read the content before anything is removed: it may be missing from the store.
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
                    # Writable until its contents are restored; `_set_mode` sets the recorded mode last.
                    os.mkdir(task.place.name, 0o700, dir_fd=above)
                    self._modes.append(task)
        done: Back = "content" if task.now is not None else "returned"
        self._report.restored.append(FileBack(path=task.path, done=done))

    def _write(self, task: _Task, then: PathState, above: int, content: bytes) -> None:
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
        # Another program may have changed the file since the decision.
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
