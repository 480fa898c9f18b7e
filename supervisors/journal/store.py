"""One database of a journal: SQLite with a write-ahead log, written by one thread of one process.

    runs     a run each: how it stands, whose it is, how many rows it has, the sum of the last of them
    rows     blocks of them (`row`), numbered per run; nobody can write a number twice
    blobs    data over 16 KiB, once however many rows have it
    inbox    what was left for runs that nobody plays
    about    the schema

A run belongs to the process whose sign is its `owner`. Who claims it writes another sign there (`claiming`). So each
transaction here looks, by `data_version`, whether anybody else has written into the file since the last one, and if so,
whose the runs are by now: rows of a run that was claimed are not written (`RunRecord.refused`), however long this
process was stopped in between. SQLite lets one write at a time, so there is no moment in which both could.

A transaction that somebody waits for is on the disk when it is over (`synchronous=FULL`), with all before it. The
others outlive the process, and may be lost with the machine's power (`NORMAL`).

A database costs 2.5 ms to make, and an empty one is removed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from ...protocol.kernel.errors import JournalBroken, RunClaimed
from .row import (
    LARGE,
    OPEN,
    OVER,
    Block,
    Part,
    RunRecord,
    Unwritten,
    hash_of,
    packed,
    pieces,
    sum_of_letter,
    sum_of_run,
)
from .several import insert_rows, insert_runs, update_runs

ENDING = ".db"
SETTLED = "-over"
"""Beside a database whose process has ended, with all its runs: who looks for runs that may go on need not open it."""

BESIDE = ("-wal", "-shm", "-journal", SETTLED)
"""What lies beside a database; but for the last it is SQLite's."""

PATIENCE = 2.0
"""Seconds for others to be done with the file."""

LOG_LIMIT = 4 * 1024 * 1024
"""Bytes that the log keeps after it was taken over into the main file."""

_MAKE = """
create table if not exists about(key text primary key, value text not null) without rowid;
create table if not exists runs(id integer primary key autoincrement, run text not null unique, state int not null,
    owner text not null, origin text not null, life int not null, rows int not null, crc int not null,
    began real not null, ended real, about blob not null, sum int not null);
create table if not exists rows(n integer primary key, run int not null, seq int not null, count int not null,
    actor text not null, data blob, blob int, crc int not null);
create unique index if not exists by_run on rows(run, seq);
create index if not exists by_blob on rows(blob) where blob is not null;
create table if not exists blobs(id integer primary key, hash blob not null unique, data blob not null);
create table if not exists inbox(n integer primary key, run text not null, data blob not null, at real not null,
    sum int not null);
insert or replace into about values ('schema', '1');
"""

INSERT = "insert into rows(run, seq, count, actor, data, blob, crc) values (?, ?, ?, ?, ?, ?, ?)"
RUN_COLUMNS = "id, run, state, owner, origin, life, rows, crc, began, ended, about, sum"
_SELECT = f"select {RUN_COLUMNS} from runs where run=? and owner=?"  # noqa: S608 - names of ours

_PASSES = {"SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_NOMEM", "SQLITE_READONLY"}
_DOES_NOT_PASS = {"SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC", "SQLITE_IOERR_CORRUPTFS"}


@final
class Store:
    """See the module. Used by one thread.

    Args:
        directory: where databases are; its parent is there.
        sign: of this process.

    Attributes:
        checked: when it was last certain whose runs are whose, on the monotonic clock.
    """

    def __init__(self, directory: Path, sign: str) -> None:
        self.directory = directory
        self.sign = sign
        self.path = path_of(directory, sign)
        self.checked = 0.0
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._version = -1
        self._looks = 0
        self._behind = False
        self._full: bool | None = None
        self._in_doubt = False

    def write(self, group: Mapping[RunRecord, Part], *, full: bool) -> None:
        """One transaction; with `full` it is on the disk for good when this returns, and all before it.

        Of runs that are `refused` afterwards nothing was written.

        Raises:
            Unwritten: nothing of it is written.
            JournalBroken: nothing will ever be.
        """
        done = list[tuple[RunRecord, int, int, int]]()
        with self.transaction(full=full) as db:
            self._find_claimed(db, group)
            fresh: list[tuple[RunRecord, int, int, list[Block]]] = []
            inserts, updates = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
            for run, part in group.items():
                if self._in_doubt:
                    self._find_again(db, run, part)
                if run.refused is not None or (part.empty and run.key):
                    continue
                seq, crc, blocks = run.rows, run.crc, list[Block]()
                for rows in pieces(part.rows):
                    blocks.append(packed(seq + 1, rows, crc))
                    seq, crc = seq + len(rows), blocks[-1].crc
                if part.about is not None:
                    run.about = part.about
                if part.over:
                    run.state, run.ended = OVER, time.time()
                if not run.key:
                    fresh.append((run, seq, crc, blocks))
                    continue
                updates.append((run.state, seq, crc, run.ended, run.about, self._sum(run, seq, crc), run.key))
                inserts += [values_of(db, run.key, block) for block in blocks]
                done.append((run, run.key, seq, crc))
            keys = self._insert(db, [(run, seq, crc) for run, seq, crc, _ in fresh])
            for key, (run, seq, crc, blocks) in zip(keys, fresh, strict=True):
                inserts += [values_of(db, key, block) for block in blocks]
                done.append((run, key, seq, crc))
            insert_rows(db, inserts)
            update_runs(db, updates)
            if full and not done and self._behind:  # a transaction without a change reaches no disk
                db.execute("insert or replace into about values ('synced', ?)", (str(time.time_ns()),))
            if any(run.refused is None for run in group):  # else who has claimed them all has removed the file
                self._check_file()
        for run, key, seq, crc in done:
            if not run.key:
                run.checked = self._looks  # it was made in this transaction, so it is ours
            run.key, run.rows, run.crc = key, seq, crc
        self._in_doubt = False
        self._behind = not full and (self._behind or bool(done))

    def letter(self, run: str, data: bytes) -> None:
        """Leave this for a run of ours, for good.

        Raises:
            RunClaimed: it is ours no more.
            Unwritten, JournalBroken: see `write`.
        """
        with self.transaction(full=True) as db:
            if db.execute("select 1 from runs where run=? and owner=?", (run, self.sign)).fetchone() is None:
                raise RunClaimed(f"nothing can be left for {run} here: another process has claimed it")
            put_letter(db, run, data, time.time())

    def record(self, run: str) -> RunRecord:
        """A run of ours as it was written last. Raises as `letter`."""
        with self.transaction(full=False) as db:
            found = db.execute(_SELECT, (run, self.sign)).fetchone()
        if found is None:
            raise RunClaimed(f"{run} can't go on here: it was removed, or another process has claimed it")
        record = RunRecord(run, found[10])
        record.key, _, record.state, _, record.origin, record.life, record.rows, record.crc, record.began = found[:9]
        record.ended, _, sum = found[9:]
        if sum != self._sum(record, record.rows, record.crc):
            raise JournalBroken(f"the journal {self.path} has something else of '{run}' than was written")
        return record

    @contextlib.contextmanager
    def transaction(self, *, full: bool) -> Iterator[sqlite3.Connection]:
        """The database, in a transaction of ours.

        Raises:
            Unwritten, JournalBroken: see `write`.
        """
        try:
            db = self._opened()
            if full is not self._full:
                db.execute(f"pragma synchronous={'full' if full else 'normal'}")
                self._full = full
            db.execute("begin immediate")
            yield db
            self.checked = time.monotonic()
            db.execute("commit")
        except (sqlite3.Error, OSError) as error:
            self._let_go()
            if passes(error):
                raise Unwritten(_told(error)) from error
            raise JournalBroken(f"the journal {self.path} can't be written any more: {_told(error)}") from error
        except BaseException:  # whatever it was, half a transaction must not stay open
            self._let_go()
            raise

    @property
    def is_open(self) -> bool:
        """Whether anything was written, as far as the last try tells."""
        return self._db is not None

    def close(self) -> bool:
        """Let go of the file, and remove it if no run is in it; whether it is still there."""
        empty = settled = False
        with contextlib.suppress(sqlite3.Error, OSError, Unwritten, JournalBroken):
            if self._db is not None:
                empty = self._db.execute("select 1 from runs where owner=? limit 1", (self.sign,)).fetchone() is None
                settled = is_settled(self._db)
        self._let_go()
        if empty:
            remove(self.path)
        elif settled:
            settle(self.path)
        return not empty and self.path.exists()

    # --- one connection -----------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._db, self._full, self._version = opened(self.path, make=True), None, -1
            found = self.path.stat()
            self._file = found.st_dev, found.st_ino
        return self._db

    def _let_go(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            self._in_doubt = True  # what a failed commit has left in the log may count when the log is read again
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _check_file(self) -> None:
        """A file that was removed takes everything, and keeps nothing."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise JournalBroken(f"the journal {self.path} was removed while it was written")

    # --- runs ---------------------------------------------------------------------------------------------

    def _find_claimed(self, db: sqlite3.Connection, group: Iterable[RunRecord]) -> None:
        """Refuse the runs that are not ours any more; they are looked at only if another connection has written."""
        (version,) = db.execute("pragma data_version").fetchone()
        if version != self._version:
            self._version = version
            self._looks += 1
        for run in group:
            if run.checked == self._looks or not run.key:
                continue
            row = db.execute("select owner from runs where id=? and run=?", (run.key, run.run)).fetchone()
            if row is not None and row[0] == self.sign:
                run.checked = self._looks
            else:
                who = "it was removed" if row is None else f"the process {row[0]} has claimed it"
                run.refused = RunClaimed(f"nothing more of {run.run} can be kept or done here: {who}")

    def _insert(self, db: sqlite3.Connection, fresh: Sequence[tuple[RunRecord, int, int]]) -> Sequence[int]:
        """The numbers of new runs; one of the same id that is over, or was claimed by others, gives way."""
        values = [self._values(run, rows, crc) for run, rows, crc in fresh]
        if (keys := insert_runs(db, values)) is not None:
            return keys
        for each, _, _ in fresh:
            found = db.execute("select id, state, owner from runs where run=?", (each.run,)).fetchone()
            if found is not None and (found[1], found[2]) == (OPEN, self.sign):
                raise JournalBroken(f"the journal {self.path} has a run '{each.run}' that goes on already")
            if found is not None:
                forget(db, found[0])
        return [insert_run(db, of_run) for of_run in values]

    def _values(self, run: RunRecord, rows: int, crc: int) -> tuple[Any, ...]:
        known = run.run, run.state, self.sign, run.origin, run.life, rows, crc, run.began, run.ended, run.about
        return *known, self._sum(run, rows, crc)

    def _sum(self, run: RunRecord, rows: int, crc: int) -> int:
        return sum_of_run(run.run, run.state, self.sign, run.life, rows, crc, run.began, run.ended, run.about)

    def _find_again(self, db: sqlite3.Connection, run: RunRecord, part: Part) -> None:
        """Take out of the part what is there: a commit that has failed may count all the same."""
        found = db.execute("select id, rows, crc from runs where run=? and owner=?", (run.run, self.sign)).fetchone()
        if found is None or run.refused is not None:
            return  # never written, or refused
        key, there, crc = found
        part.drop_written(run, there, crc, f"the journal {self.path}")
        run.key = key


def values_of(db: sqlite3.Connection, run: int, block: Block) -> tuple[Any, ...]:
    """A block as `INSERT` takes it; what is large becomes a blob."""
    large = block.count == 1 and len(block.data) > LARGE
    small, blob = (None, blob_of(db, block.data)) if large else (block.data, None)
    return run, block.seq, block.count, block.actor, small, blob, block.crc


def path_of(directory: Path, sign: str) -> Path:
    """The database of the process with this sign."""
    return directory / f"{sign}{ENDING}"


def databases(directory: Path, *, unsettled: bool = False) -> list[str]:
    """The signs of the processes that have databases here; the oldest first, as far as files tell.

    Args:
        unsettled: only those in which there may be runs that go on.
    """
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.glob(f"*{ENDING}"):
            if unsettled and path.with_name(path.name + SETTLED).exists():
                continue
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path.name.removesuffix(ENDING)))
    return [sign for _, sign in sorted(found)]


def opened(path: Path, *, make: bool = False) -> sqlite3.Connection:
    """A connection to a database.

    Raises:
        sqlite3.Error, OSError: there is none.
    """
    if make and not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite asks the umask
        _sync(path.parent)
    uri = f"{path.as_uri()}?mode=rw"
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        db.execute("pragma trusted_schema=off")
        if make:
            db.execute("pragma auto_vacuum=incremental")
            db.execute("pragma journal_mode=wal")
            db.execute(f"pragma journal_size_limit={LOG_LIMIT}")
            if not is_made(db):
                db.executescript(f"begin; {_MAKE} commit;")
    except BaseException:  # whatever it was, the file must not stay open
        db.close()
        raise
    return db


def is_made(db: sqlite3.Connection) -> bool:
    """Whether the tables are there, which are made all at once. One without tables that is longer is damaged."""
    tables = db.execute("select 1 from sqlite_master limit 1").fetchone()
    return tables is not None or db.execute("pragma page_count").fetchone()[0] > 1


def insert_run(db: sqlite3.Connection, values: Sequence[Any]) -> int:
    """Its number; `values` are those of `RUN_COLUMNS`, without the number."""
    marks = ", ".join("?" * len(values))
    key = db.execute(f"insert into runs({RUN_COLUMNS}) values (null, {marks})", values).lastrowid  # noqa: S608 - ours
    assert key is not None
    return key


def forget(db: sqlite3.Connection, key: int) -> None:
    """Delete a run, its rows and what was left for it; what they have of blobs is removed later (`retention`)."""
    db.execute("delete from inbox where run=(select run from runs where id=?)", (key,))
    db.execute("delete from rows where run=?", (key,))
    db.execute("delete from runs where id=?", (key,))


def blob_of(db: sqlite3.Connection, data: bytes) -> int:
    """The number of the blob with this data, which is there from now on."""
    hash = hash_of(data)
    found = db.execute("select id from blobs where hash=?", (hash,)).fetchone()
    if found is not None:
        return int(found[0])
    key = db.execute("insert into blobs(hash, data) values (?, ?)", (hash, data)).lastrowid
    assert key is not None
    return key


def put_letter(db: sqlite3.Connection, run: str, data: bytes, at: float) -> None:
    """Put this into the inbox of a run."""
    values = (run, data, at, sum_of_letter(run, data, at))
    db.execute("insert into inbox(run, data, at, sum) values (?, ?, ?, ?)", values)


def is_settled(db: sqlite3.Connection) -> bool:
    """Whether all runs in it are over, or others have claimed them."""
    return db.execute("select 1 from runs where state<>? limit 1", (OVER,)).fetchone() is None


def settle(path: Path) -> None:
    """Say of the database of a process that has ended that none of its runs may go on."""
    with contextlib.suppress(OSError):
        path.with_name(path.name + SETTLED).touch(mode=0o600)


def remove(path: Path) -> None:
    """Remove a database, with all that SQLite has beside it."""
    for file in (path, *(path.with_name(path.name + end) for end in BESIDE)):
        with contextlib.suppress(OSError):
            file.unlink()


def passes(error: Exception) -> bool:
    """Whether what can't be written now may be written later: there will be room again, or the lock be free."""
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, OSError)
    name: str = getattr(error, "sqlite_errorname", "")
    if name in _DOES_NOT_PASS:  # a disk that has refused once says next time that all is there, and it is not
        return False
    return name.startswith("SQLITE_IOERR") or any(name.startswith(each) for each in _PASSES)


def _told(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if name == "SQLITE_IOERR_SHMSIZE":  # SQLite's words for it, "disk I/O error", sound like a broken disk
        return f"the disk is full ({name})"
    return f"{error} ({name})" if name else str(error)


def _sync(directory: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
