"""The book: what was spent on models by day, key, agent and model, in one SQLite file of all processes of a user, or
the database of a cluster (`BookStore`).

    usage(day, key, agent, model) -> requests, input, cached and output tokens, USD, requests without a price

It holds sums alone, so it grows by the day and not by the request. Replies are added in memory and written by a thread
a moment later (`GATHER`), which adds to what other processes have written; the rest is written when the process ends.
What can't be written (the disk is full) is kept and tried again: each reply goes with the number of the first write
that was to have it, as in the `ledger`. Days are those of UTC.

`callboard usage` reads the file (`read`). A server reads its own book (`Book.read`), so its sums have every reply that
was counted before, written or not.
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
"""Seconds in which replies gather before they are written."""

RETRY_EVERY = 5.0
"""Seconds between two tries to write what could not be written."""

WRITE_WITHIN = 5.0
"""Seconds for one write."""

_PATIENCE = 2.0  # seconds for other processes to be done with the file

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
"""What the sums are kept by: an entry's parts, and the columns of the file."""

Sums = dict[tuple[str, ...], "Spent"]
"""Sums by some of the columns."""

Unwritten = dict[tuple[int, Entry], "Spent"]
"""Sums by the number of the write that was to have them first."""


class Spent(msgspec.Struct):
    """Sums of replies; `cost` in USD, without that of the `unpriced` ones."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, other: Spent) -> None:
        """Add other sums to these."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Away(Exception):
    """A store that is not on this machine can't be used now; the text says why.

    Args:
        reason: why, without places and names: callers are told it.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


TROUBLE: Final = (OSError, sqlite3.Error, Away)
"""What a store raises that can't be used now."""


class BookStore(Protocol):
    """Where a book is kept. Its methods block: threads call them.

    Attributes:
        place: where it is, for the log.
        elsewhere: it may not answer for long; what is given up for that may be written all the same.
    """

    @property
    def place(self) -> str: ...
    @property
    def elsewhere(self) -> bool: ...

    def add(self, number: int, sums: Unwritten) -> None:
        """Add these, one call at a time. Raises one of `TROUBLE`."""

    def read(self, since: str, by: Sequence[str], key: str | None) -> Sums:
        """As the function `read`. Raises one of `TROUBLE`."""


class Write(msgspec.Struct, frozen=True):
    """It is time to write."""


@final
class Book:
    """Adds to the book of a process's user.

    Args:
        root: what writes is an actor of it, from the first reply on.
        store: where it is kept.
        now: the wall clock, in seconds since 1970.

    Attributes:
        heard: called with each reply's key, model, tokens and cost, if there is one.
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
        """Count a reply; `cost` is None where the price is not known."""
        day = datetime.fromtimestamp(self._now(), UTC).date().isoformat()
        sums = self._sums.setdefault((self._number, (day, key, agent, model)), Spent())
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
        """Write what is left, also when the root's time is up: the sums can't be written later."""
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
        """As the function `read`, with what could not be written yet.

        Raises:
            Away, sqlite3.Error, OSError: it can't be read; or it is not known whether all is in it.
        """
        async with self._turn:
            if not await self._write_now() and self._store.elsewhere:
                raise Away(f"{self._store.place}: what was spent can't be written", "it can't be written now")
            found = await trio.to_thread.run_sync(
                self._store.read, since, by, key, limiter=self._thread, abandon_on_cancel=self._store.elsewhere
            )
            return grouped(((entry, spent) for (_, entry), spent in self._sums.items()), since, by, key, found)

    async def _write(self) -> bool:
        """Write the sums; whether that was possible."""
        written = False
        with self._shield():  # at the end of a process there may be no time left to wait for a reader
            async with self._turn:
                written = await self._write_now()
        return written

    async def _write_now(self) -> bool:
        sums, self._sums, number = self._sums, {}, self._number
        if not sums:
            return True
        self._number += 1
        written, store = False, self._store
        try:
            with self._shield():
                await trio.to_thread.run_sync(
                    store.add, number, sums, limiter=self._thread, abandon_on_cancel=store.elsewhere
                )
                written = True
        except TROUBLE as error:
            if not self._troubled:
                log.warning("what models cost can't be written to %s: %s", store.place, error)
            self._troubled = True
        else:
            self._troubled = self._troubled and not written
        finally:
            if not written:  # also where the time was up, or the task cancelled, before the thread began
                self._sums = {**sums, **self._sums}
        return written


@final
class BookFile:
    """A book in a file: see `BookStore`. What could not be written was not, so numbers are of no use to it."""

    elsewhere = False

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path

    def add(self, number: int, sums: Unwritten) -> None:  # noqa: ARG002 - see above
        """See `BookStore`."""
        made(self._path)
        with contextlib.closing(sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)) as book:
            book.execute("PRAGMA synchronous = NORMAL")
            book.execute("BEGIN IMMEDIATE")
            book.execute(_SCHEMA)
            book.executemany(_ADD, [(*entry, *msgspec.structs.astuple(spent)) for (_, entry), spent in sums.items()])
            book.execute("COMMIT")

    def read(self, since: str, by: Sequence[str], key: str | None) -> Sums:
        """See `BookStore`."""
        return read(self._path, since, by, key)


def reason_of(error: Exception) -> str:
    """Why a store can't be used, without the place: callers are told it."""
    if isinstance(error, Away):
        return error.reason
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def made(path: Path) -> None:
    """Make the file if it is missing, for its user alone."""
    private_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)


def read(path: Path, since: str = "", by: Sequence[str] = COLUMNS, key: str | None = None) -> Sums:
    """What was spent from that day on, summed by these `COLUMNS`; with `key`, by that one alone.

    Raises:
        sqlite3.Error, OSError: the file can't be read.
    """
    names = ", ".join(by)
    sums = ", ".join(f"SUM({name})" for name in Spent.__struct_fields__)
    where = "day >= ? AND (? IS NULL OR key = ?)"
    query = f"SELECT {names}, {sums} FROM usage WHERE {where} GROUP BY {names} ORDER BY {names}"  # noqa: S608 - of `COLUMNS`
    return {row[: len(by)]: Spent(*row[len(by) :]) for row in rows(path, "usage", query, (since, key, key))}


def rows(path: Path, table: str, query: str, values: Sequence[str | None]) -> list[tuple[Any, ...]]:
    """What a query about a table of the file finds; nothing where there is no file, or no such table yet.

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


def grouped(entries: Iterable[tuple[Entry, Spent]], since: str, by: Sequence[str], key: str | None, into: Sums) -> Sums:
    """Add entries to sums, as `read` makes them of the file."""
    places = [COLUMNS.index(column) for column in by]
    for entry, spent in entries:
        if entry[0] >= since and key in (None, entry[1]):
            into.setdefault(tuple(entry[place] for place in places), Spent()).add(spent)
    return into
