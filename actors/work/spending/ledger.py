"""The ledger of daily limits: two tables, right after `kill -9`; in a file (`ledger_file`), or that of a cluster.

    ledger(day, key, tokens, cost)               what was spent on a day; the key "" is that of all together
    held(process, id, key, day, tokens, cost)    what requests under way may come to at most

Before a request goes out, a row of `held` for each of its keys is committed. After it, one transaction deletes the row
and adds what the request came to. A process that is killed in between leaves the row, which counts at its bound from
then on. So both tables together never say less than providers have charged.

One transaction takes all that waits for it: while it is written by a thread, the next gathers. Requests wait for
theirs; what they came to waits a moment (`GATHER`) or goes along with the next. Where its answer was lost, it is not
known whether a transaction counts. So each has a number, and what was spent goes with that of the first that was to
write it: a store that can't be sure takes each number once.

What others have spent and hold is all that the store has without what this process has put there. Each transaction
says so, of the keys that it is about. So what was there at the start, other processes, and what crashed ones have left
are one thing.

A row of `held` has the day on which it was written, or that which has begun since: each process moves its own. As that
takes a moment, rows of yesterday count in the first minute of a day, too (`GRACE`). What is left of days before that
belongs to processes that have died; it is put into the ledger of its day.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec
import trio

from .accounts import NOTHING, Amount, Hold
from .book import TROUBLE, reason_of

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref, Root
    from .today import Today

GATHER = 0.1
"""Seconds in which what requests came to gathers before it is written."""

RETRY_EVERY = 5.0
"""Seconds between two tries to write what could not be written."""

WRITE_WITHIN = 5.0
"""Seconds for one transaction."""

KEPT_DAYS = 60
"""Days that a ledger has beside the new one, the newest with rows: a clock that leaps ahead must not clear it."""

SILENT = "there is no answer"
"""Why nothing is written in a store that is elsewhere, when the time is up."""

_MOST_TOKENS, _MOST_COST = 10**15, 1e12  # of one request; sums of this many still fit into the columns

log = logging.getLogger("callboard.usage")


class Others(msgspec.Struct, frozen=True):
    """What others than this process have spent and hold of a key."""

    spent: Amount
    held: Amount


Tell = Callable[[str, Mapping[str, Others]], None]
"""Told a day, and what others have of it by key, after each transaction."""


Sums = dict[tuple[int, str, str], Amount]
"""What was spent, by the number of the transaction that was to write it first, day and key."""


class Unwritten(Exception):
    """The ledger can't be written now; the text says why."""


class LedgerStore(Protocol):
    """Where a ledger is kept. Its methods block: threads call them, one at a time.

    Attributes:
        name: for callers, who are told no paths: `its usage.db`.
        place: where it is, for the log.
        elsewhere: it may not answer for long; what is given up for that may be written all the same.
    """

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def elsewhere(self) -> bool: ...

    def written(self, now: Today, batch: Batch) -> Mapping[str, Others]:
        """One transaction.

        Returns:
            what others have of the keys that it is about.

        Raises:
            Away, OSError, sqlite3.Error: it can't be written.
        """

    def close(self) -> None:
        """Let go of what is open."""


@final
class Ledger:
    """See the module.

    Args:
        root: what writes is an actor of it, from the first request on.
        store: where it is kept.
        today: tells what time it is.
        tell: told what others have.
    """

    def __init__(self, root: Root, store: LedgerStore, *, today: Callable[[], Today], tell: Tell) -> None:
        self.store = store
        self._root = root
        self._today = today
        self._tell = tell
        self._thread = trio.CapacityLimiter(1)
        self._writer: Ref[Any] | None = None
        self._pending = Batch(1)
        self._some, self._urgent = trio.Event(), trio.Event()
        self._last_id = self._open = 0
        self._troubled = self._closing = self._closed = False

    async def commit(self, keys: Iterable[str], most: Amount) -> int:
        """Write what a request may come to, before it goes out; returns what to `end` after it.

        Raises:
            Unwritten: it could not be written.
        """
        self._last_id += 1
        id = self._last_id
        self._open += 1
        most = bounded(most)
        self._pending.held += [(id, key, most.tokens, most.cost) for key in keys]
        try:
            await self._transaction()
        except BaseException:  # cancelled, too: it may have been written all the same
            self.end(id)
            raise
        return id

    def end(self, id: int) -> None:
        """A request is over; what it came to was added just before."""
        self._open -= 1
        self._pending.ended.append(id)
        self._gather()

    def add(self, day: str, key: str, amount: Amount) -> None:
        """Count what was spent."""
        sums, entry, amount = self._pending.sums, (self._pending.number, day, key), bounded(amount)
        before = sums.get(entry, NOTHING)
        sums[entry] = Amount(before.tokens + amount.tokens, before.cost + amount.cost)
        self._gather()

    async def look(self, keys: Iterable[str], *, all_of_today: bool = False) -> None:
        """Have `tell` told what others have now.

        Args:
            keys: of which.
            all_of_today: and of all that the store has something of today.

        Raises:
            Unwritten: the store can't be used.
        """
        self._pending.looks.update(keys)
        self._pending.looks_at_all |= all_of_today
        await self._transaction()

    async def aclose(self) -> None:
        """Write what is left, also when the root's time is up: what it came to can't be written later."""
        if self._writer is None:
            self._closed = True
            return
        self._closing = True
        # More than once, as the writer may put back what it could not write while this waits for the thread.
        while (self._pending.ended or self._pending.sums) and await self._write():
            pass
        self._closed = True  # a writer that outlives this must not open the store again
        with self._shield():
            await trio.to_thread.run_sync(self.store.close, limiter=self._thread, abandon_on_cancel=True)

    def _shield(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        return trio.move_on_after(WRITE_WITHIN, shield=True) if self._closing else self._root.shield(WRITE_WITHIN)

    async def _transaction(self) -> None:
        """Wait for the next transaction."""
        batch = self._pending
        if self._closed:
            raise Unwritten(batch.trouble)
        self._gather()
        self._urgent.set()
        await batch.over.wait()
        if batch.trouble:
            raise Unwritten(batch.trouble)

    def _gather(self) -> None:
        if self._closed:
            return
        self._some.set()
        if self._writer is None:
            self._writer = self._root.spawn(self._write_when_due, name="ledger", link=False)

    async def _write_when_due(self, _: Actor) -> None:
        while True:
            with trio.move_on_after(self._today().left if self._open else float("inf")):
                await self._some.wait()
            with trio.move_on_after(GATHER):
                await self._urgent.wait()
            if not await self._write():
                with trio.move_on_after(RETRY_EVERY):
                    await self._urgent.wait()

    async def _write(self) -> bool:
        """One transaction with all that waits for it; whether that was possible."""
        if self._closed:
            return False
        batch, self._pending = self._pending, Batch(self._pending.number + 1)
        self._some, self._urgent = trio.Event(), trio.Event()
        now, written, store = self._today(), False, self.store
        others: Mapping[str, Others] = {}
        try:
            with self._shield():
                others = await trio.to_thread.run_sync(
                    store.written, now, batch, limiter=self._thread, abandon_on_cancel=store.elsewhere
                )
                written = True
        except Exception as error:  # noqa: BLE001 - requests must neither go out unwritten nor wait for ever
            self._put_back(batch)
            batch.trouble = reason_of(error)
            self._is_troubled(error)
            return False
        except BaseException:  # cancelled before the thread began
            self._put_back(batch)
            raise
        else:
            if not written:  # the time was up: before the thread began, or the store is elsewhere and silent
                self._put_back(batch)
                if store.elsewhere:
                    batch.trouble = SILENT
                    self._is_troubled(SILENT)
                return False
            if self._troubled:
                log.warning("what is spent of daily limits can be written to %s again", store.place)
            self._troubled, batch.trouble = False, ""
            self._tell(now.day, others)
            return True
        finally:
            batch.over.set()

    def _is_troubled(self, error: Exception | str) -> None:
        if not self._troubled:
            text = "what is spent of daily limits can't be written to %s (%s): nothing more is spent under them"
            log.error(text, self.store.place, error, exc_info=not isinstance(error, (*TROUBLE, str)))
        self._troubled = True

    def _put_back(self, batch: Batch) -> None:
        pending = self._pending
        pending.ended = [*batch.ended, *pending.ended]
        pending.sums = {**batch.sums, **pending.sums}
        if pending.ended or pending.sums:
            self._some.set()


@final
class Batch:
    """What the next transaction is about.

    Attributes:
        number: of the transaction; each has a higher one than those before.
        held: rows to commit: id, key, tokens, cost.
        ended: ids of requests that are over.
        sums: what was spent, also what earlier transactions could not write, or may have written.
        looks: keys of which is asked what others have; `looks_at_all`: of all keys of the day.
        over: set when it is written, or was not: then `trouble` says why.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.held: list[tuple[int, str, int, float]] = []
        self.ended: list[int] = []
        self.sums: Sums = {}
        self.looks: set[str] = set()
        self.looks_at_all = False
        self.over = trio.Event()
        self.trouble = "the server is about to end"


@final
class Written(Hold):
    """A reservation that is in the ledger as well."""

    __slots__ = ("_hold", "_id", "_ledger")

    def __init__(self, hold: Hold, ledger: Ledger, id: int) -> None:
        self._hold = hold
        self._ledger = ledger
        self._id: int | None = id

    def settle(self, amount: Amount, *, turns: int = 1, estimated: bool = False) -> None:
        id, self._id = self._id, None
        if id is not None:
            self._hold.settle(amount, turns=turns, estimated=estimated)  # which adds it to the ledger
            self._ledger.end(id)


def bounded(amount: Amount) -> Amount:
    """The amount as far as the columns go; what is no number counts as the most."""
    return Amount(min(_MOST_TOKENS, amount.tokens), min(_MOST_COST, amount.cost))  # in this order: NaN is not less


def with_sums(own: Mapping[str, Amount], day: str, sums: Sums, after: int = 0) -> dict[str, Amount]:
    """What is ours of a day when these sums are added, of those with a higher number than `after`."""
    total = dict(own)
    for (number, of, key), amount in sums.items():
        if of == day and number > after:
            before = total.get(key, NOTHING)
            total[key] = Amount(before.tokens + amount.tokens, before.cost + amount.cost)
    return total


def without(all: Amount, own: Amount) -> Amount:
    """What others have spent, of all that was."""
    cost = round(all.cost - own.cost, 12)  # sums of fractions differ by the order in which they were made
    return Amount(max(0, all.tokens - own.tokens), max(0.0, cost))
