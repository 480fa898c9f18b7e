"""The queue of a cluster, and who may write what: with a real PostgreSQL."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.messages import says
from support.waiting import PATIENCE

from callboard.protocol.kernel.errors import RunClaimed
from callboard.supervisors.cluster import queries, queue, tables, workers
from callboard.supervisors.cluster.database import connected
from callboard.supervisors.cluster.queue import Wanted
from callboard.supervisors.cluster.store import ASKED, CLOSED, EVENT, INFO, ClusterStore
from callboard.supervisors.cluster.workers import Worker
from callboard.supervisors.journal.row import RunRecord, RunRows

if TYPE_CHECKING:
    from psycopg import Connection

    Db = Connection[Any]

LEASE = PATIENCE
"""Seconds: no lease expires unless a test ends it."""


def lives(db: Db, sign: str, *has: str) -> None:
    workers.register(db, Worker(sign=sign, name=sign, has=has, room=4, version="1"), LEASE)


def dies(db: Db, sign: str) -> None:
    db.execute("update callboard.workers set lease = now() - interval '1 second' where sign = %s", (sign,))


def swept(db: Db) -> queue.SweptRuns:
    lives(db, "sweeper")
    return queue.sweep(db, "sweeper", 3, LEASE)


def put(db: Db, run: str, **more: Any) -> None:
    assert queue.submit(db, Wanted(run=run, request=b"{}", info=b"{}", **more))


def taken(db: Db, sign: str, *has: str, most: int = 1) -> list[queue.Taken]:
    found, damaged = queue.take(db, sign, sign, has, most)
    assert not damaged
    return found


def begun(store: ClusterStore, each: queue.Taken) -> RunRecord:
    store.adopt(each.run, each.key, each.life, each.began)
    record = RunRecord(each.run, b"about it")
    if each.past.rows:
        raise AssertionError("it was begun before")
    return record


def rows(*texts: str) -> RunRows:
    part = RunRows()
    part.rows = [("a", text.encode()) for text in texts]
    return part


@pytest.fixture
def store(dsn: str, db: Db) -> Any:
    made = ClusterStore(dsn, "one", "a test", LEASE)
    yield made
    made.close()


def test_a_run_is_taken_by_one_worker_once(db: Db) -> None:
    lives(db, "one")
    lives(db, "two")
    put(db, "run-1")
    assert [each.run for each in taken(db, "one")] == ["run-1"]
    assert taken(db, "one") == taken(db, "two") == []


def test_many_workers_take_each_run_once(dsn: str, db: Db) -> None:
    for number in range(100):
        put(db, f"run-{number}")
    got: list[str] = []

    def work(sign: str) -> None:
        with connected(dsn, sign, LEASE) as mine:
            lives(mine, sign)
            while found := taken(mine, sign, most=3):
                got.extend(each.run for each in found)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(got) == len(set(got)) == 100


def test_labels_priority_and_the_last_owner_decide_who_takes_what(db: Db) -> None:
    lives(db, "one")
    lives(db, "gpu", "gpu", "big")
    put(db, "run-1", needs=("gpu",))
    put(db, "run-2", priority=5)
    put(db, "run-3", priority=1)
    assert [each.run for each in taken(db, "one", most=9)] == ["run-3", "run-2"]
    assert [each.run for each in taken(db, "gpu", "gpu", "big", most=9)] == ["run-1"]
    queue.give_back(db, "one", ["run-3"], prefer="one")
    assert taken(db, "gpu", "gpu") == []
    assert [each.run for each in taken(db, "one")] == ["run-3"]
    queue.give_back(db, "one", ["run-3"], prefer="one")
    db.execute("update callboard.runs set queued = now() - interval '3 seconds'")  # it has not come back
    assert [each.run for each in taken(db, "gpu")] == ["run-3"]


def test_runs_that_may_have_ended_their_workers_are_taken_one_at_a_time(db: Db) -> None:
    for number in range(4):
        put(db, f"run-{number}")
    for sign in ("one", "two"):
        lives(db, sign)
        assert len(taken(db, sign, most=3)) == 3
        dies(db, sign)
        swept(db)
    lives(db, "three")
    found, _ = queue.take(db, "three", "three", (), 9)
    assert {each.run: each.suspect for each in found} == {"run-0": True, "run-3": False}
    assert queue.take(db, "three", "three", (), 9, suspects=0) == ([], {})
    dies(db, "three")
    assert swept(db).parked == ["run-0"]
    lives(db, "four")
    assert {each.run for each in taken(db, "four", most=9)} == {"run-1", "run-3"}
    db.execute("update callboard.runs set rows = rows + 1, owner = null where run = 'run-1'")
    found, _ = queue.take(db, "four", "four", (), 9)
    assert {each.run for each in found} == {"run-1", "run-2"}  # the one has got on


def test_a_worker_that_drains_takes_nothing(db: Db) -> None:
    lives(db, "one")
    put(db, "run-1")
    workers.drain(db, "one")
    assert taken(db, "one") == []


def test_rows_events_and_how_it_stands_are_written_together(db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    put(db, "run-1")
    (each,) = taken(db, "one")
    record, part = begun(store, each), rows("first", "second", "x" * 20_000)
    part.about = b"about"
    part.beside = [
        (EVENT, "1", b'{"seq":1}'),
        (EVENT, "2", b'{"seq":2}'),
        (INFO, "", b'{"status":"running"}'),
        (ASKED, "q-1-1", b"which?"),
    ]
    store.write({record: part}, full=True)
    assert record.refused is None
    assert (record.rows, record.key) == (3, each.key)
    assert queries.events_after(db, "run-1", 0) == [b'{"seq":1}', b'{"seq":2}']
    assert queries.events_after(db, "run-1", 2) == []
    assert [asked.id for asked in queries.open_questions(db)] == ["q-1-1"]
    (now,) = queries.run_states_of(db, ["run-1"])
    assert (now.info, now.worker, now.life) == (b'{"status":"running"}', "one", 1)

    last = rows("third")
    last.over, last.beside = True, [(CLOSED, "q-1-1", b"me"), (INFO, "", b'{"status":"done"}')]
    store.write({record: last}, full=True)
    (now,) = queries.run_states_of(db, ["run-1"])
    assert (now.info, now.worker, now.state) == (b'{"status":"done"}', None, 1)
    assert queries.open_questions(db) == []


def test_who_takes_a_run_over_gets_all_its_rows_and_the_one_before_writes_no_more(db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    lives(db, "two")
    put(db, "run-1")
    put(db, "run-2")
    first, second = taken(db, "one", most=2)
    record, other = begun(store, first), begun(store, second)
    store.write({record: rows("a", "b"), other: rows("c")}, full=True)
    dies(db, "one")
    assert swept(db).back == ["run-1", "run-2"]
    (again, *_) = taken(db, "two")
    assert [row.data for row in again.past.rows] == [b"a", b"b"]
    assert (again.life, again.past.kept.life) == (2, 1)
    assert again.past.kept.about == b"about it"

    late = rows("late")
    late.beside = [(EVENT, "9", b'{"seq":9}'), (INFO, "", b"late"), (ASKED, "q-1-1", b"?")]
    store.write({record: late, other: rows("late")}, full=True)
    assert isinstance(record.refused, RunClaimed)
    assert isinstance(other.refused, RunClaimed)  # nobody has it yet, but it is not ours
    counted = db.execute("select (select count(*) from callboard.rows), (select count(*) from callboard.events)")
    assert counted.fetchone() == (2, 0)
    assert queries.open_questions(db) == []
    assert queries.run_states_of(db, ["run-1"])[0].info == b"{}"
    assert queries.figures(db).fenced == 2


def test_who_asks_about_a_run_that_it_has_ended_was_not_fenced(db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    put(db, "run-1")
    record, last = begun(store, taken(db, "one")[0]), rows("the end")
    last.over = True
    store.write({record: last}, full=True)
    store.write({record: RunRows()}, full=True)  # an actor of it that is about to end as well
    assert isinstance(record.refused, RunClaimed)
    assert queries.figures(db).fenced == 0


def test_a_dead_worker_that_was_cut_off_in_the_midst_of_writing_keeps_no_run_from_the_others(dsn: str, db: Db) -> None:
    lives(db, "one")
    put(db, "run-1")
    taken(db, "one")
    its = connected(dsn, "the host one", LEASE)
    its.execute("set idle_in_transaction_session_timeout = 0")  # which does not end one in the midst of a pipeline
    its.execute("begin")
    its.execute("update callboard.runs set rows = 7")
    dies(db, "one")
    while not (lost := swept(db)).back:  # its backend takes a moment to end
        time.sleep(0.05)
    assert lost.back == ["run-1"]
    assert db.execute("select rows from callboard.runs").fetchone() == (0,)
    its.close()


def test_a_worker_that_was_late_writes_on_if_nobody_has_taken_its_runs(db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    put(db, "run-1")
    record = begun(store, taken(db, "one")[0])
    dies(db, "one")
    held = workers.renew(db, "one", LEASE, look=False)
    assert held is not None
    assert (held.late, held.runs) == (True, {"run-1": 0})
    store.write({record: rows("a")}, full=True)
    assert record.refused is None


def test_a_commit_whose_answer_was_lost_is_looked_up(db: Db, store: ClusterStore, monkeypatch: Any) -> None:
    lives(db, "one")
    put(db, "run-1")
    record, part = begun(store, taken(db, "one")[0]), rows("a", "b")
    store.write({record: part}, full=True)
    store._in_doubt = True  # the journal was told that this was not written
    record.rows, record.crc = 0, RunRecord("run-1").crc
    part.rows = [("a", b"a"), ("a", b"b"), ("a", b"c")]
    store.write({record: part}, full=True)
    assert record.refused is None
    dies(db, "one")
    swept(db)
    lives(db, "two")
    assert [row.data for row in taken(db, "two")[0].past.rows] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("in_doubt", [False, True])
def test_of_a_run_whose_last_rows_the_database_has_lost_nothing_is_written_and_the_others_go_on(
    db: Db, store: ClusterStore, in_doubt: bool
) -> None:
    lives(db, "one")
    put(db, "run-1")
    put(db, "run-2")
    record, other = (begun(store, each) for each in taken(db, "one", most=2))
    store.write({record: rows("a"), other: rows("a")}, full=True)
    (kept,) = db.execute("select rows, crc from callboard.runs where run = 'run-1'")
    store.write({record: rows("b", "c")}, full=False)
    db.execute("update callboard.runs set rows = %s, crc = %s where run = 'run-1'", kept)  # as a crash would
    db.execute("delete from callboard.rows where seq > 1")
    store._in_doubt = in_doubt
    store.write({record: rows("d"), other: rows("b")}, full=True)
    assert isinstance(record.refused, RunClaimed)
    assert other.refused is None
    queue.give_back(db, "one", ["run-1"])
    lives(db, "two")
    assert [row.data for row in taken(db, "two")[0].past.rows] == [b"a"]


def test_a_commit_that_comes_late_is_not_written_twice(dsn: str, db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    put(db, "run-1")
    record = begun(store, taken(db, "one")[0])
    store.write({record: rows("a")}, full=True)
    late = ClusterStore(dsn, "one", "the connection before", LEASE)  # of which nothing was heard any more
    same = RunRecord("run-1", b"")
    same.key, same.life, same.rows, same.crc = record.key, record.life, record.rows, record.crc
    late.write({same: rows("b", "c")}, full=True)  # after it was looked what is there
    store.write({record: rows("b", "c")}, full=True)
    assert isinstance(record.refused, RunClaimed)
    assert db.execute("select sum(count) from callboard.rows").fetchone() == (3,)
    late.close()


def test_a_run_that_ends_one_worker_after_another_is_parked_until_a_person_wants_it(db: Db) -> None:
    put(db, "run-1")
    for number in range(3):
        lives(db, f"w{number}")
        assert taken(db, f"w{number}")
        dies(db, f"w{number}")
        lost = swept(db)
    assert lost.parked == ["run-1"]
    lives(db, "next")
    assert taken(db, "next") == []
    assert queue.unpark(db, "run-1") == "done"
    assert taken(db, "next")
    assert queue.unpark(db, "run-1") == "under way"
    assert queue.unpark(db, "run-9") == "missing"


def test_the_first_answer_counts_once_whoever_plays_the_run(db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    put(db, "run-1")
    record, part = begun(store, taken(db, "one")[0]), rows("a")
    part.beside = [(ASKED, "q-1-1", b"?")]
    store.write({record: part}, full=True)
    dies(db, "one")
    swept(db)
    assert queries.answer(db, "q-1-1", b"yes") == "taken"
    assert queries.answer(db, "q-1-1", b"no") == "late"
    assert queries.answer(db, "q-9-1", b"no") == "closed"
    lives(db, "two")
    (again,) = taken(db, "two")
    assert [letter.data for letter in again.past.letters] == [b"yes"]
    assert queries.answers_for(db, "two") == [("q-1-1", b"yes")]  # one that came after the take might be earlier, too


def test_a_question_that_no_row_knows_is_closed_when_another_worker_takes_its_run(db: Db, store: ClusterStore) -> None:
    lives(db, "one")
    put(db, "run-1")
    record, part = begun(store, taken(db, "one")[0]), rows("a")
    part.beside = [(ASKED, "q-1-1", b"?"), (ASKED, "qone-1", b"may it?")]
    store.write({record: part}, full=True)
    assert [each.id for each in queries.open_questions(db)] == ["q-1-1", "qone-1"]
    dies(db, "one")
    swept(db)
    lives(db, "two")
    taken(db, "two")
    assert [each.id for each in queries.open_questions(db)] == ["q-1-1"]
    assert queries.answer(db, "qone-1", b"yes") == "closed"


def test_a_run_that_nobody_has_is_cancelled_at_once_and_one_of_a_worker_by_it(db: Db) -> None:
    lives(db, "one")
    put(db, "run-1")
    put(db, "run-2")
    assert [each.run for each in taken(db, "one")] == ["run-1"]
    assert queue.cancel(db, "run-1", "me", b"gone")
    assert queue.cancel(db, "run-2", "me", b"gone")
    held = workers.renew(db, "one", LEASE, look=True)
    assert held is not None
    assert held.cancelled == {"run-1": "me"}
    assert queries.run_states_of(db, ["run-2"])[0].info == b"gone"
    assert not queue.cancel(db, "run-2", "me", b"gone")


def test_who_ends_in_order_hands_its_runs_back(db: Db) -> None:
    lives(db, "one")
    lives(db, "two")
    put(db, "run-1")
    taken(db, "one")
    workers.leave(db, "one", "two")
    assert [worker.name for worker in workers.workers(db)] == ["two"]
    assert [each.run for each in taken(db, "two")] == ["run-1"]


def test_of_those_who_make_the_tables_at_the_same_time_one_does(dsn: str) -> None:
    steps: list[int] = []

    def make() -> None:
        with connected(dsn, "x", LEASE) as mine:
            steps.append(tables.migrate(mine))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(steps) == [0, 0, 0, tables.VERSION]


def test_tables_that_need_a_newer_callboard_are_refused_and_newer_ones_that_do_not_are_used(db: Db) -> None:
    db.execute("update callboard.about set value = %s where key = 'schema'", (str(tables.VERSION + 1),))
    assert tables.migrate(db) == 0
    db.execute("update callboard.about set value = %s where key = 'oldest'", (str(tables.VERSION + 1),))
    with pytest.raises(tables.WrongTables, match=says("supervisors.cluster.tables.check")):
        tables.migrate(db)


def test_who_sweeps_takes_nothing_from_himself_and_nothing_once_he_is_dead_himself(db: Db) -> None:
    lives(db, "one")
    lives(db, "two")
    put(db, "run-1")
    put(db, "run-2")
    taken(db, "one")
    taken(db, "two")
    dies(db, "one")
    assert queue.sweep(db, "one", 3, LEASE).back == []
    dies(db, "two")
    assert queue.sweep(db, "two", 3, LEASE).back == []
    lives(db, "two")
    assert queue.sweep(db, "two", 3, LEASE).back == ["run-1"]
