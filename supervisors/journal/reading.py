"""Reads the journals of all processes, including dead ones. Blocking; runs in threads.

Everything returned is as it was written; damage raises `Damaged`. Only the end of a run can be missing without an
error: whole groups without a barrier, after a power failure.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.kernel.errors import Damaged, JournalError, JournalUnread
from .liveness_lock import is_alive
from .row import (
    CLAIMING,
    OVER,
    InboxEntry,
    Past,
    RowBlock,
    State,
    StoredRow,
    StoredRunRecord,
    checked,
    entry_checksum,
    sum_of_run,
    unpacked,
)
from .store import RUN_COLUMNS, databases, has_tables, insert_entry, opened, passes, path_of

_ROWS = """
select rows.seq, rows.count, rows.actor, rows.data, rows.crc, blobs.hash, blobs.data from rows
left join blobs on blobs.id = rows.blob where rows.run = ? order by rows.seq
"""
_ROWS_FROM = _ROWS.replace("where rows.run = ?", "where rows.run = ? and rows.seq >= ?")


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run's entry in a database; the fields are the columns of `runs` (see `store`)."""

    key: int
    run: str
    state: int
    owner: str
    origin: str
    life: int
    rows: int
    crc: int
    began: float
    ended: float | None
    about: bytes


def stored_runs(directory: Path, state: State | None = None) -> list[StoredRunRecord]:
    """Return the runs of all processes, the oldest first. Unreadable journals are included, with `damage` set.

    Args:
        state: only runs in this state. Journals that can't hold any are not opened.
    """
    found: list[StoredRunRecord] = []
    for sign in databases(directory, unsettled=state is State.INTERRUPTED):
        if state is not State.INTERRUPTED or not is_alive(directory, sign):
            found += _stored_in(directory, sign, state)
    return sorted((kept for kept in found if state in (None, kept.state)), key=lambda kept: kept.began)


def interrupted_in(directory: Path, sign: str) -> list[StoredRunRecord]:
    """Return the runs of a dead process that can be resumed; like `stored_runs` for one journal."""
    return [kept for kept in _stored_in(directory, sign, State.INTERRUPTED) if kept.state is State.INTERRUPTED]


def _stored_in(directory: Path, sign: str, state: State | None) -> list[StoredRunRecord]:
    try:
        with reading(directory, sign) as db:
            return [_stored(directory, sign, entry) for entry in own_entries(directory, sign, db, state)]
    except (Damaged, sqlite3.Error) as error:
        return [_unreadable(sign, str(error))]
    except FileNotFoundError:
        return []  # it was removed in the meantime


def read_run(directory: Path, run: str) -> Past | None:
    """Return a run with all its rows; None if it does not exist.

    Raises:
        Damaged: the run is damaged, or it was not found and a damaged journal may hold it.
        JournalUnread: it was not found, and a journal that can't be read at the moment may hold it.
    """
    damaged: JournalError | None = None
    for sign in databases(directory):
        try:
            with reading(directory, sign) as db:
                # A transaction, so that the run's entry and its rows are of one moment: its process may be writing.
                db.execute("begin")
                for entry in own_entries(directory, sign, db):
                    if entry.run == run:
                        return past_of(directory, sign, db, entry)[0]
        except Damaged as error:
            # Only an error of this run has rows. Other damage may concern other runs, so the search continues.
            if error.rows:
                raise
            damaged = damaged or error
        except sqlite3.Error as error:
            damaged = damaged or _unread(directory, sign, error)
        except FileNotFoundError:
            continue
    if damaged is not None:
        raise damaged
    return None


def state_of(directory: Path, run: str) -> State | None:
    """Return the state of a run without reading its rows; None if no readable journal holds it."""
    for sign in databases(directory):
        with contextlib.suppress(Damaged, sqlite3.Error, FileNotFoundError), reading(directory, sign) as db:
            for entry in own_entries(directory, sign, db, run=run):
                return _stored(directory, sign, entry).state
    return None


def read_rows(directory: Path, run: str, after: int, most: int) -> list[StoredRow] | None:
    """Return up to `most` rows of a run after number `after`; None if it does not exist. Earlier rows are not checked.

    Raises:
        Damaged, JournalUnread: they can't be read.
    """
    for sign in databases(directory):
        with contextlib.suppress(FileNotFoundError), reading_or_unread(directory, sign) as db:
            for entry in own_entries(directory, sign, db):
                if entry.run == run:
                    return _rows_after(db, entry, after, most, f"{run} in {path_of(directory, sign)}")
    return None


def _rows_after(db: sqlite3.Connection, entry: RunEntry, after: int, most: int, where: str) -> list[StoredRow]:
    found: list[StoredRow] = []
    with damage_raised(where):
        begin = db.execute("select max(seq) from rows where run=? and seq<=?", (entry.key, after + 1)).fetchone()[0]
        for seq, count, actor, small, crc, hash, blob in db.execute(_ROWS_FROM, (entry.key, begin or 1)):
            block = RowBlock(seq, count, actor, small if hash is None else blob, crc)
            found += [row for row in unpacked(block) if row.seq > after]
            if len(found) >= most:
                break
    return found[:most]


def past_of(directory: Path, sign: str, db: sqlite3.Connection, entry: RunEntry) -> tuple[Past, list[RowBlock]]:
    """Return a run of this database, and its blocks.

    Raises:
        Damaged: it is not as it was written; the error holds the rows before the damage.
    """
    rows: list[StoredRow] = []
    blocks: list[RowBlock] = []
    where = f"{entry.run} in {path_of(directory, sign)}"
    try:
        for block in whole_blocks(db, entry, where):
            rows += unpacked(block)
            blocks.append(block)
        letters = inbox_of(db, entry.run, where)
    except Damaged as error:
        raise Damaged(str(error), rows) from error
    return Past(kept=_stored(directory, sign, entry), rows=rows, letters=letters), blocks


def whole_blocks(db: sqlite3.Connection, entry: RunEntry, where: str) -> Iterator[RowBlock]:
    """Yield the blocks of a run, checking each one; `where` names the run in an error.

    Raises:
        Damaged: the next block is not as it was written, or is missing.
    """
    with damage_raised(where):
        found = (
            (seq, count, actor, small if hash is None else blob, sum, hash)
            for seq, count, actor, small, sum, hash, blob in db.execute(_ROWS, (entry.key,))
        )
        yield from checked(found, entry.run, entry.rows, entry.crc, where)


def inbox_of(db: sqlite3.Connection, run: str, where: str) -> list[InboxEntry]:
    """Return the entries in the inbox of a run, in the order in which they were added.

    Raises:
        Damaged: an entry is not as it was written.
    """
    found = []
    with damage_raised(where):
        for data, at, sum in db.execute("select data, at, sum from inbox where run=? order by n", (run,)):
            if not isinstance(data, bytes) or sum != entry_checksum(run, data, at):
                raise Damaged(f"{where} is damaged: the checksum of a stored answer does not match")
            found.append(InboxEntry(data, at))
    return found


def own_entries(
    directory: Path, sign: str, db: sqlite3.Connection, state: State | None = None, run: str | None = None
) -> Iterator[RunEntry]:
    """Yield the runs that belong to this database: neither claimed by another process nor an invalid copy.

    Args:
        state: `State.OVER` for ended runs only; any other state for all runs that have not ended.
        run: only the run with this id.
    """
    for entry in entries(db, str(path_of(directory, sign)), state, run):
        if entry.owner == sign and (entry.state != CLAIMING or counts(directory, entry)):
            yield entry


def entries(
    db: sqlite3.Connection, where: str, state: State | None = None, run: str | None = None
) -> Iterator[RunEntry]:
    """Yield the entries of all runs in a database, including claimed runs and copies. Raises `Damaged`."""
    wanted = "true" if state is None else f"state {'=' if state is State.OVER else '<>'} {OVER}"
    if run is not None:
        wanted += " and run=:run"
    query = f"select {RUN_COLUMNS} from runs where {wanted} order by id"  # noqa: S608 - constants only
    with damage_raised(where):
        for row in db.execute(query, {"run": run}):
            yield _entry(row, where)


def counts(directory: Path, copy: RunEntry) -> bool:
    """Return whether a copy is valid: its source database names the copy's owner as the owner of the run.

    A copy whose source database, or whose run in it, no longer exists is valid.
    """
    try:
        with reading(directory, copy.origin) as db:
            return all(entry.owner == copy.owner for entry in entries(db, copy.origin) if entry.run == copy.run)
    except FileNotFoundError:
        return True  # a database is removed after its last run was claimed and invalid copies were deleted


def leave(directory: Path, run: str, data: bytes, check: Callable[[list[bytes]], None] | None = None) -> bool:
    """Add an entry to the inbox of a run that no process executes. It is durable when this returns.

    The process that resumes the run reads the entry.

    Args:
        check: called with the entries that exist; raises if this one may not be added.

    Returns:
        False if there is no unfinished run with this id, or if a living process executes it.

    Raises:
        Damaged, JournalUnread, OSError: it can't be stored.
    """
    for sign in databases(directory, unsettled=True):
        if is_alive(directory, sign):
            continue
        with contextlib.suppress(FileNotFoundError), reading_or_unread(directory, sign) as db:
            db.execute("pragma synchronous=full")
            db.execute("begin immediate")  # from here on no process can claim the run
            found = any(each.run == run and each.state != OVER for each in own_entries(directory, sign, db))
            if found:
                if check is not None:
                    check([letter.data for letter in inbox_of(db, run, str(path_of(directory, sign)))])
                insert_entry(db, run, data, time.time())
            db.execute("commit")
            if found:
                return True
    return False


@contextlib.contextmanager
def reading(directory: Path, sign: str) -> Iterator[sqlite3.Connection]:
    """Open the database of a process while the block lasts.

    Raises:
        FileNotFoundError: it does not exist.
        Damaged: it is not a journal, or it is empty.
        sqlite3.Error: it can't be read at the moment.
    """
    path = path_of(directory, sign)
    with damage_raised(str(path)):
        try:
            db = opened(path)
        except sqlite3.OperationalError:
            if path.exists():
                raise
            raise FileNotFoundError(path) from None
    try:
        with damage_raised(str(path)):
            if not has_tables(db):
                raise Damaged(f"the journal {path} is damaged: {_without_tables(path)}")
        yield db
    finally:
        db.close()


def _without_tables(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            return "it is empty"
    return "it has no tables of a journal"


@contextlib.contextmanager
def reading_or_unread(directory: Path, sign: str) -> Iterator[sqlite3.Connection]:
    """Open the database of a process like `reading`, and raise every other error of SQLite as `JournalUnread`.

    Raises:
        JournalUnread: the disk is full, or the file is locked.
    """
    try:
        with reading(directory, sign) as db:
            yield db
    except sqlite3.Error as error:
        raise _unread(directory, sign, error) from error


def _unread(directory: Path, sign: str, error: sqlite3.Error) -> JournalUnread:
    return JournalUnread(f"the journal {path_of(directory, sign)} can't be read or written now: {error}")


@contextlib.contextmanager
def damage_raised(where: str) -> Iterator[None]:
    """Raise damage that SQLite finds as `Damaged`. Errors that may pass by themselves are not changed."""
    try:
        yield
    except sqlite3.Error as error:
        if passes(error):
            raise
        raise Damaged(f"{where} is damaged: {error}") from error
    except (OverflowError, ValueError) as error:
        raise Damaged(f"{where} is damaged: {error}") from error


def _entry(row: tuple[Any, ...], where: str) -> RunEntry:
    *values, sum = row
    kinds = (int, str, int, str, str, int, int, int, float, float | None, bytes)
    if not all(isinstance(value, kind) for value, kind in zip(values, kinds, strict=True)):
        raise Damaged(f"{where} is damaged: the entry of a run can't be read")
    key, run, state, owner, origin, life, rows, crc, began, ended, about = values
    if sum != sum_of_run(run, state, owner, life, rows, crc, began, ended, about):
        raise Damaged(f"{where} is damaged: the checksum of the entry of {run!r} does not match")
    return RunEntry(
        key=key,
        run=run,
        state=state,
        owner=owner,
        origin=origin,
        life=life,
        rows=rows,
        crc=crc,
        began=began,
        ended=ended,
        about=about,
    )


def _stored(directory: Path, sign: str, entry: RunEntry) -> StoredRunRecord:
    state = State.OVER if entry.state == OVER else State.PLAYED if is_alive(directory, sign) else State.INTERRUPTED
    return StoredRunRecord(
        run=entry.run,
        sign=sign,
        state=state,
        life=entry.life,
        rows=entry.rows,
        began=entry.began,
        ended=entry.ended,
        about=entry.about,
    )


def _unreadable(sign: str, why: str) -> StoredRunRecord:
    state = State.INTERRUPTED
    return StoredRunRecord(run="", sign=sign, state=state, life=0, rows=0, began=0.0, ended=None, about=b"", damage=why)
