"""Removes runs that are over: the oldest beyond a number or a size, and all beyond an age. Others stay, unless who
prunes knows that nobody will go on with them.

A process does that for its own database and for those of processes that have died; it blocks, and runs in a thread. A
run goes with one small transaction; its rows and blobs go after it, a thousand at a time, so that nobody who writes
waits long. Their room is given back to the disk, and a database without runs is removed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from ...protocol.kernel.errors import Damaged
from .claiming import remove_if_empty, with_copies
from .reading import as_things_are, kept_runs, own_entries, reading
from .row import OVER, Kept, State
from .sign import ENDING as SIGN
from .sign import lives
from .store import BESIDE, ENDING, SETTLED, databases, is_settled, path_of, remove, settle

AT_ONCE = 1_000

AT_A_TIME = 10
"""One in so many runs goes at a time where there is too much of them."""

_ROWS = "delete from rows where n in (select n from rows where run not in (select id from runs) limit ?)"
_BLOBS = """
delete from blobs where id in (
    select id from blobs where not exists (select 1 from rows where rows.blob = blobs.id) limit ?
)
"""


def prune(
    directory: Path,
    own: str,
    *,
    keep: int,
    days: float,
    most: int = 0,
    forsaken: Callable[[Kept], bool] = lambda _: False,
) -> int:
    """Remove runs that are over; how many.

    Args:
        own: the sign of this process.
        keep: how many stay, the newest; 0 for all.
        days: how long they stay; 0 for ever.
        most: bytes that all journals may take; 0 for any number.
        forsaken: whether a run that was interrupted goes when it is so old, since nobody will go on with it.
    """
    kept = kept_runs(directory)
    over = sorted((run for run in kept if run.state is State.OVER), key=lambda run: -run.began)
    oldest = time.time() - days * 86_400 if days > 0 else 0.0
    gone = [run for place, run in enumerate(over) if (keep and place >= keep) or (run.ended or 0.0) < oldest]
    for run in kept:
        old = run.state is State.INTERRUPTED and not run.damage and _written(directory, run.sign) < oldest
        if old and forsaken(run):
            gone.append(run)
    removed = _remove(directory, own, gone)
    left = [run for run in over if run not in gone]
    while most and left and _size(directory) > most:
        some = left[-max(1, len(left) // AT_A_TIME) :]
        del left[-len(some) :]
        removed += _remove(directory, own, some)
    _sweep(directory)
    return removed


def _remove(directory: Path, own: str, gone: list[Kept]) -> int:
    removed = 0
    doomed = {run.sign: [each.run for each in gone if each.sign == run.sign] for run in gone}
    copies = with_copies(directory)
    for sign in databases(directory):
        settled = path_of(directory, sign).with_name(sign + ENDING + SETTLED).exists()
        if (settled and sign not in doomed) or (sign != own and lives(directory, sign)):
            continue
        runs = doomed.get(sign, [])
        with contextlib.suppress(sqlite3.Error, Damaged, FileNotFoundError):  # busy, or not ours to mend
            _clear(directory, sign, runs, copies, ours=sign == own)
            removed += len(runs)
    return removed


def _written(directory: Path, sign: str) -> float:
    """When the journal of this process was written last."""
    with contextlib.suppress(OSError):
        return path_of(directory, sign).stat().st_mtime
    return time.time()


def _size(directory: Path) -> int:
    """Bytes of all journals."""
    total = 0
    for sign in databases(directory):
        path = path_of(directory, sign)
        for file in (path, *(path.with_name(path.name + end) for end in BESIDE)):
            with contextlib.suppress(OSError):
                total += file.stat().st_size
    return total


def remove_run(directory: Path, run: str) -> bool:
    """Remove a run that no process plays, with all that is kept of it; False if there is none such.

    Raises:
        Damaged, JournalUnread: the journal that has it can't be read or written.
    """
    for sign in databases(directory):
        with contextlib.suppress(FileNotFoundError), as_things_are(directory, sign) as db:
            found = [entry for entry in own_entries(directory, sign, db) if entry.run == run]
            if not found or (found[0].state != OVER and lives(directory, sign)):
                continue
            _clear_in(db, sign, [run])
            if not lives(directory, sign):
                remove_if_empty(directory, sign, db)
            return True
    return False


def _clear(directory: Path, sign: str, runs: list[str], copies: list[str], *, ours: bool) -> None:
    with reading(directory, sign) as db:
        _clear_in(db, sign, runs)
        if not ours:
            remove_if_empty(directory, sign, db, copies)
            if path_of(directory, sign).exists() and is_settled(db):
                settle(path_of(directory, sign))


def _clear_in(db: sqlite3.Connection, sign: str, runs: list[str]) -> None:
    if runs:
        db.execute("begin immediate")
        db.executemany("delete from runs where run=? and owner=?", [(run, sign) for run in runs])
        db.executemany("delete from inbox where run=?", [(run,) for run in runs])
        db.execute("commit")
    for statement in (_ROWS, _BLOBS):
        while db.execute(statement, (AT_ONCE,)).rowcount > 0:
            pass
    while db.execute("pragma freelist_count").fetchone()[0]:
        db.execute(f"pragma incremental_vacuum({AT_ONCE})").fetchall()


def _sweep(directory: Path) -> None:
    """Remove what belongs to no run: signs of the dead, and databases that were half made or half removed."""
    for sign in databases(directory):
        if not lives(directory, sign):
            with contextlib.suppress(sqlite3.Error, Damaged):
                try:
                    with reading(directory, sign):
                        pass
                except FileNotFoundError:
                    remove(path_of(directory, sign))
    with contextlib.suppress(OSError):
        for path in list(directory.iterdir()):
            for end in (SIGN, *(ENDING + beside for beside in BESIDE)):
                sign = path.name.removesuffix(end)
                if sign != path.name and not path_of(directory, sign).exists() and not lives(directory, sign):
                    path.unlink(missing_ok=True)
