"""Spending book: usage of models by day, key, agent and model.

The book is one SQLite file for all processes of a user, or the database of a cluster (`BookStore`).

    usage(day, key, agent, model) -> requests, input, cached and output tokens, USD, requests without a price

It stores sums only, so its size grows with days and not with requests. Replies are added in memory. A thread writes
them a moment later (`GATHER`) and adds them to the rows of other processes. The rest is written when the process ends.
If a write fails (for example, the disk is full), the sums are kept and written later. Each sum carries the number of
the first write that should have included it, as in the `ledger`. Days begin at 00:00 UTC.

`callboard usage` reads the file (`read`). A server reads its own book (`SpendingBook.read`), so its sums include every
reply that was counted before, written or not.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec
import trio

from ...io.directories import private_directory

if TYPE_CHECKING:
    from ....protocol.chat import TokenUsage
    from ....supervisors import Actor, Ref, Root

GATHER = 0.2
"""Seconds for which replies are collected before they are written."""

RETRY_EVERY = 5.0
"""Seconds between two attempts to write after a failure."""

WRITE_WITHIN = 5.0
"""Seconds that one write may take."""

_PATIENCE = 2.0  # seconds to wait for another process's lock on the file

_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    day TEXT NOT NULL, key TEXT NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, input_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, cost REAL NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (day, key, agent, model)
) WITHOUT ROWID
"""

_ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, key, agent, model) DO UPDATE SET
    requests = requests + excluded.requests, input_tokens = input_tokens + excluded.input_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens, output_tokens = output_tokens + excluded.output_tokens,
    cost = cost + excluded.cost, unpriced = unpriced + excluded.unpriced
"""

log = logging.getLogger("callboard.usage")

Entry = tuple[str, str, str, str]
"""Day (`2026-11-23`), key, agent, model."""

COLUMNS: Final = ("day", "key", "agent", "model")
"""Columns that sums are grouped by; the parts of an `Entry`."""

Sums = dict[tuple[str, ...], "SpendingSums"]
"""Sums by the values of some of the columns."""

Unwritten = dict[tuple[int, Entry], "SpendingSums"]
"""Sums by the number of the first write that should have included them."""


class SpendingSums(msgspec.Struct):
    """Sums of replies; `cost` is in USD and excludes the `unpriced` replies."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, other: SpendingSums) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Away(Exception):
    """A store on another machine can't be used now; the text says why.

    Args:
        reason: the cause without paths and host names, because it is shown to callers.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


TROUBLE: Final = (OSError, sqlite3.Error, Away)
"""Exceptions that a store raises when it can't be used now."""


class BookStore(Protocol):
    """Storage of a book. Its methods block: call them in a thread.

    Attributes:
        place: location of the store, for the log.
        is_remote: the store is on another machine and may be silent for long; an abandoned write may still succeed.
    """

    @property
    def place(self) -> str: ...
    @property
    def is_remote(self) -> bool: ...

    def add(self, number: int, sums: Unwritten) -> None:
        """Add these sums; one call at a time. Raises one of `TROUBLE`."""

    def read(self, since: str, by: Sequence[str], key: str | None) -> Sums:
        """Return the sums since a day, as the function `read` does. Raises one of `TROUBLE`."""


class Write(msgspec.Struct, frozen=True):
    """Message to the writer: write the collected sums."""


@final
class SpendingBook:
    """Adds usage to the book of a process's user.

    Args:
        root: the writer is an actor of it, spawned with the first reply.
        store: storage of the book.
        now: the wall clock, in seconds since 1970.

    Attributes:
        heard: called with each reply's key, model, tokens and cost, unless it is None.
    """

    def __init__(self, root: Root, store: BookStore, *, now: Callable[[], float]) -> None:
        self._root = root
        self._store = store
        self._now = now
        self._number = 1
        self._sums: Unwritten = {}
        self._writer: Ref[Write] | None = None
        self._due = False
        self._troubled = self._closing = False
        self._turn = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self.heard: Callable[[str, str, TokenUsage, float | None], None] | None = None

    def add(self, key: str, agent: str, model: str, tokens: TokenUsage, cost: float | None) -> None:
        """Count a reply; `cost` is None if the price is not known."""
        day = datetime.fromtimestamp(self._now(), UTC).date().isoformat()
        sums = self._sums.setdefault((self._number, (day, key, agent, model)), SpendingSums())
        sums.requests += 1
        sums.input_tokens += tokens.input_tokens
        sums.cached_tokens += tokens.cached_tokens
        sums.output_tokens += tokens.output_tokens
        sums.cost += cost or 0.0
        sums.unpriced += cost is None
        if self.heard is not None:
            self.heard(key, model, tokens, cost)
        if not self._due:
            self._due = True
            if self._writer is None:
                self._writer = self._root.spawn(self._write_when_due, name="usage", link=False)
            self._writer.tell_nowait(Write())

    async def aclose(self) -> None:
        """Write the remaining sums, even if the time of the root is up, because there is no later write."""
        self._closing = True
        await self._write()

    def _shield(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        return trio.move_on_after(WRITE_WITHIN, shield=True) if self._closing else self._root.shield(WRITE_WITHIN)

    async def _write_when_due(self, me: Actor[Write]) -> None:
        async for _ in me:
            await trio.sleep(GATHER)
            self._due = False
            if not await self._write():
                self._due = True
                me.tell_later(RETRY_EVERY, Write())

    async def read(self, since: str = "", by: Sequence[str] = COLUMNS, key: str | None = None) -> Sums:
        """Return the sums since a day, as the function `read` does, including those not yet written.

        Raises:
            Away, sqlite3.Error, OSError: the store can't be read, or it may lack sums that an abandoned write included.
        """
        async with self._turn:
            # The store may have applied an abandoned write. Adding the unwritten sums to its own could count them
            # twice.
            if not await self._write_now() and self._store.is_remote:
                raise Away(
                    f"{self._store.place}: the model usage can't be written",
                    "the model usage can't be written at the moment",
                )
            found = await trio.to_thread.run_sync(
                self._store.read, since, by, key, limiter=self._thread, abandon_on_cancel=self._store.is_remote
            )
            return grouped(((entry, spent) for (_, entry), spent in self._sums.items()), since, by, key, found)

    async def _write(self) -> bool:
        """Write the sums. Return whether that succeeded."""
        written = False
        with self._shield():  # The process may be ending, with no time left to wait for a reader.
            async with self._turn:
                written = await self._write_now()
        return written

    async def _write_now(self) -> bool:
        # Replies that arrive during the write belong to the next one.
        sums, self._sums, number = self._sums, {}, self._number
        if not sums:
            return True
        self._number += 1
        written, store = False, self._store
        try:
            with self._shield():
                await trio.to_thread.run_sync(
                    store.add, number, sums, limiter=self._thread, abandon_on_cancel=store.is_remote
                )
                written = True
        except TROUBLE as error:
            if not self._troubled:
                log.warning("the model usage can't be written to %s: %s", store.place, error)
            self._troubled = True
        else:
            self._troubled = self._troubled and not written
        finally:
            if not written:  # Also if the time was up, or the task was cancelled, before the thread started.
                # The keys are disjoint, because each contains the number of its write.
                self._sums = {**sums, **self._sums}
        return written


@final
class BookFile:
    """A `BookStore` in an SQLite file.

    A failed transaction has written nothing for certain, so the file ignores the numbers of writes.
    """

    is_remote = False

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path

    def add(self, number: int, sums: Unwritten) -> None:  # noqa: ARG002 - unused, see the class
        """Add these sums in one transaction."""
        made(self._path)
        with contextlib.closing(sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)) as book:
            book.execute("PRAGMA synchronous = NORMAL")
            # IMMEDIATE: a transaction that takes the write lock later can fail at once, without waiting.
            book.execute("BEGIN IMMEDIATE")
            book.execute(_SCHEMA)
            book.executemany(_ADD, [(*entry, *msgspec.structs.astuple(spent)) for (_, entry), spent in sums.items()])
            book.execute("COMMIT")

    def read(self, since: str, by: Sequence[str], key: str | None) -> Sums:
        return read(self._path, since, by, key)


def reason_of(error: Exception) -> str:
    """Return why a store can't be used, without paths and host names: callers see this text."""
    if isinstance(error, Away):
        return error.reason
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def made(path: Path) -> None:
    """Create the SQLite file of the book if it is missing, readable by its user alone."""
    private_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)


def read(path: Path, since: str = "", by: Sequence[str] = COLUMNS, key: str | None = None) -> Sums:
    """Return the sums since a day, grouped by these `COLUMNS`; with `key`, for that key alone.

    Raises:
        sqlite3.Error, OSError: the file can't be read.
    """
    names = ", ".join(by)
    sums = ", ".join(f"SUM({name})" for name in SpendingSums.__struct_fields__)
    where = "day >= ? AND (? IS NULL OR key = ?)"
    query = f"SELECT {names}, {sums} FROM usage WHERE {where} GROUP BY {names} ORDER BY {names}"  # noqa: S608 - of `COLUMNS`
    return {row[: len(by)]: SpendingSums(*row[len(by) :]) for row in rows(path, "usage", query, (since, key, key))}


def rows(path: Path, table: str, query: str, values: Sequence[str | None]) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a table of the file; none if the file or the table does not exist yet.

    Raises:
        sqlite3.Error, OSError: the file can't be read.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return []
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)) as book:
        if book.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
            return []
        return book.execute(query, values).fetchall()


def grouped(
    entries: Iterable[tuple[Entry, SpendingSums]], since: str, by: Sequence[str], key: str | None, into: Sums
) -> Sums:
    """Add entries to the sums `into`, filtered and grouped as in `read`. Return `into`."""
    places = [COLUMNS.index(column) for column in by]
    for entry, spent in entries:
        if entry[0] >= since and key in (None, entry[1]):
            into.setdefault(tuple(entry[place] for place in places), SpendingSums()).add(spent)
    return into
