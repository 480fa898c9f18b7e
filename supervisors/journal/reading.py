"""Gets back what processes have written, those that have died among them. Blocking; runs in threads.

What is returned is as it was written, or it is refused (`Damaged`). Lost without a word may be the end alone, whole
groups of it: those that nobody waited for, when the machine lost its power.
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
from .row import (
    CLAIMING,
    OVER,
    Block,
    Kept,
    Letter,
    Past,
    Row,
    State,
    checked,
    sum_of_letter,
    sum_of_run,
    unpacked,
)
from .sign import lives
from .store import RUN_COLUMNS, databases, is_made, opened, passes, path_of, put_letter

_ROWS = """
select rows.seq, rows.count, rows.actor, rows.data, rows.crc, blobs.hash, blobs.data from rows
left join blobs on blobs.id = rows.blob where rows.run = ? order by rows.seq
"""
_ROWS_FROM = _ROWS.replace("where rows.run = ?", "where rows.run = ? and rows.seq >= ?")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a database says of a run; see `store`."""

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


def kept_runs(directory: Path, state: State | None = None) -> list[Kept]:
    """The runs in the journals of all processes, the oldest first. What can't be read says so in `damage`.

    Args:
        state: only those that stand so. Journals that can have none such are not opened.
    """
    found: list[Kept] = []
    for sign in databases(directory, unsettled=state is State.INTERRUPTED):
        if state is not State.INTERRUPTED or not lives(directory, sign):
            found += _kept_in(directory, sign, state)
    return sorted((kept for kept in found if state in (None, kept.state)), key=lambda kept: kept.began)


def interrupted_in(directory: Path, sign: str) -> list[Kept]:
    """As `kept_runs`: those that may go on of a process that has died."""
    return [kept for kept in _kept_in(directory, sign, State.INTERRUPTED) if kept.state is State.INTERRUPTED]


def _kept_in(directory: Path, sign: str, state: State | None) -> list[Kept]:
    try:
        with reading(directory, sign) as db:
            return [_kept(directory, sign, entry) for entry in own_entries(directory, sign, db, state)]
    except (Damaged, sqlite3.Error) as error:
        return [_unreadable(sign, str(error))]
    except FileNotFoundError:
        return []  # it was removed meanwhile


def read_run(directory: Path, run: str) -> Past | None:
    """A run, whole; None if there is none.

    Raises:
        Damaged: it is not as it was written; or it is not found, and may be in a journal that can't be read.
        JournalUnread: the same of one that can't be read now.
    """
    damaged: JournalError | None = None
    for sign in databases(directory):
        try:
            with reading(directory, sign) as db:
                db.execute(
                    "begin"
                )  # its process may write meanwhile: what is said of it and its rows are of one moment
                for entry in own_entries(directory, sign, db):
                    if entry.run == run:
                        return past_of(directory, sign, db, entry)[0]
        except Damaged as error:
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


def read_rows(directory: Path, run: str, after: int, most: int) -> list[Row] | None:
    """So many rows of a run behind a number; None if there is no such run. What comes before them is not checked.

    Raises:
        Damaged, JournalUnread: they can't be read.
    """
    for sign in databases(directory):
        with contextlib.suppress(FileNotFoundError), as_things_are(directory, sign) as db:
            for entry in own_entries(directory, sign, db):
                if entry.run == run:
                    return _rows_after(db, entry, after, most, f"{run} in {path_of(directory, sign)}")
    return None


def _rows_after(db: sqlite3.Connection, entry: Entry, after: int, most: int, where: str) -> list[Row]:
    found: list[Row] = []
    with told(where):
        begin = db.execute("select max(seq) from rows where run=? and seq<=?", (entry.key, after + 1)).fetchone()[0]
        for seq, count, actor, small, crc, hash, blob in db.execute(_ROWS_FROM, (entry.key, begin or 1)):
            block = Block(seq, count, actor, small if hash is None else blob, crc)
            found += [row for row in unpacked(block) if row.seq > after]
            if len(found) >= most:
                break
    return found[:most]


def past_of(directory: Path, sign: str, db: sqlite3.Connection, entry: Entry) -> tuple[Past, list[Block]]:
    """A run of this database, and its blocks. Raises `Damaged`."""
    rows: list[Row] = []
    blocks: list[Block] = []
    where = f"{entry.run} in {path_of(directory, sign)}"
    try:
        for block in whole_blocks(db, entry, where):
            rows += unpacked(block)
            blocks.append(block)
        letters = letters_of(db, entry.run, where)
    except Damaged as error:
        raise Damaged(str(error), rows) from error
    return Past(kept=_kept(directory, sign, entry), rows=rows, letters=letters), blocks


def whole_blocks(db: sqlite3.Connection, entry: Entry, where: str) -> Iterator[Block]:
    """The rows of a run, each block checked; `where` is what a message calls it.

    Raises:
        Damaged: the next one is not as it was written, or is missing.
    """
    with told(where):
        found = (
            (seq, count, actor, small if hash is None else blob, sum, hash)
            for seq, count, actor, small, sum, hash, blob in db.execute(_ROWS, (entry.key,))
        )
        yield from checked(found, entry.run, entry.rows, entry.crc, where)


def letters_of(db: sqlite3.Connection, run: str, where: str) -> list[Letter]:
    """What was left for a run. Raises `Damaged`."""
    found = []
    with told(where):
        for data, at, sum in db.execute("select data, at, sum from inbox where run=? order by n", (run,)):
            if not isinstance(data, bytes) or sum != sum_of_letter(run, data, at):
                raise Damaged(f"{where} is damaged: what was left for it is not as it was written")
            found.append(Letter(data, at))
    return found


def own_entries(directory: Path, sign: str, db: sqlite3.Connection, state: State | None = None) -> Iterator[Entry]:
    """The runs whose truth is in this database: neither given up by its process, nor a copy that does not count."""
    for entry in entries(db, str(path_of(directory, sign)), state):
        if entry.owner == sign and (entry.state != CLAIMING or counts(directory, entry)):
            yield entry


def entries(db: sqlite3.Connection, where: str, state: State | None = None) -> Iterator[Entry]:
    """All that a database says of runs that stand so, as far as it alone tells. Raises `Damaged`."""
    wanted = "" if state is None else f"where state {'=' if state is State.OVER else '<>'} {OVER}"
    with told(where):
        for row in db.execute(f"select {RUN_COLUMNS} from runs {wanted} order by id"):  # noqa: S608 - of ours
            yield _entry(row, where)


def counts(directory: Path, copy: Entry) -> bool:
    """Whether the database that it was copied from has given the run up to this one, so that the copy is the run."""
    try:
        with reading(directory, copy.origin) as db:
            return all(entry.owner == copy.owner for entry in entries(db, copy.origin) if entry.run == copy.run)
    except FileNotFoundError:
        return True  # it goes when it has given all up, and copies that don't count went before


def leave(directory: Path, run: str, data: bytes, check: Callable[[list[bytes]], None] | None = None) -> bool:
    """Leave something for a run that nobody plays, and who goes on with it finds; False if there is none such.

    Args:
        check: is given what was left before, and raises if this may not be left, too.

    Raises:
        Damaged, JournalUnread, OSError: it can't be kept.
    """
    for sign in databases(directory, unsettled=True):
        if lives(directory, sign):
            continue
        with contextlib.suppress(FileNotFoundError), as_things_are(directory, sign) as db:
            db.execute("pragma synchronous=full")
            db.execute("begin immediate")  # from here on nobody claims it
            there = any(each.run == run and each.state != OVER for each in own_entries(directory, sign, db))
            if there:
                if check is not None:
                    check([letter.data for letter in letters_of(db, run, str(path_of(directory, sign)))])
                put_letter(db, run, data, time.time())
            db.execute("commit")
            if there:
                return True
    return False


@contextlib.contextmanager
def reading(directory: Path, sign: str) -> Iterator[sqlite3.Connection]:
    """The database of this process, for the length of the block.

    Raises:
        FileNotFoundError: there is none, or it was killed while it made it.
        Damaged: it is none.
    """
    path = path_of(directory, sign)
    with told(str(path)):
        try:
            db = opened(path)
        except sqlite3.OperationalError:
            if path.exists():
                raise
            raise FileNotFoundError(path) from None
    try:
        with told(str(path)):
            if not is_made(db):
                raise FileNotFoundError(path)
        yield db
    finally:
        db.close()


@contextlib.contextmanager
def as_things_are(directory: Path, sign: str) -> Iterator[sqlite3.Connection]:
    """As `reading`; what may pass by itself is told, too.

    Raises:
        JournalUnread: the disk is full, or somebody holds the file.
    """
    try:
        with reading(directory, sign) as db:
            yield db
    except sqlite3.Error as error:
        raise _unread(directory, sign, error) from error


def _unread(directory: Path, sign: str, error: sqlite3.Error) -> JournalUnread:
    return JournalUnread(f"the journal {path_of(directory, sign)} can't be read or written now: {error}")


@contextlib.contextmanager
def told(where: str) -> Iterator[None]:
    """What SQLite finds damaged is told as all other damage is."""
    try:
        yield
    except sqlite3.Error as error:
        if passes(error):
            raise
        raise Damaged(f"{where} is damaged: {error}") from error
    except (OverflowError, ValueError) as error:
        raise Damaged(f"{where} is damaged: {error}") from error


def _entry(row: tuple[Any, ...], where: str) -> Entry:
    *values, sum = row
    kinds = (int, str, int, str, str, int, int, int, float, float | None, bytes)
    if not all(isinstance(value, kind) for value, kind in zip(values, kinds, strict=True)):
        raise Damaged(f"{where} is damaged: what it says of a run can't be read")
    key, run, state, owner, origin, life, rows, crc, began, ended, about = values
    if sum != sum_of_run(run, state, owner, life, rows, crc, began, ended, about):
        raise Damaged(f"{where} is damaged: what it says of {run!r} is not as it was written")
    return Entry(
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


def _kept(directory: Path, sign: str, entry: Entry) -> Kept:
    state = State.OVER if entry.state == OVER else State.PLAYED if lives(directory, sign) else State.INTERRUPTED
    return Kept(
        run=entry.run,
        sign=sign,
        state=state,
        life=entry.life,
        rows=entry.rows,
        began=entry.began,
        ended=entry.ended,
        about=entry.about,
    )


def _unreadable(sign: str, why: str) -> Kept:
    state = State.INTERRUPTED
    return Kept(run="", sign=sign, state=state, life=0, rows=0, began=0.0, ended=None, about=b"", damage=why)
