"""Limits that the processes of a cluster share: daily limits with their usage records, and rate limits of providers.

Ledger and usage records are in the database. Each of the two has its own connection, opened on first use. A daily limit
applies to all workers and gateways together, and each of them knows the total.

Rate limits of providers apply to all processes that use the same API key for the same model. A wait that a provider
demands (`Retry-After`) is published to the other processes at once. Configured limits are divided by the number of live
workers, which a process with such limits reads every second. A gateway gets the same share as a worker, for turns of
sessions. Nothing is stored: a process that misses a notification learns from the next refusal.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec
import trio

from ....protocol.errors import CallboardError
from ....supervisors.cluster import queue, spending, tables, workers
from ....supervisors.cluster.database import Database
from ...work.spending.accounts import Amount
from ...work.spending.book import Away, SpendingBook, SpendingSums
from ...work.spending.ledger import KEPT_DAYS, Others, with_sums, without

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from ...runs.root import Root
    from ...work.models.limiter import Gates
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
            raise Away(str(error), f"the database can't be used now ({error.code})") from error


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
        """Store a batch and return the amounts of other processes, by account. Blocking.

        Raises:
            Away: the database cannot be used now.
        """
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


LOOK_EVERY = 1.0
"""Seconds between two reads of the number of live workers."""

log = logging.getLogger("callboard.cluster")


class ProviderLimits:
    """Exchange of provider limits.

    Args:
        gates: limiters of this process.
        seat: membership of this process.
    """

    def __init__(self, gates: Gates, seat: ClusterMembership) -> None:
        self._gates = gates
        self._seat = seat
        self._until: dict[str, float] = {}  # waits to be published
        self._news = trio.Event()
        gates.share(self._is_refused)

    def hear(self, about: list[str]) -> None:
        """Apply a wait published by any process: the name of its limiter, and seconds. Ignores other forms."""
        if len(about) == 2:
            name, seconds = about
            self._gates.extend_cooldown(name, float(seconds))

    async def work(self) -> None:
        """Publish new waits, and divide configured limits, until cancelled."""
        while True:
            with trio.move_on_after(LOOK_EVERY):
                await self._news.wait()
            self._news = trio.Event()
            told, self._until = self._until, {}
            try:
                for name, until in told.items():
                    await self._seat.read(partial(_publish, name=name, seconds=until - trio.current_time()))
                if self._gates.limited:
                    self._gates.divide(max(1, await self._seat.read(workers.alive)))
            except CallboardError as error:  # harmless: the others learn from their own refusals
                log.debug("rate limits of providers can't be shared with other processes: %s", error)

    def _is_refused(self, name: str, seconds: float) -> None:
        self._until[name] = trio.current_time() + seconds
        self._news.set()


def _publish(db: psycopg.Connection[Any], name: str, seconds: float) -> None:
    queue.notify(db, "l", name, f"{seconds:.3f}")
