"""SQLite database of one process's journal, with a write-ahead log, written by one thread.

    runs     one row per run: state, owner, number of rows, checksum of the last one
    rows     blocks (`row`), numbered per run; a unique index keeps a number from being written twice
    blobs    data over 16 KiB, stored once for all rows with the same content
    inbox    entries (answers of users) for runs that no process executes
    about    version of the schema

**Ownership.** A run belongs to the process that its `owner` names. A process that claims it writes its own name there
(`claiming`). So each transaction here checks by `data_version` whether another connection has written to the file since
the last one, and if so, whether the runs still belong to this process. Rows of a claimed run are not written
(`RunRecord.refused`), however long this process was stopped in between. SQLite admits one writer at a time, so no
moment exists in which both could write.

**Durability.** A transaction with a barrier is on the disk when it ends (`synchronous=FULL`), with all transactions
before it. The others survive the death of the process, but not a power failure (`NORMAL`). A commit that reports an
error may still take effect when SQLite reads its log again, so after an error the stored rows are compared with the
pending ones (`RunRows.drop_written`).

**Cost.** Creating a database takes 2.5 ms, and an empty one is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, final

from ...protocol.kernel.errors import JournalBroken, JournalError, JournalPlace, RunClaimed
from .liveness_lock import unique_process_name
from .row import (
    LARGE,
    OPEN,
    OVER,
    RowBlock,
    RunRecord,
    RunRows,
    Unstorable,
    Unwritten,
    entry_checksum,
    hash_of,
    id_taken,
    packed,
    pieces,
    sum_of_run,
)

ENDING = ".db"
SETTLED = "-over"
"""Suffix of a marker file: all runs of this database have ended, so a search for interrupted runs need not open it."""

UNNAMED = "-new"
"""Suffix of a database that is being created; a process killed in that moment leaves it behind."""

BESIDE = ("-wal", "-shm", "-journal", SETTLED)
"""Suffixes of the files that belong to a database; all but the last are SQLite's."""

PATIENCE = 2.0
"""Seconds to wait for a lock of another connection."""

LOG_LIMIT = 4 * 1024 * 1024
"""Size in bytes that the log keeps after a checkpoint."""

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
_SELECT = f"select {RUN_COLUMNS} from runs where run=? and owner=?"  # noqa: S608 - constant names

_PASSES = {"SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_NOMEM", "SQLITE_READONLY"}
_OF_VALUES = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""Errors of what is written. The others are errors of the file or the disk."""

_DOES_NOT_PASS = {"SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC", "SQLITE_IOERR_CORRUPTFS"}


@final
class SqliteStore:
    """The database of this process. Used by one thread; created with the first row.

    Args:
        directory: directory of the databases; its parent exists.
        sign: unique name of this process.

    Attributes:
        checked: time of the last check of ownership, on the monotonic clock.
    """

    def __init__(self, directory: Path, sign: str) -> None:
        self.directory = directory
        self.sign = sign
        self.path = path_of(directory, sign)
        self.checked = 0.0
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._version = -1
        self._checks = 0
        self._behind = False
        self._full: bool | None = None
        self._in_doubt = False

    def write(self, group: Mapping[RunRecord, RunRows], *, full: bool) -> None:
        """Write a group in one transaction. With `full`, it and all earlier ones are on the disk when this returns.

        Nothing is written of runs that are `refused` afterwards.

        Raises:
            Unwritten: the group was not written; a later attempt may succeed.
            Unstorable: the group was not written; one of its runs has a value that can never be stored.
            JournalBroken: nothing can ever be written again.
        """
        done = list[tuple[RunRecord, int, int, int]]()
        with self.transaction(full=full) as db:
            self._find_claimed(db, group)
            fresh: list[tuple[RunRecord, int, int, list[RowBlock]]] = []
            inserts, updates = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
            for run, part in group.items():
                if self._in_doubt:
                    self._drop_written(db, run, part)
                if run.refused is not None or (part.empty and run.key):
                    continue
                seq, crc, blocks = run.rows, run.crc, list[RowBlock]()
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
            keys = insert_runs(db, [self._values(run, seq, crc) for run, seq, crc, _ in fresh])
            if keys is not None:
                for key, (run, seq, crc, blocks) in zip(keys, fresh, strict=True):
                    inserts += [values_of(db, key, block) for block in blocks]
                    done.append((run, key, seq, crc))
            insert_rows(db, inserts)
            update_runs(db, updates)
            if keys is None:  # after the updates: the run that has the id may end in this group
                done += self._insert_each(db, fresh)
            if full and not done and self._behind:  # SQLite syncs nothing for a transaction without a change
                db.execute("insert or replace into about values ('synced', ?)", (str(time.time_ns()),))
            # If all runs were claimed, the claiming process has removed the file; this is not an error.
            if any(run.refused is None for run in group):
                self._check_file()
        for run, key, seq, crc in done:
            if not run.key:
                run.checked = self._checks  # inserted in this transaction, so it belongs to this process
            run.key, run.rows, run.crc = key, seq, crc
        self._in_doubt = False
        self._behind = not full and (self._behind or bool(done))

    def add_to_inbox(self, run: str, data: bytes) -> None:
        """Add an entry to the inbox of a run of this process, durably.

        Raises:
            RunClaimed: the run belongs to another process now.
            Unwritten, JournalBroken: see `write`.
        """
        with self.transaction(full=True) as db:
            if db.execute("select 1 from runs where run=? and owner=?", (run, self.sign)).fetchone() is None:
                raise RunClaimed(f"an answer for {run} can't be stored here: another process has claimed the run")
            insert_entry(db, run, data, time.time())

    def record(self, run: str) -> RunRecord:
        """Return the stored state of a run of this process. Raises like `add_to_inbox`."""
        with self.transaction(full=False) as db:
            found = db.execute(_SELECT, (run, self.sign)).fetchone()
        if found is None:
            raise RunClaimed(f"{run} can't continue in this process: it was removed, or another process has claimed it")
        record = RunRecord(run, found[10])
        record.key, _, record.state, _, record.origin, record.life, record.rows, record.crc, record.began = found[:9]
        record.ended, _, sum = found[9:]
        if sum != self._sum(record, record.rows, record.crc):
            raise JournalBroken(f"the journal {self.path} has other rows of '{run}' than this process has written")
        return record

    @contextlib.contextmanager
    def transaction(self, *, full: bool) -> Iterator[sqlite3.Connection]:
        """Open a transaction.

        Raises:
            Unwritten, Unstorable, JournalBroken: see `write`.
        """
        try:
            db = self._connected()
            if full is not self._full:
                db.execute(f"pragma synchronous={'full' if full else 'normal'}")
                self._full = full
            db.execute("begin immediate")
            yield db
            # The transaction holds the write lock, so no process can claim a run before the commit.
            self.checked = time.monotonic()
            db.execute("commit")
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            if passes(error):
                raise Unwritten(_error_text(error)) from error
            if isinstance(error, _OF_VALUES):
                raise Unstorable(_error_text(error)) from error
            raise JournalBroken(f"the journal {self.path} can't be written any more: {_error_text(error)}") from error
        except (OverflowError, ValueError) as error:  # sqlite3 raises them for texts and numbers that it can't encode
            self._disconnect()
            raise Unstorable(f"{error}") from error
        except BaseException:  # whatever it was, half a transaction must not stay open
            self._disconnect()
            raise

    @property
    def is_open(self) -> bool:
        """True if the database is open: something was written, and the last attempt did not fail."""
        return self._db is not None

    def close(self) -> bool:
        """Close the database, remove it if this process owns no run in it, and return whether the file still exists."""
        empty = settled = False
        with contextlib.suppress(sqlite3.Error, OSError, Unwritten, JournalBroken):
            if self._db is not None:
                empty = self._db.execute("select 1 from runs where owner=? limit 1", (self.sign,)).fetchone() is None
                settled = is_settled(self._db)
        self._disconnect()
        if empty:
            remove(self.path)
        elif settled:
            mark_settled(self.path)
        return not empty and self.path.exists()

    # --- one connection -----------------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        if self._db is None:
            self._db, self._full, self._version = opened(self.path, make=True), None, -1
            found = self.path.stat()
            self._file = found.st_dev, found.st_ino
        return self._db

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            self._in_doubt = True  # a commit that failed may take effect when the log is read again
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _check_file(self) -> None:
        """Raise if the file was removed: SQLite would continue to write to the deleted file without an error."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise JournalBroken(f"the journal {self.path} was removed while it was written")

    # --- runs ---------------------------------------------------------------------------------------------

    def _find_claimed(self, db: sqlite3.Connection, group: Iterable[RunRecord]) -> None:
        """Refuse runs that belong to another process now. They are checked only if another connection has written."""
        (version,) = db.execute("pragma data_version").fetchone()
        if version != self._version:
            self._version = version
            self._checks += 1
        for run in group:
            if run.checked == self._checks or not run.key:
                continue
            row = db.execute("select owner from runs where id=? and run=?", (run.key, run.run)).fetchone()
            if row is not None and row[0] == self.sign:
                run.checked = self._checks
            else:
                who = "it was removed" if row is None else f"the process {row[0]} has claimed it"
                run.refused = RunClaimed(f"{run.run} can't continue in this process: {who}")

    def _insert_each(
        self, db: sqlite3.Connection, fresh: Sequence[tuple[RunRecord, int, int, list[RowBlock]]]
    ) -> Iterator[tuple[RunRecord, int, int, int]]:
        """Insert new runs of which one has the id of a stored run; yield each with its number, rows, and checksum.

        An ended or claimed run with the same id is deleted. If that run is under way, the new one is refused.
        """
        for run, seq, crc, blocks in fresh:
            found = db.execute("select id, state, owner from runs where run=?", (run.run,)).fetchone()
            if found is not None and (found[1], found[2]) == (OPEN, self.sign):
                run.refused = id_taken(run.run)
                continue
            if found is not None:
                forget(db, found[0])
            key = insert_run(db, self._values(run, seq, crc))
            insert_rows(db, [values_of(db, key, block) for block in blocks])
            yield run, key, seq, crc

    def _values(self, run: RunRecord, rows: int, crc: int) -> tuple[Any, ...]:
        known = run.run, run.state, self.sign, run.origin, run.life, rows, crc, run.began, run.ended, run.about
        return *known, self._sum(run, rows, crc)

    def _sum(self, run: RunRecord, rows: int, crc: int) -> int:
        return sum_of_run(run.run, run.state, self.sign, run.life, rows, crc, run.began, run.ended, run.about)

    def _drop_written(self, db: sqlite3.Connection, run: RunRecord, part: RunRows) -> None:
        """Remove stored rows from the part: a commit that reported an error may have taken effect."""
        # A new run may have the id of an older one: the time tells them apart.
        which = "select id, rows, crc from runs where run=? and owner=? and began=?"
        found = db.execute(which, (run.run, self.sign, run.began)).fetchone()
        if found is None or run.refused is not None:
            return  # never written, or refused
        key, stored, crc = found
        part.drop_written(run, stored, crc, f"the journal {self.path}")
        run.key = key


def values_of(db: sqlite3.Connection, run: int, block: RowBlock) -> tuple[Any, ...]:
    """Return the values of `INSERT` for a block; large data becomes a blob."""
    large = block.count == 1 and len(block.data) > LARGE
    small, blob = (None, blob_of(db, block.data)) if large else (block.data, None)
    return run, block.seq, block.count, block.actor, small, blob, block.crc


def path_of(directory: Path, sign: str) -> Path:
    """Return the path of the database of a process."""
    return directory / f"{sign}{ENDING}"


def databases(directory: Path, *, unsettled: bool = False) -> list[str]:
    """Return the names of the processes that have databases here, by the time of the last change.

    Args:
        unsettled: only processes that may hold runs that have not ended.
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
    """Connect to a database; with `make`, create it if it does not exist.

    Raises:
        sqlite3.Error, OSError: it does not exist or can't be opened.
    """
    if make and not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _create(path)
    # By default SQLite would create a database that was removed meanwhile. An empty file counts as a damaged journal.
    uri = f"{path.as_uri()}?mode=rw"
    # `isolation_level=None`: the sqlite3 module must not begin transactions by itself, which would not be immediate.
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        # SQLite's advice for files of unknown origin: functions in their schema can't have side effects.
        db.execute("pragma trusted_schema=off")
        if make:
            db.execute("pragma journal_mode=wal")
            db.execute(f"pragma journal_size_limit={LOG_LIMIT}")
    except BaseException:  # whatever it was, the file must not stay open
        db.close()
        raise
    return db


def _create(path: Path) -> None:
    """Create a database with its tables and no runs.

    It gets its name once complete, so a file without tables, even an empty one, was damaged later.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        # `auto_vacuum` has no effect once a table exists. `retention` needs it to return space to the disk.
        db.executescript(f"pragma auto_vacuum=incremental; begin; {_MAKE} commit;")
        content = db.serialize()
    unnamed = path.with_name(path.name + UNNAMED)
    try:
        with open(unnamed, "wb", opener=_private) as file:  # SQLite would use the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unnamed.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            unnamed.unlink()
        raise
    # A rename is durable only when its directory is on the disk.
    _sync(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def has_tables(db: sqlite3.Connection) -> bool:
    """Return whether this is the database of a journal."""
    return db.execute("select 1 from sqlite_master where name='runs'").fetchone() is not None


def insert_run(db: sqlite3.Connection, values: Sequence[Any]) -> int:
    """Insert a run and return its number; `values` follow `RUN_COLUMNS` without the number."""
    marks = ", ".join("?" * len(values))
    key = db.execute(f"insert into runs({RUN_COLUMNS}) values (null, {marks})", values).lastrowid  # noqa: S608 - ours
    assert key is not None
    return key


def forget(db: sqlite3.Connection, key: int) -> None:
    """Delete a run, its rows and its inbox. Blobs are removed later (`retention`)."""
    db.execute("delete from inbox where run=(select run from runs where id=?)", (key,))
    db.execute("delete from rows where run=?", (key,))
    db.execute("delete from runs where id=?", (key,))


def blob_of(db: sqlite3.Connection, data: bytes) -> int:
    """Return the number of the blob with this data, inserting it if necessary."""
    hash = hash_of(data)
    found = db.execute("select id from blobs where hash=?", (hash,)).fetchone()
    if found is not None:
        return int(found[0])
    key = db.execute("insert into blobs(hash, data) values (?, ?)", (hash, data)).lastrowid
    assert key is not None
    return key


def insert_entry(db: sqlite3.Connection, run: str, data: bytes, at: float) -> None:
    """Insert an entry into the inbox of a run; `at` is its time in seconds since 1970."""
    values = (run, data, at, entry_checksum(run, data, at))
    db.execute("insert into inbox(run, data, at, sum) values (?, ?, ?, ?)", values)


def is_settled(db: sqlite3.Connection) -> bool:
    """Return whether all runs in it have ended. A claimed run counts with its state at the claim."""
    return db.execute("select 1 from runs where state<>? limit 1", (OVER,)).fetchone() is None


def mark_settled(path: Path) -> None:
    """Create the marker file that says that no run of this database can be resumed."""
    with contextlib.suppress(OSError):
        path.with_name(path.name + SETTLED).touch(mode=0o600)


def remove(path: Path) -> None:
    """Remove a database and all files that belong to it."""
    for file in (path, *(path.with_name(path.name + end) for end in BESIDE)):
        with contextlib.suppress(OSError):
            file.unlink()


def passes(error: Exception) -> bool:
    """Return whether a later attempt may succeed: there may be room on the disk, or the lock may be free."""
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, OSError)
    name: str = getattr(error, "sqlite_errorname", "")
    if name in _DOES_NOT_PASS:  # after a failed fsync the next one reports success, though the data is lost
        return False
    return name.startswith("SQLITE_IOERR") or any(name.startswith(each) for each in _PASSES)


def _error_text(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if name == "SQLITE_IOERR_SHMSIZE":  # SQLite's text, "disk I/O error", would suggest a broken disk
        return f"the disk is full ({name})"
    return f"{error} ({name})" if name else str(error)


def _sync(directory: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- bulk inserts -----------------------------------------------------------------------------------------

SIZES = (64, 16, 4, 1)
"""Rows per statement of a bulk insert.

`executemany` executes SQLite once per row and releases the interpreter's lock each time. While the event loop is busy,
that costs more than the row itself. So rows are written in groups, each with a prepared statement.
"""

_INTO_ROWS = "insert into rows(run, seq, count, actor, data, blob, crc) values {}"
_INTO_RUNS = "insert into runs(id, run, state, owner, origin, life, rows, crc, began, ended, about, sum) values {}"
_UPDATE = (
    "update runs set state=v.column1, rows=v.column2, crc=v.column3, ended=v.column4, about=v.column5, sum=v.column6"
    " from (values {}) as v where runs.id=v.column7"
)


def insert_rows(db: sqlite3.Connection, values: Sequence[Sequence[Any]]) -> None:
    """Insert blocks of rows; `values` fill the placeholders of `INSERT`."""
    _in_groups(db, _INTO_ROWS, values)


def insert_runs(db: sqlite3.Connection, values: Sequence[Sequence[Any]]) -> Sequence[int] | None:
    """Insert runs and return their numbers; None, and nothing is written, if one of the ids exists already."""
    if not values:
        return ()
    # An insert of several rows returns only the last number, so the numbers are chosen here, above all that
    # `autoincrement` has used.
    (last,) = db.execute("select coalesce(max(seq), 0) from sqlite_sequence where name='runs'").fetchone()
    keys = range(last + 1, last + 1 + len(values))
    # A duplicate id must not undo the other changes of the group. `_insert_each` then finds the run that has the id.
    db.execute("savepoint several")
    try:
        _in_groups(db, _INTO_RUNS, [(key, *each) for key, each in zip(keys, values, strict=True)])
    except sqlite3.IntegrityError:
        db.execute("rollback to several")
        return None
    finally:
        db.execute("release several")
    return keys


def update_runs(db: sqlite3.Connection, values: Sequence[Sequence[Any]]) -> None:
    """Update runs; the number of each is its last value."""
    _in_groups(db, _UPDATE, values)


def _in_groups(db: sqlite3.Connection, form: str, values: Sequence[Sequence[Any]]) -> None:
    done = 0
    for size in SIZES:
        while len(values) - done >= size:
            group = values[done : done + size]
            db.execute(_statement(form, size, len(group[0])), tuple(chain.from_iterable(group)))
            done += size


@cache
def _statement(form: str, rows: int, columns: int) -> str:
    return form.format(", ".join(["(" + ", ".join("?" * columns) + ")"] * rows))


# --- file systems -----------------------------------------------------------------------------------------

SHARED = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
SHARED |= {"ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
"""Types of file systems that machines share, as the kernel names them."""

SHARED_BY_FUSE = {"blobfuse2", "ceph", "curlftpfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "juicefs", "mfs"}
SHARED_BY_FUSE |= {"rclone", "s3fs", "sshfs"}
"""The part after `fuse.` in such a type."""

_ESCAPED = re.compile(r"\\([0-7]{3})")  # a blank is written as \040


def check_file_system(directory: Path) -> None:
    """Raise `JournalPlace` if this directory, which may not exist yet, is on a file system that machines share.

    SQLite's log needs memory that all processes of the file map, and locks that all of them see. Shared file systems
    guarantee neither, and lose data without an error. So they are refused by name.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):  # without /proc nothing is known
        kind = file_system_type(os.path.realpath(directory), Path("/proc/self/mountinfo").read_text())
        if is_shared(kind):
            raise JournalPlace(
                f"durable runs can't be stored in {directory}: it is on a {kind} file system, which "
                "other machines may share, and what is written there can get lost; set "
                "XDG_STATE_HOME to a directory on a local disk"
            )


def is_shared(kind: str) -> bool:
    """Return whether machines may share a file system of this type."""
    outer, _, inner = kind.partition(".")
    return kind in SHARED or (outer.startswith("fuse") and inner in SHARED_BY_FUSE)


def file_system_type(path: str, mountinfo: str) -> str:
    """Return the type of the file system of an absolute path without links, from the content of `mountinfo`."""
    best, found = -1, ""
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        point = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), fields.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of two mounts at one path the later one is visible
            best, found = len(point), rest.split(" ")[0]
    return found


# --- import -----------------------------------------------------------------------------------------------


def import_run(
    directory: Path,
    run: str,
    life: int,
    when: tuple[float, float | None],
    about: bytes,
    rows: Sequence[tuple[str, bytes]],
    letters: Sequence[tuple[bytes, float]],
) -> None:
    """Store an exported run in a database of its own, as a run of a process that has ended. Blocking.

    Args:
        when: times at which it began and ended; the second is None if it has not ended.
        rows: actor and data of each row.
        letters: data and time (seconds since 1970) of each inbox entry.

    Raises:
        JournalError: it can't be written; `JournalPlace` if the directory is on a shared file system.
    """
    check_file_system(directory)
    store = SqliteStore(directory, unique_process_name())
    record = RunRecord(run, about)
    record.life, (record.began, ended) = life, when
    part = RunRows()
    part.rows, part.over = list(rows), ended is not None
    try:
        store.write({record: part}, full=True)
        with store.transaction(full=True) as db:
            for data, at in letters:
                insert_entry(db, run, data, at)
    except Unwritten as error:
        raise JournalError(f"the run can't be stored in {directory}: {error}") from error
    finally:
        store.close()
