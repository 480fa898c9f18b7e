"""Claiming: a process takes over the runs of a dead one by copying them into its own database.

**The problem.** Two databases are involved, so no transaction covers both, and either process may be killed, or wake
up, at any moment. A run must never be lost, and never be executed by two processes.

**The protocol.** The claiming process

    1. locks the old database and reads the runs whole
    2. writes them to its own database as copies that are not valid yet (state `CLAIMING`)
    3. writes itself as their owner to the old database. This commit decides: from here on the copies are valid
    4. marks the copies as open in its own database, and removes the old one if it holds nothing else

A process that is killed in between leaves either the old runs or valid copies, never both (`reading.counts`). Of two
processes that claim at the same time, the second finds another owner. If the old process was only stopped and wakes up,
it finds another owner too, and writes nothing more (`store`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import msgspec

from ...protocol.kernel.errors import Damaged, StillPlayed
from .liveness_lock import SUFFIX, is_alive
from .reading import RunEntry, entries, own_entries, past_of, reading
from .row import CLAIMING, OPEN, OVER, Past, RowBlock, RowStore, RunRecord, StoredRunRecord, Unwritten, sum_of_run
from .store import INSERT, SqliteStore, databases, forget, insert_entry, insert_run, passes, path_of, remove, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from .journal import Journal, RunJournal


class Claim(msgspec.Struct, frozen=True):
    """Result of a claim: the runs that belong to this process now, and the errors of damaged ones."""

    taken: list[tuple[RunRecord, Past]]
    damaged: dict[str, Damaged]


async def claim(
    journal: Journal,
    sign: str,
    runs: Collection[str] | None = None,
    about: Callable[[StoredRunRecord], bytes] | None = None,
) -> list[tuple[RunJournal, Past]]:
    """Claim runs of a dead process: the given ones, or all that have not ended.

    Args:
        sign: unique name of that process.
        about: returns the new summary of a run; None to copy the old one.

    Returns:
        the runs that exist, each with all its rows. Without `runs`, damaged ones are omitted.

    Raises:
        StillPlayed: that process lives, or another process is claiming its runs at the moment.
        Damaged: one of the given runs is damaged; then none of them is claimed.
        JournalError, row.Unwritten: they can't be written here.
    """
    found = await journal.do(lambda store: take(_file(store), sign, runs, about))
    if found.damaged and runs is not None:
        raise next(iter(found.damaged.values()))
    return [(journal.resume(record), past) for record, past in found.taken]


async def claim_several(
    journal: Journal, sign: str, runs: Collection[str], about: Callable[[StoredRunRecord], bytes]
) -> tuple[list[tuple[RunJournal, Past]], dict[str, Damaged]]:
    """Claim the given runs that can be read; return them and the errors of the damaged ones, by run.

    Raises like `claim`, except for a damaged run.
    """
    found = await journal.do(lambda store: take(_file(store), sign, runs, about, all_or_none=False))
    return [(journal.resume(record), past) for record, past in found.taken], found.damaged


def _file(written: RowStore) -> SqliteStore:
    if not isinstance(written, SqliteStore):
        raise Unwritten("runs that are stored in files can't be resumed in a cluster")
    return written


def take(
    store: SqliteStore,
    sign: str,
    runs: Collection[str] | None,
    about: Callable[[StoredRunRecord], bytes] | None = None,
    *,
    all_or_none: bool = True,
) -> Claim:
    """Claim like `claim`, in the thread that writes the journal.

    Args:
        all_or_none: claim none of `runs` if one of them is damaged. Without `runs`, each readable one is claimed.

    Raises:
        StillPlayed: that process lives, or another process has locked its database.
        Damaged: the database as a whole is damaged.
        Unwritten: a database can't be written now.
    """
    if sign == store.sign or is_alive(store.directory, sign):
        raise StillPlayed(f"the process {sign} is alive and still executes its runs")
    try:
        with reading(store.directory, sign) as old:
            claim = _take(store, sign, old, runs, about, all_or_none=all_or_none and runs is not None)
            with contextlib.suppress(sqlite3.Error, Damaged):  # pruning removes it later
                remove_if_empty(store.directory, sign, old)
    except FileNotFoundError:
        return Claim([], {})
    except sqlite3.DatabaseError as error:
        path = path_of(store.directory, sign)
        if not passes(error):
            raise Damaged(f"{path} is damaged: {error}") from error
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise StillPlayed(f"another process has the journal {path} locked") from error
        raise Unwritten(f"the journal {path} can't be written: {error}") from error
    return claim


def remove_if_empty(directory: Path, sign: str, db: sqlite3.Connection, others: Collection[str] | None = None) -> None:
    """Remove the database and the lock file of a dead process if it owns no run any more.

    First delete, in the other databases, invalid copies of its runs that interrupted claims have left.

    Args:
        others: names of the databases that may hold such copies; None for all.
    """
    db.execute("begin immediate")  # no process may copy from it meanwhile
    if db.execute("select 1 from runs where owner=? limit 1", (sign,)).fetchone() is None:
        # While the database still exists: without its source, every copy counts as valid (`reading.counts`).
        owners = dict(db.execute("select run, owner from runs"))
        for other in databases(directory) if others is None else others:
            if other != sign:
                _drop_copies(directory, other, sign, owners)
        remove(path_of(directory, sign))
        with contextlib.suppress(OSError):
            (directory / f"{sign}{SUFFIX}").unlink()
    db.execute("commit")


def with_copies(directory: Path) -> list[str]:
    """Return the names of the processes whose databases hold copies that may be invalid."""
    found = []
    for sign in databases(directory):
        with contextlib.suppress(FileNotFoundError, Damaged, sqlite3.Error), reading(directory, sign) as db:
            if db.execute("select 1 from runs where state=? limit 1", (CLAIMING,)).fetchone() is not None:
                found.append(sign)
    return found


def _drop_copies(directory: Path, other: str, origin: str, owners: Mapping[str, str]) -> None:
    """Delete the copies of an interrupted claim whose runs another process has claimed since."""
    with contextlib.suppress(FileNotFoundError), reading(directory, other) as db:
        db.execute("begin immediate")
        for entry in list(entries(db, other)):
            if entry.state == CLAIMING and entry.origin == origin and owners.get(entry.run, other) != other:
                forget(db, entry.key)
        db.execute("commit")


def _take(
    store: SqliteStore,
    sign: str,
    old: sqlite3.Connection,
    runs: Collection[str] | None,
    about: Callable[[StoredRunRecord], bytes] | None,
    *,
    all_or_none: bool,
) -> Claim:
    taken: list[tuple[RunRecord, Past]] = []
    damaged: dict[str, Damaged] = {}
    old.execute("pragma synchronous=full")
    old.execute("begin immediate")
    try:
        wanted = []
        for entry in list(own_entries(store.directory, sign, old)):
            if entry.state == OVER or (runs is not None and entry.run not in runs):
                continue
            try:
                wanted.append((entry, *past_of(store.directory, sign, old, entry)))
            except Damaged as error:
                damaged[entry.run] = error
        if damaged and all_or_none:
            wanted = []
        # The copies must be on the disk before the old database names the new owner. After a power failure in between,
        # the run would otherwise be in neither database.
        with store.transaction(full=True) as db:
            for entry, past, blocks in wanted:
                said = entry.about if about is None else about(past.kept)
                taken.append((_copy(store, sign, db, entry, said, past, blocks), past))
        for entry, _, _ in wanted:
            _give_up(old, entry, store.sign)
        old.execute("commit")
    except BaseException:  # the runs stay in the old database
        with contextlib.suppress(sqlite3.Error):
            old.execute("rollback")
        raise
    # No barrier: since the commit above the copies are valid, whatever their state (`reading.counts`).
    with store.transaction(full=False) as db:
        for record, _ in taken:
            _confirm(store, db, record)
    return Claim(taken, damaged)


def _copy(
    store: SqliteStore,
    sign: str,
    db: sqlite3.Connection,
    entry: RunEntry,
    about: bytes,
    past: Past,
    blocks: list[RowBlock],
) -> RunRecord:
    """Write a run to this process's database as a copy that is not valid yet; `about` is its new summary."""
    for (key,) in db.execute("select id from runs where run=?", (entry.run,)).fetchall():
        forget(db, key)  # left by an interrupted claim, or claimed from this process once
    db.execute("delete from inbox where run=?", (entry.run,))
    record = RunRecord(entry.run, about)
    record.rows, record.crc, record.life = entry.rows, entry.crc, entry.life + 1
    record.began, record.origin = entry.began, sign
    run = (entry.run, CLAIMING, store.sign, sign, record.life, entry.rows, entry.crc, entry.began, None, about)
    record.key = insert_run(db, (*run, _sum(store, record, CLAIMING)))
    db.executemany(INSERT, [values_of(db, record.key, block) for block in blocks])
    for letter in past.letters:
        insert_entry(db, entry.run, letter.data, letter.at)
    return record


def _give_up(old: sqlite3.Connection, entry: RunEntry, owner: str) -> None:
    sum = sum_of_run(
        entry.run, entry.state, owner, entry.life, entry.rows, entry.crc, entry.began, entry.ended, entry.about
    )
    old.execute("update runs set owner=?, sum=? where id=?", (owner, sum, entry.key))


def _confirm(store: SqliteStore, db: sqlite3.Connection, record: RunRecord) -> None:
    db.execute("update runs set state=?, sum=? where id=?", (OPEN, _sum(store, record, OPEN), record.key))


def _sum(store: SqliteStore, record: RunRecord, state: int) -> int:
    return sum_of_run(
        *(record.run, state, store.sign, record.life, record.rows, record.crc, record.began, None, record.about)
    )
