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
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import pairwise

from .....protocol.changes import ChangedFile, How, Restored
from ....io.secret_redaction import hidden, holds, names_in
from .diff import unified
from .file_state import place_of, present
from .record import PathChange, PathState, printable_path, same
from .store import ChangeStore, store_of
from .undo import UndoStep, steps_of, undo_changes

__all__ = ["changes_of", "mark", "restore", "store_of"]

MOST_OF_ALL = 256 * 1024
"""Maximum characters of all diffs together."""

NOT_HIDDEN = (
    "it has held a secret of the vault, which is not open in this process, so a diff might show it; "
    "where a passphrase opens the vault, `vault: {passphrase_file: FILE}` has it hidden instead"
)
NOT_KNOWN = (
    "it has held %s, which is not known in this process (the vault is not open, or the environment is another one), "
    "so a diff might show it; where a passphrase opens the vault, `vault: {passphrase_file: FILE}` has it hidden"
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
            shown.diff, shown.note = "", "there is too much to show all of it"
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
        shown.note = "the permissions deny showing what is in it"
        return shown
    old = b"" if before is None else store.content(before.sha)
    if old is None:
        shown.note = f"its earlier content is not stored: {first.lost or 'it was removed to make room'}"
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
        return None, "it was removed since by another program"
    if content is None:
        return None, "it was changed since by another program"
    return content, "it was changed since by another program, and that is in the diff as well"


def _mixed(steps: list[UndoStep]) -> str:
    """Return a note if others changed the file between these changes, since the diff then includes their changes."""
    for earlier, later in pairwise(steps):
        if not later.chosen or not same(earlier.change.after, later.change.before):
            return "it was changed in between by others, and that is in the diff as well"
    return ""


def _how(before: PathState | None, after: PathState | None) -> How:
    if before is None:
        return "created"
    return "removed" if after is None else "changed"
