"""What errors of the database mean, and connections that end while nobody uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from callboard.supervisors.cluster.database import ClusterAway, Database, NoCluster, connected, passes

if TYPE_CHECKING:
    from psycopg import Connection


@pytest.mark.parametrize(
    "state",
    [
        "08006",  # the connection is gone
        "25006",  # a standby, or a primary that was made one
        "25P03",  # we were stopped in the midst of a transaction
        "40001",  # a conflict
        "40P01",  # a deadlock
        "53100",  # its disk is full
        "53300",  # it has too many connections
        "55P03",  # a lock that was not to be had in time
        "57014",  # the statement was cancelled
        "57P01",  # it ends
        "57P02",  # one of its processes has crashed
        "57P03",  # it starts, or recovers
        "58030",  # its disk fails
    ],
)
def test_after_what_passes_by_itself_another_try_is_made(state: str) -> None:
    errors = pytest.importorskip("psycopg.errors")
    assert passes(errors.lookup(state)())


@pytest.mark.parametrize("state", ["42501", "42P01", "23505", "28P01", "3D000"])
def test_after_what_stays_wrong_none_is_made(state: str) -> None:
    errors = pytest.importorskip("psycopg.errors")
    assert not passes(errors.lookup(state)())


async def test_a_connection_that_was_ended_while_nobody_used_it_is_made_again(dsn: str) -> None:
    database = Database(dsn, "a test", 10.0)
    pid = await database.do(_pid)
    with connected(dsn, "another", 10.0) as other:
        other.execute("select pg_terminate_backend(%s, 10000)", (pid,))
    assert await database.do(_pid) != pid
    database.close()


async def test_a_statement_that_fails_by_itself_is_not_tried_again(dsn: str) -> None:
    database, tries = Database(dsn, "a test", 10.0), list[str]()

    def fails(db: object, state: str) -> None:
        tries.append(state)
        db.execute(f"do $$ begin raise exception 'no' using errcode = '{state}'; end $$")  # type: ignore[attr-defined]

    await database.do(_pid)
    with pytest.raises(ClusterAway):
        await database.do(lambda db: fails(db, "53100"))
    await database.do(_pid)
    with pytest.raises(NoCluster):
        await database.do(lambda db: fails(db, "42501"))
    assert tries == ["53100", "42501"]
    database.close()


def _pid(db: Connection[Any]) -> int:
    return int(db.execute("select pg_backend_pid()").fetchall()[0][0])
