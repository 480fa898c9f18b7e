"""Daily limits and the book in the tables of a cluster: what is written again counts once, what is late not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.supervisors.cluster import spending
from callboard.supervisors.cluster.spending import Figures, Spend

if TYPE_CHECKING:
    from psycopg import Connection

    Db = Connection[Any]

DAY, BEFORE = "2024-10-04", "2024-10-03"


def batch(process: str, number: int, **more: Any) -> Spend:
    every = {"day": DAY, "since": DAY, "yesterday": BEFORE, "new_day": False, "keep_days": 60}
    of_none: dict[str, Any] = {"held": [], "ended": [], "spent": [], "keys": ["alice"]}
    return Spend(process=process, number=number, **{**every, **of_none, **more})


def spent(number: int, tokens: int) -> tuple[int, str, str, int, float]:
    return number, DAY, "alice", tokens, tokens / 4


def test_what_a_process_holds_and_has_spent_is_told_to_others_and_its_spending_to_itself(db: Db) -> None:
    own = spending.spend(db, batch("one", 1, held=[(1, "alice", 100, 1.0), (1, "", 100, 1.0)]))
    assert own == {}
    assert spending.spend(db, batch("two", 1)) == {"alice": Figures(0, 0.0, 100, 1.0)}
    own = spending.spend(db, batch("one", 2, ended=[1], spent=[spent(2, 60)]))
    assert own == {"alice": Figures(60, 15.0, 0, 0.0)}
    assert spending.spend(db, batch("two", 2)) == own
    assert spending.spend(db, batch("two", 3, keys=[], all=True)) == own


def test_a_batch_whose_answer_was_lost_counts_once_whether_it_was_written_or_not(db: Db) -> None:
    for process, written in (("one", True), ("two", False)):
        if written:
            spending.spend(db, batch(process, 1, held=[(1, "alice", 100, 1.0)], spent=[spent(1, 8)]))
        again = batch(process, 2, held=[(2, "alice", 50, 0.5)], ended=[1], spent=[spent(1, 8), spent(2, 4)])
        found = [spending.spend(db, again), spending.spend(db, again)]  # the second as after a lost connection
        assert found[0] == found[1]
    assert spending.spend(db, batch("three", 1)) == {"alice": Figures(24, 6.0, 100, 1.0)}


def test_a_batch_that_comes_after_a_later_one_changes_nothing(db: Db) -> None:
    spending.spend(db, batch("one", 2, ended=[1], spent=[spent(1, 8), spent(2, 4)]))
    spending.spend(db, batch("one", 1, held=[(1, "alice", 100, 1.0)], spent=[spent(1, 8)]))
    assert spending.spend(db, batch("two", 1)) == {"alice": Figures(12, 3.0, 0, 0.0)}


def test_on_a_new_day_own_rows_move_and_those_of_the_dead_are_spent_on_theirs(db: Db) -> None:
    spending.spend(db, batch("dead", 1, held=[(1, "alice", 70, 1.0)]))
    spending.spend(db, batch("one", 1, held=[(1, "alice", 30, 1.0)]))
    tomorrow = {"day": "2024-10-05", "since": "2024-10-05", "yesterday": DAY, "new_day": True}
    assert spending.spend(db, batch("one", 2, **tomorrow)) == {}
    assert db.execute("select process, day from callboard.held order by day").fetchall() == [
        ("dead", DAY),
        ("one", "2024-10-05"),
    ]
    later = {"day": "2024-10-06", "since": "2024-10-06", "yesterday": "2024-10-05", "new_day": True}
    spending.spend(db, batch("one", 3, **later))
    assert db.execute("select day, key, tokens from callboard.ledger").fetchall() == [(DAY, "alice", 70)]
    spending.spend(db, batch("two", 1, keep_days=1, spent=[(1, "2024-10-06", "alice", 1, 0.0)]))
    spending.spend(db, batch("two", 2, **{**later, "keep_days": 1}))
    assert db.execute("select day from callboard.ledger").fetchall() == [("2024-10-06",)]


def test_sums_of_the_book_are_added_once_and_read_by_any_columns(db: Db) -> None:
    first = (1, DAY, "alice", "clerk", "a:b", 1, 10, 2, 5, 0.5, 0)
    second = (2, DAY, "bob", "clerk", "a:b", 2, 20, 4, 10, 0.0, 2)
    spending.add_usage(db, "one", 1, [first])
    for _ in range(2):
        spending.add_usage(db, "one", 2, [first, second])
    spending.add_usage(db, "two", 1, [first])
    assert spending.usage(db, "", ["key"], None) == [("alice", 2, 20, 4, 10, 1.0, 0), ("bob", 2, 20, 4, 10, 0.0, 2)]
    assert spending.usage(db, DAY, ["day", "model"], "bob") == [(DAY, "a:b", 2, 20, 4, 10, 0.0, 2)]
    assert spending.usage(db, "2024-10-05", ["key"], None) == []


def test_processes_that_were_silent_for_long_are_forgotten(db: Db) -> None:
    for process in ("one", "two"):
        spending.add_usage(db, process, 1, [])
    db.execute("update callboard.spenders set seen = now() - interval '61 days' where process = 'one'")
    spending.forget(db)
    assert db.execute("select process from callboard.spenders").fetchall() == [("two",)]
