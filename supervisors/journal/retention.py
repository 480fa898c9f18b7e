"""Removes runs that are over: the oldest beyond a number, and all beyond an age. Runs that are not over stay.

A process does that for its own database and for those of processes that have died; it blocks, and runs in a thread. A
run goes with one small transaction; its rows and blobs go after it, a thousand at a time, so that nobody who writes
waits long. Their room is given back to the disk, and a database without runs is removed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from ...protocol.kernel.errors import Damaged
from .claiming import remove_if_empty
from .reading import kept_runs, reading
from .row import State
from .sign import ENDING as SIGN
from .sign import lives
from .store import BESIDE, ENDING, databases, path_of, remove

AT_ONCE = 1_000

_ROWS = "delete from rows where n in (select n from rows where run not in (select id from runs) limit ?)"
_BLOBS = """
delete from blobs where id in (
    select id from blobs where not exists (select 1 from rows where rows.blob = blobs.id) limit ?
)
"""


def prune(directory: Path, own: str, *, keep: int, days: float) -> int:
    """Remove runs that are over; how many.

    Args:
        own: the sign of this process.
        keep: how many stay, the newest; 0 for all.
        days: how long they stay; 0 for ever.
    """
    over = sorted((kept for kept in kept_runs(directory) if kept.state is State.OVER), key=lambda kept: -kept.began)
    oldest = time.time() - days * 86_400 if days > 0 else 0.0
    gone = [kept for place, kept in enumerate(over) if (keep and place >= keep) or (kept.ended or 0.0) < oldest]
    removed = 0
    for sign in databases(directory):
        if sign == own or not lives(directory, sign):
            runs = [kept.run for kept in gone if kept.sign == sign]
            with contextlib.suppress(sqlite3.Error, Damaged, FileNotFoundError):  # busy, or not ours to mend
                _clear(directory, sign, runs, ours=sign == own)
                removed += len(runs)
    _sweep(directory)
    return removed


def _clear(directory: Path, sign: str, runs: list[str], *, ours: bool) -> None:
    with reading(directory, sign) as db:
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
        if not ours:
            remove_if_empty(directory, sign, db)


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
