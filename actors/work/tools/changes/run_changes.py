"""Changes of runs in files, and undo. Entry point for chats, the control channel and the command line.

    store = store_of(os.environ)
    changed = await trio.to_thread.run_sync(lambda: changes_of(store, [run]))          # a run is a turn of a chat
    report = await trio.to_thread.run_sync(lambda: restore(store, [run]))

Only writes of the built-in tools count (`fs_write`, `fs_edit`, `fs_patch`, `fs_mkdir`, `fs_rm`), by the run's agent and
all agents below it. Changes by commands and tool files are not recorded.

`runs` are ids, in any order: one for a turn, several for a conversation. `since` excludes changes before a moment
(`mark()`), for a run that continues. Do not restore while one of the runs is active: its later writes are neither
undone nor disturbed, but the report would describe a past moment.

Both functions block and belong into a thread of trio. Neither raises for problems with a file: the results report them.

Contents may include secrets that the vault gave out. `changes_of` redacts them, and omits files that the call's
permissions deny to read. A process without these secrets cannot redact them: a passphrase or a command opens the vault,
or a variable of the run's environment is not set. The run has recorded which secrets are in which file, and such a file
gets no diff.

**Undo.** `goal_of` decides for one path; it is pure, so that its law can be tested. The decision walks the changes of a
path from the newest to the oldest:

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
import time
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import msgspec

from .....protocol.control.resources import Back, ChangedFile, FileBack, FileLeft, How, Restored
from .....protocol.errors import ToolFailed
from ....io.secret_redaction import hidden, holds, names_in
from ..builtin.allowed_paths import AllowedPath
from ..builtin.writing import locked, replace
from .diff import unified
from .store import ChangeStore, PathChange, PathState, decoded, place_of, present, printable_path, same, seen, store_of

__all__ = ["changes_of", "mark", "restore", "store_of"]

MOST_OF_ALL = 256 * 1024
"""Maximum characters of all diffs together."""

NOT_HIDDEN = (
    "the file has contained a secret of the vault, and the vault is not open, so a diff might show the "
    "secret; if a passphrase opens the vault, set `vault: {passphrase_file: FILE}` to see the diff with the "
    "secret redacted"
)
NOT_KNOWN = (
    "the file has contained %s, whose value is not known in this process (the vault is not open, or the "
    "environment differs), so a diff might show it; if a passphrase opens the vault, set `vault: "
    "{passphrase_file: FILE}` to see the diff with the secret redacted"
)


def mark() -> int:
    """Return the current time for `since`, in nanoseconds since 1970."""
    return time.time_ns()


def restore(store: ChangeStore, runs: Collection[str], *, since: int = 0) -> Restored:
    """Restore files to their state before these runs, where no other program has changed them since."""
    return undo_changes(store, frozenset(runs), since)


def changes_of(
    store: ChangeStore,
    runs: Collection[str],
    *,
    since: int = 0,
    actor: str | None = None,
    most: int = MOST_OF_ALL,
    hide: Callable[[Collection[str]], object] | None = None,
    clean: Callable[[str], str] = hidden,
) -> list[ChangedFile]:
    """Return the files that these runs changed, from before the first change to after the last one.

    A file that is now as it was before, for example after an undo, is left out.

    Args:
        store: see `store_of`.
        runs: ids.
        since: ignore changes before this moment.
        actor: only changes by actors with this path and below: an agent, or its calls of one tool, whose actors have
            the same path one after another.
        most: maximum characters of all diffs together. A diff beyond that is left out, and its file's note says so.
        hide: called first with the names of all secrets in the files, so that the caller can load their values.
        clean: removes secrets from a text.
    """
    found = []
    changes = steps_of(store, frozenset(runs), since)
    if hide is not None:
        hide({name for steps in changes.values() for step in steps for name in step.change.secrets if name})
    for steps in changes.values():
        chosen = [at for at, step in enumerate(steps) if step.chosen and _of(actor, step.change.actor)]
        if not chosen:
            continue
        first, last = steps[chosen[0]].change, steps[chosen[-1]].change
        now, content = _now(first)
        # Already undone, by a later call or by `restore`. With `actor`, the current state may be the work of another
        # agent.
        if same(first.before, last.after) or (same(first.before, now) and actor is None):
            continue
        # Steps of others between the first and the last chosen one are included: the diff covers them as well.
        shown = _changed_file(store, steps[chosen[0] : chosen[-1] + 1], now, content, clean)
        if len(shown.diff) > most:
            shown.diff, shown.note = "", "the diff is too long to be shown"
        most -= len(shown.diff)
        found.append(shown)
    return sorted(found, key=lambda each: each.path)


def _of(actor: str | None, path: str) -> bool:
    return actor is None or path == actor or path.startswith(f"{actor}/")


def _now(change: PathChange) -> tuple[PathState | None, bytes | None]:
    """Return the current state and content; an unknown state if they cannot be read."""
    try:
        return present(place_of(change))
    except OSError:
        return PathState(kind="other"), None


def _changed_file(
    store: ChangeStore, steps: list[UndoStep], now: PathState | None, content: bytes | None, clean: Callable[[str], str]
) -> ChangedFile:
    first, last = steps[0].change, steps[-1].change
    before, after = first.before, last.after
    kind = (before or after or PathState()).kind
    shown = ChangedFile(path=printable_path(first.whole), how=_how(before, after), kind=kind)
    if kind != "file" or (after is not None and after.kind != "file"):
        shown.note = first.lost if kind == "directory" else ""
        return shown
    if any(step.change.unshown for step in steps):
        shown.note = "`permissions` denies showing the content of the file"
        return shown
    old = b"" if before is None else store.content(before.sha)
    if old is None:
        shown.note = f"its earlier content is not stored: {first.lost or 'removed from the store to make room'}"
        return shown
    new, note = _after(store, after, now, content)
    if new is None:
        shown.note = note
        return shown
    # A diff is displayed only if this process can redact every secret that the record names.
    if why := _unknown(steps, old, new):
        shown.note = why
        return shown
    name = printable_path("/".join(first.parts))
    diff = unified(None if before is None else old, None if after is None else new, name, clean=clean)
    shown.added, shown.removed, shown.diff = diff.added, diff.removed, clean(diff.text)
    shown.note = note or diff.note or _mixed(steps)
    return shown


def _unknown(steps: list[UndoStep], old: bytes, new: bytes) -> str:
    """Return why a diff might display a secret that this process does not know; "" if it knows all of them.

    A name may have another value here than it had then, so the value has to be found in the contents.
    """
    marked = [step.change for step in steps if step.change.secret]
    left = {name for change in marked for name in change.secrets} - {*names_in(old), *names_in(new)}
    named = sorted(f"{{{{{name}}}}}" for name in left if name)
    if named:
        return NOT_KNOWN % " and ".join(named)
    unnamed = left or any(not change.secrets for change in marked)
    return NOT_HIDDEN if unnamed and not (holds(old) or holds(new)) else ""


def _after(
    store: ChangeStore, after: PathState | None, now: PathState | None, content: bytes | None
) -> tuple[bytes | None, str]:
    """Return the content after the last change, and a note about it."""
    if after is None:
        return b"", ""
    if same(now, after):
        return content, ""
    kept = store.content(after.sha)
    if kept is not None:
        return kept, ""
    if now is None:
        return None, "another program has removed it since"
    if content is None:
        return None, "another program has changed it since"
    return content, "another program has changed it since, and the diff includes that change"


def _mixed(steps: list[UndoStep]) -> str:
    """Return a note if others changed the file between these changes, since the diff then includes their changes."""
    for earlier, later in pairwise(steps):
        if not later.chosen or not same(earlier.change.after, later.change.before):
            return "another program or run changed it in between, and the diff includes that change"
    return ""


def _how(before: PathState | None, after: PathState | None) -> How:
    if before is None:
        return "created"
    return "removed" if after is None else "changed"


BY_OTHERS = "another program has changed it since"


IN_BETWEEN = "another program changed it in between; only the later changes were undone"


LATER = "{run} has changed it since"


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
                return Goal(state=state, left=f"its earlier content is not stored: {change.lost}", anew=anew)
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
    """Undo the changes; see `restore`."""
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
            raise OSError("its earlier content was removed from the store to make room")
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
        return "the directory contains other files now"
    return error.strerror or str(error)
