"""Files of agents in the database: kept once, for a while, and for as long as a run needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.supervisors.cluster import queries, queue
from callboard.supervisors.cluster.queue import Wanted

if TYPE_CHECKING:
    from psycopg import Connection

    Db = Connection[Any]


def age(db: Db, minutes: int) -> None:
    db.execute("update callboard.blobs set used = used - make_interval(mins => %s)", (minutes,))


def test_what_is_used_again_is_kept_and_what_no_run_needs_goes_after_an_hour(db: Db) -> None:
    for name in (b"one", b"two"):
        queries.put_blob(db, name, name * 3)
    age(db, 45)
    queries.put_blob(db, b"two", b"two" * 3)
    age(db, 29)
    queries.put_blob(db, b"two", b"two" * 3)  # fresh enough: nothing is written
    age(db, 29)
    queries.prune(db, keep=0, days=0)
    assert queries.blob(db, b"one") is None
    assert queries.blob(db, b"two") == b"twotwotwo"
    assert queue.submit(db, Wanted(run="run-1", request=b"{}", info=b"{}", bundle=b"two"))
    age(db, 600)
    queries.prune(db, keep=0, days=0)
    assert queries.blob(db, b"two") == b"twotwotwo"
