"""Retention: removes ended runs, the oldest beyond a number or a total size, and all beyond an age.

Interrupted runs stay, unless the caller knows that they will never be resumed. A process prunes its own database and
the databases of dead processes. The functions block and run in threads.

A run is deleted in one small transaction, and its rows and blobs follow, 1,000 at a time, so that a writer never waits
long. The space is given back to the disk, and a database without runs is removed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from ...protocol.kernel.errors import Damaged
from .claiming import remove_if_empty, with_copies
from .liveness_lock import SUFFIX, is_alive
from .reading import own_entries, reading, reading_or_unread, stored_runs
from .row import OVER, State, StoredRunRecord
from .store import BESIDE, ENDING, SETTLED, UNNAMED, databases, is_settled, mark_settled, path_of

AT_ONCE = 1_000

AT_A_TIME = 10
"""While the total size is too large, one in `AT_A_TIME` ended runs is removed before the size is measured again."""

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
    forsaken: Callable[[StoredRunRecord], bool] = lambda _: False,
) -> int:
    """Remove ended runs and return their number.

    Args:
        own: unique name of this process.
        keep: number of the newest runs that stay; 0 for all.
        days: days for which runs stay; 0 for ever.
        most: most bytes that all journals may take; 0 for no limit.
        forsaken: returns whether an interrupted run of that age will never be resumed and is removed too.
    """
    kept = stored_runs(directory)
    over = sorted((run for run in kept if run.state is State.OVER), key=lambda run: -run.began)
    oldest = time.time() - days * 86_400 if days > 0 else 0.0
    gone = [run for rank, run in enumerate(over) if (keep and rank >= keep) or (run.ended or 0.0) < oldest]
    for run in kept:
        old = run.state is State.INTERRUPTED and not run.damage and _written(directory, run.sign) < oldest
        if old and forsaken(run):
            gone.append(run)
    removed = _remove(directory, own, gone)
    remaining = [run for run in over if run not in gone]
    while most and remaining and _size(directory) > most:
        oldest_runs = remaining[-max(1, len(remaining) // AT_A_TIME) :]
        del remaining[-len(oldest_runs) :]
        removed += _remove(directory, own, oldest_runs)
    _sweep(directory)
    return removed


def _remove(directory: Path, own: str, gone: list[StoredRunRecord]) -> int:
    removed = 0
    doomed = {run.sign: [each.run for each in gone if each.sign == run.sign] for run in gone}
    copies = with_copies(directory)
    for sign in databases(directory):
        settled = path_of(directory, sign).with_name(sign + ENDING + SETTLED).exists()
        if (settled and sign not in doomed) or (sign != own and is_alive(directory, sign)):
            continue
        runs = doomed.get(sign, [])
        # A journal that is locked or damaged is left to the next pruning.
        with contextlib.suppress(sqlite3.Error, Damaged, FileNotFoundError):
            _clear(directory, sign, runs, copies, ours=sign == own)
            removed += len(runs)
    return removed


def _written(directory: Path, sign: str) -> float:
    """Return the time of the last write to the journal of a process."""
    with contextlib.suppress(OSError):
        return path_of(directory, sign).stat().st_mtime
    # A journal without a known time must not count as old.
    return time.time()


def _size(directory: Path) -> int:
    """Return the bytes of all journals."""
    total = 0
    for sign in databases(directory):
        path = path_of(directory, sign)
        for file in (path, *(path.with_name(path.name + end) for end in BESIDE)):
            with contextlib.suppress(OSError):
                total += file.stat().st_size
    return total


def remove_run(directory: Path, run: str) -> bool:
    """Remove a run that no process executes, with all its rows. False if it does not exist or a process executes it.

    Raises:
        Damaged, JournalUnread: its journal can't be read or written.
    """
    for sign in databases(directory):
        with contextlib.suppress(FileNotFoundError), reading_or_unread(directory, sign) as db:
            found = [entry for entry in own_entries(directory, sign, db) if entry.run == run]
            if not found or (found[0].state != OVER and is_alive(directory, sign)):
                continue
            _clear_in(db, sign, [run])
            if not is_alive(directory, sign):
                remove_if_empty(directory, sign, db)
            return True
    return False


def _clear(directory: Path, sign: str, runs: list[str], copies: list[str], *, ours: bool) -> None:
    with reading(directory, sign) as db:
        _clear_in(db, sign, runs)
        if not ours:
            remove_if_empty(directory, sign, db, copies)
            if path_of(directory, sign).exists() and is_settled(db):
                mark_settled(path_of(directory, sign))


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
        # `fetchall`: the pragma frees one page per step of the statement.
        db.execute(f"pragma incremental_vacuum({AT_ONCE})").fetchall()


def _sweep(directory: Path) -> None:
    """Remove files that belong to no run: lock files of dead processes, and databases partly created or removed."""
    with contextlib.suppress(OSError):
        for path in list(directory.iterdir()):
            for end in (SUFFIX, *(ENDING + beside for beside in (*BESIDE, UNNAMED))):
                sign = path.name.removesuffix(end)
                if sign != path.name and not path_of(directory, sign).exists() and not is_alive(directory, sign):
                    path.unlink(missing_ok=True)
