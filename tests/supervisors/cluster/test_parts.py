"""Parts of runs in the queue: whose they are, and what becomes of them with the run that waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.waiting import PATIENCE

from callboard.supervisors.cluster import queries, queue, workers
from callboard.supervisors.cluster.queue import Parent, Wanted
from callboard.supervisors.cluster.workers import Worker

if TYPE_CHECKING:
    from psycopg import Connection

    Db = Connection[Any]

LEASE = PATIENCE
"""Seconds: no lease expires unless a test ends it."""


def lives(db: Db, sign: str, *has: str) -> None:
    workers.register(db, Worker(sign=sign, name=sign, has=has, room=4, version="1"), LEASE)


def submitted(db: Db, run: str, parent: Parent | None = None, needs: tuple[str, ...] = ()) -> bool:
    return queue.submit(db, Wanted(run=run, request=b"{}", info=b"{}", parent=parent, needs=needs))


def taken(db: Db, sign: str, *has: str) -> list[str]:
    found, _ = queue.take(db, sign, sign, has, 9)
    return [each.run for each in found]


def family(db: Db) -> Parent:
    """`top` with the part `mid`, which has the part `low`; `one` plays them all."""
    lives(db, "one")
    assert submitted(db, "run-top")
    assert taken(db, "one") == ["run-top"]
    top = Parent(run="run-top", sign="one", life=1)
    assert submitted(db, "run-mid", top)
    assert taken(db, "one") == ["run-mid"]
    assert submitted(db, "run-low", Parent(run="run-mid", sign="one", life=1))
    assert taken(db, "one") == ["run-low"]
    return top


def cancelled(db: Db) -> set[str]:
    return {run for (run,) in db.execute("select run from callboard.runs where cancelled <> ''")}


def test_a_part_is_taken_into_the_queue_only_from_who_plays_its_run(db: Db) -> None:
    top = family(db)
    assert not submitted(db, "run-x", Parent(run="run-top", sign="two", life=1))
    assert not submitted(db, "run-x", Parent(run="run-top", sign="one", life=2))
    assert not submitted(db, "run-x", Parent(run="run-gone", sign="one", life=1))
    assert submitted(db, "run-mid", top)  # it is there: who goes on with the run finds it
    assert db.execute("select count(*) from callboard.runs").fetchone() == (3,)
    queue.cancel(db, "run-top", "somebody", b"{}")
    assert not submitted(db, "run-y", top)


def test_who_cancels_a_run_cancels_all_its_parts_be_they_queued_or_parked(db: Db) -> None:
    top = family(db)
    assert submitted(db, "run-far", top, needs=("far",))
    assert submitted(db, "run-parked", top, needs=("far",))
    db.execute("update callboard.runs set parked = true where run = 'run-parked'")
    assert queue.cancel(db, "run-top", "somebody", b"{}")
    assert cancelled(db) == {"run-top", "run-mid", "run-low", "run-far", "run-parked"}
    lives(db, "two")
    assert sorted(taken(db, "two")) == ["run-far", "run-parked"]  # without the label, since it only ends them


def test_parts_of_a_run_that_is_over_or_gone_are_cancelled_by_who_sweeps(db: Db) -> None:
    family(db)
    lives(db, "two")
    queue.sweep(db, "two", 3, LEASE)
    assert cancelled(db) == set()
    db.execute("delete from callboard.runs where run = 'run-top'")
    queue.sweep(db, "two", 3, LEASE)
    assert cancelled(db) == {"run-mid", "run-low"}


def test_a_worker_that_does_not_know_parts_takes_none(db: Db) -> None:
    top = family(db)
    assert submitted(db, "run-new", top)
    (needs,) = db.execute("select needs from callboard.runs where run = 'run-new'").fetchall()
    assert needs == ([queue.KNOWS_PARTS],)


def test_a_part_is_kept_while_its_run_goes_on_and_removed_with_it(db: Db) -> None:
    family(db)
    done = "update callboard.runs set state = 1, owner = null, ended = 1 where run = %s"
    db.execute(done, ("run-mid",))
    assert queries.prune(db, keep=0, days=1) == []
    db.execute(done, ("run-low",))
    assert queries.prune(db, keep=0, days=1) == ["run-low"]
    assert not queries.forget(db, "run-top")
    db.execute(done, ("run-top",))
    assert queries.forget(db, "run-top")
    assert db.execute("select count(*) from callboard.runs").fetchone() == (0,)


def test_what_a_part_asks_is_not_shown_to_people_as_its_own(db: Db) -> None:
    family(db)
    db.execute(
        "insert into callboard.questions(id, run, data, changed) select 'q-' || run, id, 'what?', 5 from callboard.runs"
    )
    assert [each.id for each in queries.open_questions(db)] == ["q-run-top"]
    assert [each.id for each in queries.questions_since(db, 0)] == ["q-run-top"]
    parts = queries.questions_of_parts(db, ["run-mid", "run-low"])
    assert {each.run for each in parts} == {"run-mid", "run-low"}
