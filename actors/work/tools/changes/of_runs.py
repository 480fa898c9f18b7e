"""What runs have changed in files, and taking it back. The way in for chats, the control channel and the command line.

    store = store_of(os.environ)
    changed = await trio.to_thread.run_sync(lambda: changes_of(store, [run]))          # a run is a turn of a chat
    report = await trio.to_thread.run_sync(lambda: restore(store, [run]))

Only what our own tools have written counts (`fs_write`, `fs_edit`, `fs_patch`, `fs_mkdir`, `fs_rm`), of the run's agent
and of all that work below it. What commands and tool files do with files is not known here.

`runs` are ids: one for a turn, several for a conversation, in any order. `since` leaves out what came before a moment
(`mark()`), for a run that goes on. Don't restore while one of the runs is under way: what it then writes is neither
taken back nor in its way, but the report would be about a moment that is over.

Both block, and belong into a thread of trio's. Neither raises for what is wrong with a file: their results say it.
Contents may hold secrets that the vault has handed out: `changes_of` hides them, and what the permissions of the call
denied to show is not shown. A process that does not know these secrets (a passphrase or a command opens the vault, or a
variable of the run's environment is not set here) can't hide them; the run has noted where which of them stand, and no
diff of such a file is shown then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import pairwise

from .....protocol.changes import ChangedFile, How, Restored
from ....io.handed_out import hidden, holds, names_in
from .plan import Step
from .present import place_of, present
from .record import Change, State, same, told
from .store import Store, store_of
from .taking_back import steps_of, take_back
from .unified import unified

__all__ = ["changes_of", "mark", "restore", "store_of"]

MOST_OF_ALL = 256 * 1024
"""Characters of all diffs together."""

NOT_HIDDEN = (
    "it has held a secret of the vault, which is not open in this process, so a diff might show it; "
    "where a passphrase opens the vault, `vault: {passphrase_file: FILE}` has it hidden instead"
)
NOT_KNOWN = (
    "it has held %s, which is not known in this process (the vault is not open, or the environment is another one), "
    "so a diff might show it; where a passphrase opens the vault, `vault: {passphrase_file: FILE}` has it hidden"
)


def mark() -> int:
    """This moment, for `since`."""
    return time.time_ns()


def restore(store: Store, runs: Collection[str], *, since: int = 0) -> Restored:
    """Put files back as they were before these runs, where no other program has changed them since."""
    return take_back(store, frozenset(runs), since)


def changes_of(
    store: Store,
    runs: Collection[str],
    *,
    since: int = 0,
    actor: str | None = None,
    most: int = MOST_OF_ALL,
    hide: Callable[[Collection[str]], object] | None = None,
    clean: Callable[[str], str] = hidden,
) -> list[ChangedFile]:
    """What these runs have changed, each file once: from before its first change to after its last one. What is by now
    as it was before, because it was taken back for instance, is left out.

    Args:
        store: see `store_of`.
        runs: ids.
        since: leave out what came before this moment.
        actor: only what actors with this path have changed, and those below: an agent, or its calls of one tool, which
            have the same path one after another.
        most: characters of all diffs together; a diff beyond that is left out, and its file's note says so.
        hide: is told before anything is shown which secrets stand in the files, by their names, to have them known.
        clean: takes secrets out of a text.
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
        if same(first.before, last.after) or (same(first.before, now) and actor is None):
            continue
        shown = _shown(store, steps[chosen[0] : chosen[-1] + 1], now, content, clean)
        if len(shown.diff) > most:
            shown.diff, shown.note = "", "there is too much to show all of it"
        most -= len(shown.diff)
        found.append(shown)
    return sorted(found, key=lambda each: each.path)


def _of(actor: str | None, path: str) -> bool:
    return actor is None or path == actor or path.startswith(f"{actor}/")


def _now(change: Change) -> tuple[State | None, bytes | None]:
    """What stands there; something unknown, if that can't be looked at."""
    try:
        return present(place_of(change))
    except OSError:
        return State(kind="other"), None


def _shown(
    store: Store, steps: list[Step], now: State | None, content: bytes | None, clean: Callable[[str], str]
) -> ChangedFile:
    first, last = steps[0].change, steps[-1].change
    before, after = first.before, last.after
    kind = (before or after or State()).kind
    shown = ChangedFile(path=told(first.whole), how=_how(before, after), kind=kind)
    if kind != "file" or (after is not None and after.kind != "file"):
        shown.note = first.lost if kind == "directory" else ""
        return shown
    if any(step.change.unshown for step in steps):
        shown.note = "the permissions deny showing what is in it"
        return shown
    old = b"" if before is None else store.content(before.sha)
    if old is None:
        shown.note = f"what it was before is not kept: {first.lost or 'it was removed to make room'}"
        return shown
    new, note = _after(store, after, now, content)
    if new is None:
        shown.note = note
        return shown
    if why := _unknown(steps, old, new):
        shown.note = why
        return shown
    name = told("/".join(first.parts))
    diff = unified(None if before is None else old, None if after is None else new, name, clean=clean)
    shown.added, shown.removed, shown.diff = diff.added, diff.removed, clean(diff.text)
    shown.note = note or diff.note or _mixed(steps)
    return shown


def _unknown(steps: list[Step], old: bytes, new: bytes) -> str:
    """Why a diff might show a secret, since this process does not know it; "" if it knows all of them.

    What a name stands for here may be another value than it was then, so it has to be found where it stood.
    """
    marked = [step.change for step in steps if step.change.secret]
    left = {name for change in marked for name in change.secrets} - {*names_in(old), *names_in(new)}
    named = sorted(f"{{{{{name}}}}}" for name in left if name)
    if named:
        return NOT_KNOWN % " and ".join(named)
    unnamed = left or any(not change.secrets for change in marked)
    return NOT_HIDDEN if unnamed and not (holds(old) or holds(new)) else ""


def _after(store: Store, after: State | None, now: State | None, content: bytes | None) -> tuple[bytes | None, str]:
    """What the last change has left, and what has to be said about it."""
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


def _mixed(steps: list[Step]) -> str:
    """Whether others have changed the file in between, so that the diff has that too."""
    for earlier, later in pairwise(steps):
        if not later.chosen or not same(earlier.change.after, later.change.before):
            return "it was changed in between by others, and that is in the diff as well"
    return ""


def _how(before: State | None, after: State | None) -> How:
    if before is None:
        return "created"
    return "removed" if after is None else "changed"
