"""What is spent in a cluster is kept in its database: the ledger of daily limits, and the book, those of all processes.

Each of the two has a connection of its own, opened when it is first needed. So a limit holds for all workers and
gateways together, and each of them knows what was spent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec

from ....protocol.errors import CallboardError
from ....supervisors.cluster import spending, tables
from ....supervisors.cluster.database import Database
from ...work.spending.accounts import Amount
from ...work.spending.book import Away, Book, Spent
from ...work.spending.ledger import KEPT_DAYS, Others, with_sums, without

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from ...runs.root import Root
    from ...work.spending.book import Sums, Unwritten
    from ...work.spending.ledger import Batch
    from ...work.spending.today import Today
    from .seat import Seat

NAME = "the database of the cluster"

T = TypeVar("T")


async def keep_spending(root: Root, seat: Seat) -> ClusterLedger:
    """Have the cluster keep the book of this process from now on; the ledger is for who makes its `days`.

    It is the first that a process wants of the database, so it is this that brings the tables up to date.

    Raises:
        ClusterAway, NoCluster: the database can't be used.
        WrongTables: it is of another version.
    """
    await seat.do(tables.migrate)
    root.book = Book(root.kernel, ClusterBook(seat), now=time.time)
    return ClusterLedger(seat)


class _Connected:
    """A connection to the database of the cluster, for threads, one at a time.

    Attributes: see `LedgerStore`.
    """

    elsewhere = True
    name = place = NAME

    def __init__(self, seat: Seat) -> None:
        self._database = Database(seat.options.dsn, seat.shown, seat.options.lease)

    def close(self) -> None:
        """Let go of it."""
        self._database.close()

    def _do(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        try:
            return self._database.blocking(work)
        except CallboardError as error:
            raise Away(str(error), f"it can't be used now ({error.code})") from error


@final
class ClusterLedger(_Connected):
    """See `work.spending.ledger.LedgerStore`."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._process = seat.sign
        self._day = ""
        self._own: dict[str, Amount] = {}
        self._counted = 0  # the last number whose sums are in `_own`

    def written(self, now: Today, batch: Batch) -> dict[str, Others]:
        """See `LedgerStore`."""
        keys = {*batch.looks, *(key for _, key, _, _ in batch.held)}
        spend = spending.Spend(
            process=self._process,
            number=batch.number,
            day=now.day,
            since=now.since,
            yesterday=now.yesterday,
            new_day=now.day != self._day,
            keep_days=KEPT_DAYS,
            held=batch.held,
            ended=batch.ended,
            spent=[(*entry, amount.tokens, amount.cost) for entry, amount in batch.sums.items()],
            keys=list(keys),
            all=batch.looks_at_all,
        )
        found = self._do(lambda db: spending.spend(db, spend))
        # Of a transaction that was given up as silent its thread may come here later than who tries that again: what
        # counts in the database once must count here once.
        before = self._own if now.day == self._day else {}
        self._own = with_sums(before, now.day, batch.sums, after=self._counted)
        self._day, self._counted = now.day, batch.number
        return {key: self._others(key, found.get(key, _NOTHING)) for key in {*keys, *found}}

    def _others(self, key: str, of: spending.Figures) -> Others:
        spent = without(Amount(of.tokens, of.cost), self._own.get(key, Amount()))
        return Others(spent, Amount(of.held_tokens, of.held_cost))


_NOTHING = spending.Figures(0, 0.0, 0, 0.0)


@final
class ClusterBook(_Connected):
    """See `work.spending.book.BookStore`."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._process = f"{seat.sign} book"

    def add(self, number: int, sums: Unwritten) -> None:
        """See `BookStore`."""
        rows = [
            (first, *map(_storable, entry), *msgspec.structs.astuple(spent)) for (first, entry), spent in sums.items()
        ]
        self._do(lambda db: spending.add_usage(db, self._process, number, rows))

    def read(self, since: str, by: Sequence[str], key: str | None) -> Sums:
        """See `BookStore`."""
        found = self._do(lambda db: spending.usage(db, since, by, key))
        return {row[: len(by)]: Spent(*row[len(by) :]) for row in found}


def _storable(text: str) -> str:
    """A name as PostgreSQL takes it: one that it refuses would keep all others from being written."""
    return text.encode(errors="replace").decode().replace("\0", "?")
