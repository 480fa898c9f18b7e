"""Spending of a cluster in its database: the ledger of daily limits, and the usage records of all processes.

Each of the two has its own connection, opened on first use. A limit applies to all workers and gateways together, and
each of them knows the total.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec

from ....protocol.errors import CallboardError
from ....supervisors.cluster import spending, tables
from ....supervisors.cluster.database import Database
from ...work.spending.accounts import Amount
from ...work.spending.book import Away, SpendingBook, SpendingSums
from ...work.spending.ledger import KEPT_DAYS, Others, with_sums, without

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from ...runs.root import Root
    from ...work.spending.book import Sums, Unwritten
    from ...work.spending.ledger import Batch, Today
    from .membership import ClusterMembership

NAME = "the database of the cluster"

T = TypeVar("T")


async def keep_spending(root: Root, seat: ClusterMembership) -> ClusterLedger:
    """Store the usage records of this process in the cluster from now on; returns the ledger for its daily limits.

    As the first use of the database in a process, this also migrates the tables.

    Raises:
        ClusterAway, NoCluster: the database cannot be used.
        WrongTables: the tables have an incompatible version.
    """
    await seat.do(tables.migrate)
    root.book = SpendingBook(root.kernel, ClusterBook(seat), now=time.time)
    return ClusterLedger(seat)


class _Connected:
    """Connection to the cluster's database for worker threads, one at a time.

    Attributes: see `LedgerStore`.
    """

    is_remote = True
    name = place = NAME

    def __init__(self, seat: ClusterMembership) -> None:
        self._database = Database(seat.options.dsn, seat.shown, seat.options.lease)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _do(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        try:
            return self._database.blocking(work)
        except CallboardError as error:
            raise Away(str(error), f"it can't be used now ({error.code})") from error


@final
class ClusterLedger(_Connected):
    """Ledger of daily limits in the database; implements `work.spending.ledger.LedgerStore`."""

    def __init__(self, seat: ClusterMembership) -> None:
        super().__init__(seat)
        self._process = seat.sign
        self._day = ""
        self._own: dict[str, Amount] = {}
        self._counted = 0  # number of the last batch included in `_own`

    def written(self, now: Today, batch: Batch) -> dict[str, Others]:
        """Store a batch and return the amounts of other processes, by account."""
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
        # The thread of a transaction that was abandoned as silent may get here after its retry. The batch number keeps
        # a batch that counts once in the database from counting twice here.
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
    """Usage records in the database; implements `work.spending.book.BookStore`."""

    def __init__(self, seat: ClusterMembership) -> None:
        super().__init__(seat)
        self._process = f"{seat.sign} book"

    def add(self, number: int, sums: Unwritten) -> None:
        rows = [
            (first, *map(_storable, entry), *msgspec.structs.astuple(spent)) for (first, entry), spent in sums.items()
        ]
        self._do(lambda db: spending.add_usage(db, self._process, number, rows))

    def read(self, since: str, by: Sequence[str], key: str | None) -> Sums:
        found = self._do(lambda db: spending.usage(db, since, by, key))
        return {row[: len(by)]: SpendingSums(*row[len(by) :]) for row in found}


def _storable(text: str) -> str:
    """Return a name that PostgreSQL accepts. A refused name would block the records of the whole batch."""
    return text.encode(errors="replace").decode().replace("\0", "?")
