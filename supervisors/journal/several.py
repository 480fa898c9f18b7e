"""Several rows by one statement.

`executemany` takes a step of SQLite per row, and lets go of the interpreter's lock for each: where the event loop is at
work, that costs more than the row. So rows are written in groups of `SIZES`, each with a statement that SQLite has
prepared before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

SIZES = (64, 16, 4, 1)
"""Rows of one statement."""

_INTO_ROWS = "insert into rows(run, seq, count, actor, data, blob, crc) values {}"
_INTO_RUNS = "insert into runs(id, run, state, owner, origin, life, rows, crc, began, ended, about, sum) values {}"
_UPDATE = (
    "update runs set state=v.column1, rows=v.column2, crc=v.column3, ended=v.column4, about=v.column5, sum=v.column6"
    " from (values {}) as v where runs.id=v.column7"
)


def insert_rows(db: sqlite3.Connection, values: Sequence[Sequence[Any]]) -> None:
    """Blocks of rows."""
    _do(db, _INTO_ROWS, values)


def insert_runs(db: sqlite3.Connection, values: Sequence[Sequence[Any]]) -> Sequence[int] | None:
    """Runs, in a transaction; their numbers, or None: a run of one of these ids is there, and nothing is written."""
    if not values:
        return ()
    (last,) = db.execute("select coalesce(max(seq), 0) from sqlite_sequence where name='runs'").fetchone()
    keys = range(last + 1, last + 1 + len(values))
    db.execute("savepoint several")
    try:
        _do(db, _INTO_RUNS, [(key, *each) for key, each in zip(keys, values, strict=True)])
    except sqlite3.IntegrityError:
        db.execute("rollback to several")
        return None
    finally:
        db.execute("release several")
    return keys


def update_runs(db: sqlite3.Connection, values: Sequence[Sequence[Any]]) -> None:
    """What has changed of runs, the number of each last."""
    _do(db, _UPDATE, values)


def _do(db: sqlite3.Connection, form: str, values: Sequence[Sequence[Any]]) -> None:
    done = 0
    for size in SIZES:
        while len(values) - done >= size:
            group = values[done : done + size]
            db.execute(_statement(form, size, len(group[0])), tuple(chain.from_iterable(group)))
            done += size


@cache
def _statement(form: str, rows: int, columns: int) -> str:
    return form.format(", ".join(["(" + ", ".join("?" * columns) + ")"] * rows))
