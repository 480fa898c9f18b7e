"""Runs that begin with rows of another one: in the queue with all of them, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from callboard.protocol.kernel.errors import Damaged
from callboard.supervisors.cluster import forks, queries, queue, store, workers
from callboard.supervisors.cluster.queue import Wanted
from callboard.supervisors.cluster.workers import Worker
from callboard.supervisors.journal.row import LARGE, StoredRow

if TYPE_CHECKING:
    from psycopg import Connection

    Db = Connection[Any]

ROWS = [
    StoredRow(1, "", b"first"),
    StoredRow(2, "1", b"x" * (LARGE + 1)),
    StoredRow(3, "1/2", b"third"),
    StoredRow(4, "", b"fourth"),
]


def wanted(run: str, request: bytes = b"{}") -> Wanted:
    return Wanted(run=run, request=request, info=b"{}", needs=("gpu",), priority=3, subject="me", bundle=b"files")


def origin(db: Db) -> None:
    """The run `run-old`, which has not begun."""
    assert queue.submit(db, wanted("run-old"))


def counts(db: Db) -> list[tuple[int, ...]]:
    return db.execute(
        "select (select count(*) from callboard.runs), (select count(*) from callboard.rows),"
        " (select count(*) from callboard.blobs)"
    ).fetchall()


def test_it_is_taken_with_the_rows_that_it_begins_with(db: Db) -> None:
    origin(db)
    assert forks.submit(db, "run-old", wanted("run-new"), b"about", ROWS) == "put"
    workers.register(db, Worker(sign="one", name="one", has=("gpu",), room=4, version="1"), 2.0)
    taken, damaged = queue.take(db, "one", "one", ["gpu"], 9)
    assert damaged == {}
    (new,) = (each for each in taken if each.run == "run-new")
    assert (new.past.rows, new.past.kept.about, new.life, new.bundle) == (ROWS, b"about", 1, b"files")
    found = forks.origin(db, "run-new")
    assert found is not None
    assert (found.past.rows, found.needs, found.priority, found.subject) == (ROWS, ("gpu",), 3, "me")
    assert queries.rows_after(db, "run-new", 2, 9) == ROWS[2:]


def test_the_same_try_twice_counts_once_and_another_run_of_this_id_stays(db: Db) -> None:
    origin(db)
    assert [forks.submit(db, "run-old", wanted("run-new"), b"about", ROWS) for _ in range(2)] == ["put", "put"]
    assert forks.submit(db, "run-old", wanted("run-new", b"other"), b"", ROWS[:1]) == "taken"
    found = forks.origin(db, "run-new")
    assert found is not None
    assert found.past.rows == ROWS


def test_nothing_is_there_if_its_rows_can_t_be_written(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    origin(db)
    before = counts(db)
    monkeypatch.setattr(store, "_ROWS", store._ROWS.replace("callboard.rows", "callboard.nothing"))
    with pytest.raises(Exception, match="nothing"):
        forks.submit(db, "run-old", wanted("run-new"), b"about", ROWS)
    assert counts(db) == before


def test_a_run_that_was_removed_meanwhile_has_no_forks(db: Db) -> None:
    before = counts(db)
    assert forks.submit(db, "run-old", wanted("run-new"), b"about", ROWS) == "gone"
    assert counts(db) == before
    assert forks.origin(db, "run-old") is None


def test_what_is_large_stays_for_the_fork_when_its_run_is_removed(db: Db) -> None:
    origin(db)
    for old, new in (("run-old", "run-mid"), ("run-mid", "run-new")):
        assert forks.submit(db, old, wanted(new), b"", ROWS) == "put"
        db.execute("update callboard.blobs set used = used - interval '2 hours'")
    db.execute("delete from callboard.runs where run = 'run-mid'")
    queries.prune(db, keep=0, days=0)
    found = forks.origin(db, "run-new")
    assert found is not None
    assert found.past.rows == ROWS


def test_rows_that_are_not_as_they_were_written_are_refused(db: Db) -> None:
    origin(db)
    assert forks.submit(db, "run-old", wanted("run-new"), b"", ROWS) == "put"
    db.execute("update callboard.rows set actor = 'other' where seq = 1")
    with pytest.raises(Damaged):
        forks.origin(db, "run-new")
