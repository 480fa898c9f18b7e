"""Recovery of `fs_*` calls that were in flight when their process was killed.

The record of changes is written before a file is replaced, and the replacement is atomic. The files therefore prove the
outcome. If all files are as the call was to leave them, it was done. If all are as it found them, it was not. A call
that was done must not be repeated: an edit whose new text contains the old one would be applied twice. If another
program has changed the files meanwhile, or the record is missing, the outcome is unknown, and the call is treated like
any other (`work/journal/unknown_outcome`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from ...journal.actor_journal import scope_of
from ...journal.unknown_outcome import key_of
from ..builtin.allowed_paths import Setting
from .keeping import run_of
from .present import place_of, present
from .record import PathChange, PathState, same
from .store import ChangeStore, store_of

if TYPE_CHECKING:
    from .....supervisors import Actor


async def was_done(me: Actor, setting: Setting) -> bool | None:
    """Return whether an earlier incarnation of the run completed the call that `me` repeats; None if unknown."""
    scope = scope_of(me)
    if scope is None or not setting.keeps:
        return None
    find = partial(_was_done, store_of(setting.environ), run_of(me.path), key_of(scope))
    return await trio.to_thread.run_sync(find)


def _was_done(store: ChangeStore, run: str, call: str) -> bool | None:
    changes = [change for change in store.changes(run) if run and change.call == call]
    # Missing directories are created before the record is written, so only the files in them prove anything.
    changes = [change for change in changes if not _is_new_directory(change)] or changes
    if not changes:
        return None
    if _all(changes, lambda change: change.after):
        return True
    if _all(changes, lambda change: change.before):
        return False
    return None


def _all(changes: list[PathChange], wanted: Callable[[PathChange], PathState | None]) -> bool:
    try:
        return all(same(present(place_of(change))[0], wanted(change)) for change in changes)
    except OSError:
        return False


def _is_new_directory(change: PathChange) -> bool:
    return change.before is None and change.after is not None and change.after.kind == "directory"
