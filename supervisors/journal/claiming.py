"""Going on with the runs of a process that has died: they are copied into the database of the one that goes on.

    1. who claims locks the old database, and reads the runs whole
    2. writes them into its own, as copies that do not count yet (`CLAIMING`)
    3. writes itself as their owner into the old one: from here on they are its own, and the copies count
    4. says so in its own, and removes the old one if nothing else is in it

Whoever is killed in between leaves either the old runs or copies that count, never both (`reading.counts`). Of two who
claim at once the second finds another owner. The old process, should it wake up after all, finds it, too (`store`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import msgspec

from ...protocol.kernel.errors import Damaged, StillPlayed
from .reading import Entry, entries, own_entries, past_of, reading
from .row import CLAIMING, OPEN, OVER, Block, Kept, Past, RunRecord, Unwritten, sum_of_run
from .row import Store as Anywhere
from .sign import ENDING as SIGN
from .sign import lives
from .store import INSERT, Store, databases, forget, insert_run, path_of, put_letter, remove, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from .journal import Journal, RunJournal


class Claim(msgspec.Struct, frozen=True):
    """Runs that are ours now, and those that can't be read, with why."""

    taken: list[tuple[RunRecord, Past]]
    damaged: dict[str, Damaged]


async def claim(
    journal: Journal, sign: str, runs: Collection[str] | None = None, about: Callable[[Kept], bytes] | None = None
) -> list[tuple[RunJournal, Past]]:
    """Go on with runs of the process that had this sign: with these, or with all that are not over.

    Args:
        about: what is said of each from now on; None for what was said before.

    Returns:
        those that were there, each with all that is kept of it.

    Raises:
        StillPlayed: that process lives, or another is just about to claim them.
        Damaged: one of them is not as it was written; none is claimed that was named together with it.
        JournalError, row.Unwritten: they can't be written here.
    """
    found = await journal.do(lambda store: take(_file(store), sign, runs, about))
    if found.damaged and runs is not None:
        raise next(iter(found.damaged.values()))
    return [(journal.go_on(record), past) for record, past in found.taken]


async def claim_several(
    journal: Journal, sign: str, runs: Collection[str], about: Callable[[Kept], bytes]
) -> tuple[list[tuple[RunJournal, Past]], dict[str, Damaged]]:
    """As `claim`: those of them that are there and can be read, and why others can't."""
    found = await journal.do(lambda store: take(_file(store), sign, runs, about, all_or_none=False))
    return [(journal.go_on(record), past) for record, past in found.taken], found.damaged


def _file(written: Anywhere) -> Store:
    if not isinstance(written, Store):
        raise Unwritten("runs of files can't go on in a cluster")
    return written


def take(
    store: Store,
    sign: str,
    runs: Collection[str] | None,
    about: Callable[[Kept], bytes] | None = None,
    *,
    all_or_none: bool = True,
) -> Claim:
    """As `claim`, in the thread that writes.

    Args:
        all_or_none: of `runs`; without them each that can be read is taken.
    """
    if sign == store.sign or lives(store.directory, sign):
        raise StillPlayed(f"the process {sign} lives and goes on with its runs itself")
    try:
        with reading(store.directory, sign) as old:
            claim = _take(store, sign, old, runs, about, all_or_none=all_or_none and runs is not None)
            with contextlib.suppress(sqlite3.Error, Damaged):  # who prunes comes by later
                remove_if_empty(store.directory, sign, old)
    except FileNotFoundError:
        return Claim([], {})
    except sqlite3.OperationalError as error:
        path = path_of(store.directory, sign)
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise StillPlayed(f"another process has the journal {path} locked") from error
        raise Unwritten(f"the journal {path} can't be written: {error}") from error
    return claim


def remove_if_empty(directory: Path, sign: str, db: sqlite3.Connection, others: Collection[str] | None = None) -> None:
    """Remove the database of a process that has died, if it has no runs any more, and copies that do not count.

    Args:
        others: those in which there may be copies; None for all there are.
    """
    db.execute("begin immediate")  # nobody copies from it meanwhile
    if db.execute("select 1 from runs where owner=? limit 1", (sign,)).fetchone() is None:
        owners = dict(db.execute("select run, owner from runs"))
        for other in databases(directory) if others is None else others:
            if other != sign:
                _drop_copies(directory, other, sign, owners)
        remove(path_of(directory, sign))
        with contextlib.suppress(OSError):
            (directory / f"{sign}{SIGN}").unlink()
    db.execute("commit")


def with_copies(directory: Path) -> list[str]:
    """The signs of the processes whose databases have copies that may not count."""
    found = []
    for sign in databases(directory):
        with contextlib.suppress(FileNotFoundError, Damaged, sqlite3.Error), reading(directory, sign) as db:
            if db.execute("select 1 from runs where state=? limit 1", (CLAIMING,)).fetchone() is not None:
                found.append(sign)
    return found


def _drop_copies(directory: Path, other: str, origin: str, owners: Mapping[str, str]) -> None:
    """Of a claim that was broken off: the copies in this database that another has claimed after it."""
    with contextlib.suppress(FileNotFoundError), reading(directory, other) as db:
        db.execute("begin immediate")
        for entry in list(entries(db, other)):
            if entry.state == CLAIMING and entry.origin == origin and owners.get(entry.run, other) != other:
                forget(db, entry.key)
        db.execute("commit")


def _take(
    store: Store,
    sign: str,
    old: sqlite3.Connection,
    runs: Collection[str] | None,
    about: Callable[[Kept], bytes] | None,
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
        with store.transaction(full=True) as db:
            for entry, past, blocks in wanted:
                said = entry.about if about is None else about(past.kept)
                taken.append((_copy(store, sign, db, entry, said, past, blocks), past))
        for entry, _, _ in wanted:
            _give_up(old, entry, store.sign)
        old.execute("commit")
    except BaseException:  # whatever it was: the runs stay where they were
        with contextlib.suppress(sqlite3.Error):
            old.execute("rollback")
        raise
    with store.transaction(full=False) as db:
        for record, _ in taken:
            _confirm(store, db, record)
    return Claim(taken, damaged)


def _copy(
    store: Store,
    sign: str,
    db: sqlite3.Connection,
    entry: Entry,
    about: bytes,
    past: Past,
    blocks: list[Block],
) -> RunRecord:
    """Write a run into our database, as a copy that does not count yet; `about` is what is said of it there."""
    for (key,) in db.execute("select id from runs where run=?", (entry.run,)).fetchall():
        forget(db, key)  # what an earlier try has left, or what we gave up once
    db.execute("delete from inbox where run=?", (entry.run,))
    record = RunRecord(entry.run, about)
    record.rows, record.crc, record.life = entry.rows, entry.crc, entry.life + 1
    record.began, record.origin = entry.began, sign
    run = (entry.run, CLAIMING, store.sign, sign, record.life, entry.rows, entry.crc, entry.began, None, about)
    record.key = insert_run(db, (*run, _sum(store, record, CLAIMING)))
    db.executemany(INSERT, [values_of(db, record.key, block) for block in blocks])
    for letter in past.letters:
        put_letter(db, entry.run, letter.data, letter.at)
    return record


def _give_up(old: sqlite3.Connection, entry: Entry, owner: str) -> None:
    sum = sum_of_run(
        entry.run, entry.state, owner, entry.life, entry.rows, entry.crc, entry.began, entry.ended, entry.about
    )
    old.execute("update runs set owner=?, sum=? where id=?", (owner, sum, entry.key))


def _confirm(store: Store, db: sqlite3.Connection, record: RunRecord) -> None:
    db.execute("update runs set state=?, sum=? where id=?", (OPEN, _sum(store, record, OPEN), record.key))


def _sum(store: Store, record: RunRecord, state: int) -> int:
    return sum_of_run(
        *(record.run, state, store.sign, record.life, record.rows, record.crc, record.began, None, record.about)
    )
