"""Storage for the journal of a worker: writes the runs that it owns to the database of the cluster.

    store = ClusterStore(dsn, sign, name, lease)
    journal = Journal(store, None)
    store.adopt("run-7f3a01bc", key, life)    # taken from the queue
    journal.begin("run-7f3a01bc", about)      # from here on as in a file

**The fence.** A group is one transaction in one round trip (a pipeline). Its first statement (`_FENCE`) updates those
runs of the group whose owner and life are this worker's, and thereby locks them. The following statements insert only
for runs that it has updated. So a worker that has lost a run writes nothing of it, and learns of it
(`RunRecord.refused`).

**Data beside rows** (`RunRows.beside`): `event` is a line of the log, by its number; `info` the run's status for lists;
`asked` a question, by its id; `closed` the party that closed it.

**Lost answers.** If the connection fails during a commit, the stored rows are read before the group is written again.

**Lost rows.** A database that crashes or fails over may lose rows of transactions without a barrier, although their
commit succeeded. So the fence also compares the number of rows of each run: if there are fewer, the run is refused like
one that another worker has taken, and resumes from the rows that are there. No effect depended on the lost rows, since
each effect waits for a barrier, which makes all earlier rows durable too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ...protocol.kernel.errors import RunClaimed
from ..journal.row import LARGE, OVER, RowBlock, RunRecord, RunRows, StoredRow, hash_of, id_taken, packed, pieces
from .database import connected, journal_errors
from .queries import put_blob
from .queue import count
from .tables import CHANNEL

if TYPE_CHECKING:
    import psycopg

EVENT, INFO, ASKED, CLOSED = "event", "info", "asked", "closed"
"""Kinds of data beside rows."""

MOST_TOLD = 7_000
"""Most bytes of a notification; PostgreSQL's limit is 8,000."""

_FENCE = """
update callboard.runs r set state = v.state, rows = v.rows, crc = v.crc, ended = v.ended,
    about = coalesce(v.about, r.about), info = coalesce(v.info, r.info),
    changed = case when v.info is null then r.changed else nextval('callboard.changes') end,
    owner = case when v.state = 1 then null else r.owner end
from unnest(%s::bigint[], %s::int[], %s::int[], %s::int[], %s::bigint[], %s::double precision[], %s::bytea[],
    %s::bytea[], %s::int[]) as v(id, life, state, rows, crc, ended, about, info, had)
where r.id = v.id and r.owner = %s and r.life = v.life and r.rows = v.had
returning r.id
"""
# `for update` waits for an earlier transaction of this worker that is still running on a connection that has failed.
_LOOK = (
    "select id, run, life, rows, crc from callboard.runs where id = any(%s) and owner = %s"
    " order by id for no key update"
)
_ROWS = """
insert into callboard.rows(run, seq, count, actor, data, blob, crc)
select v.run, v.seq, v.count, v.actor, v.data, b.id, v.crc
from unnest(%s::bigint[], %s::int[], %s::int[], %s::text[], %s::bytea[], %s::bytea[], %s::bigint[])
    as v(run, seq, count, actor, data, hash, crc)
join callboard.runs r on r.id = v.run and r.xmin = pg_current_xact_id()::xid
left join callboard.blobs b on b.hash = v.hash
"""
# `xmin` is the transaction that updated a run last, so the join selects the runs that the fence has let through.
_BLOBS = """
insert into callboard.blobs(hash, data) select v.hash, v.data from unnest(%s::bytea[], %s::bytea[]) as v(hash, data)
on conflict (hash) do nothing
"""
# After a lost answer the group is written again. `_drop_stored` removes rows from it, but no events, and the block may
# have grown meanwhile.
_EVENTS = """
insert into callboard.events(run, first, last, data)
select v.run, v.first, v.last, v.data
from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[]) as v(run, first, last, data)
join callboard.runs r on r.id = v.run and r.xmin = pg_current_xact_id()::xid
on conflict (run, first) do update set last = excluded.last, data = excluded.data
    where excluded.last >= callboard.events.last
"""
# The next incarnation asks an open question again under its old id. If it was closed meanwhile, it is open again.
_ASKED = """
insert into callboard.questions(id, run, data, changed)
select v.id, v.run, v.data, nextval('callboard.changes')
from unnest(%s::text[], %s::bigint[], %s::bytea[]) as v(id, run, data)
join callboard.runs r on r.id = v.run and r.xmin = pg_current_xact_id()::xid
on conflict (id) do update set closed = null, changed = nextval('callboard.changes')
    where callboard.questions.answer is null
"""
_CLOSED = """
update callboard.questions q set closed = v.by, changed = nextval('callboard.changes')
from unnest(%s::text[], %s::text[], %s::bigint[]) as v(id, by, run)
join callboard.runs r on r.id = v.run and r.xmin = pg_current_xact_id()::xid
where q.id = v.id and q.closed is null
"""
_BEGIN = """
insert into callboard.runs(run, owner, life, crc, began, about, info, taken)
values (%s, %s, 1, %s, %s, %s, '', now()) on conflict (run) do nothing
"""


@final
class ClusterStore:
    """Storage for the journal of a worker. Used by the journal's thread, except for `adopt`.

    Args:
        dsn, name, lease: see `database.connected`.
        sign: unique name of this process, as in the table of workers.
    """

    def __init__(self, dsn: str, sign: str, name: str, lease: float) -> None:
        self.sign = sign
        self.directory = Path()
        self.checked = 0.0
        self._how = dsn, name, lease
        self._db: psycopg.Connection[Any] | None = None
        self._in_doubt = False
        self._taken: dict[str, tuple[int, int, float]] = {}

    def adopt(self, run: str, key: int, life: int, began: float) -> None:
        """Register a run that this worker has taken and that has no rows yet. From any thread."""
        self._taken[run] = key, life, began

    @property
    def is_open(self) -> bool:
        """Always True: a barrier checks the database even if nothing was written."""
        return True

    def write(self, group: Mapping[RunRecord, RunRows], *, full: bool) -> None:
        """Write a group in one transaction. With `full`, it is durable when this returns.

        Nothing is written of runs that are `refused` afterwards.

        Raises:
            Unwritten: the group may or may not be written; the next attempt finds out.
            Unstorable: the group was not written; one of its runs has a value that can never be stored.
            JournalBroken: nothing can ever be written.
        """
        with journal_errors():
            db = self._connected()
            try:
                self._write(db, group, full=full)
            except BaseException:  # whatever it was, the transaction may have taken effect
                self._in_doubt = True
                self._disconnect()
                raise
        self._in_doubt = False

    def _write(self, db: psycopg.Connection[Any], group: Mapping[RunRecord, RunRows], *, full: bool) -> None:
        self._find_keys(db, group)
        if self._in_doubt:
            self._drop_stored(db, group)
        now = time.monotonic()
        batch = _Batch(self.sign)
        for run, part in group.items():
            if run.refused is None:
                batch.add(run, part)
        if not batch.runs:
            self.checked = now
            return
        with db.pipeline(), db.transaction():
            if not (full or batch.asks):
                db.execute("set local synchronous_commit = off")
            fence = batch.send(db)
        written = {each[0] for each in fence.fetchall()}
        # An ended run has no owner, so the fence refuses later questions about it; that is not a lost run.
        if lost := sum(run.key not in written and (run.state != OVER or group[run].over) for run in batch.runs):
            count(db, "fenced", lost)
        self.checked = now  # the time before it was sent: the runs were this worker's at that time or later
        for run, (seq, crc) in batch.runs.items():
            if run.key in written:
                run.rows, run.crc = seq, crc
            else:
                run.refused = _claimed(run.run)

    def add_to_inbox(self, run: str, data: bytes) -> None:  # noqa: ARG002 - always refused
        """Raise `RunClaimed`: runs of a cluster have no inbox; their answers are in its table of questions."""
        raise RunClaimed(f"an answer for {run} can't be stored here: its questions are in the database of the cluster")

    def record(self, run: str) -> RunRecord:
        """Return the stored state of a run of this worker.

        Raises:
            RunClaimed: the run belongs to another worker, or was removed.
        """
        with journal_errors():
            found = (
                self._connected()
                .execute(
                    "select id, state, life, rows, crc, began, about from callboard.runs where run = %s and owner = %s",
                    (run, self.sign),
                )
                .fetchone()
            )
        if found is None:
            raise _claimed(run)
        record = RunRecord(run, found[6])
        record.key, record.state, record.life, record.rows, record.crc, record.began = found[:6]
        return record

    def close(self) -> bool:
        """Close the connection. Returns True: the storage still exists, unlike the file of a `SqliteStore`."""
        self._disconnect()
        return True

    def _connected(self) -> psycopg.Connection[Any]:
        if self._db is None or self._db.closed:
            self._db = connected(*self._how)
        return self._db

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _find_keys(self, db: psycopg.Connection[Any], group: Mapping[RunRecord, RunRows]) -> None:
        """Set the numbers of runs that are written for the first time."""
        for run, part in group.items():
            if run.key or run.refused is not None:
                continue
            part.about = run.about if part.about is None else part.about
            taken = self._taken.pop(run.run, None)
            if taken is not None:
                run.key, run.life, run.began = taken
                continue
            # The query below also finds the run if an earlier attempt has inserted it and its answer was lost.
            db.execute(_BEGIN, (run.run, self.sign, run.crc, run.began, run.about))
            found = db.execute(
                "select id from callboard.runs where run = %s and owner = %s and life = 1", (run.run, self.sign)
            ).fetchone()
            if found is None:
                run.refused = id_taken(run.run)
                continue
            run.key = found[0]

    def _drop_stored(self, db: psycopg.Connection[Any], group: Mapping[RunRecord, RunRows]) -> None:
        """Remove stored rows from the group: a commit whose answer was lost may have taken effect."""
        found = {row[0]: row for row in db.execute(_LOOK, ([run.key for run in group], self.sign)).fetchall()}
        for run, part in group.items():
            row = found.get(run.key)
            if row is not None and row[2] == run.life and row[3] >= run.rows:
                part.drop_written(run, row[3], row[4], "the cluster")


def put_first_rows(db: psycopg.Connection[Any], run: str, key: int, rows: Sequence[StoredRow]) -> None:
    """Insert the first rows of a run.

    Must be called in the transaction that has inserted the run, and not in a savepoint of it: `_ROWS` compares `xmin`.
    """
    record, part = RunRecord(run), RunRows()
    record.key, part.rows = key, [(row.actor, row.data) for row in rows]
    batch = _Batch("")
    batch.add(record, part)
    batch.send_first(db, record)


class _Batch:
    """The changes of a group, as parameters of the statements."""

    def __init__(self, sign: str) -> None:
        self.runs: dict[RunRecord, tuple[int, int]] = {}
        self._sign = sign
        self._fence: list[tuple[Any, ...]] = []
        self._rows: list[tuple[Any, ...]] = []
        self._blobs: dict[bytes, bytes] = {}
        self._events: list[tuple[Any, ...]] = []
        self._asked: list[tuple[Any, ...]] = []
        self._closed: list[tuple[Any, ...]] = []
        self._changed: list[str] = []

    @property
    def asks(self) -> bool:
        """True if questions are asked or closed. Then the commit is synchronous, as no row would reveal their loss."""
        return bool(self._asked or self._closed)

    def add(self, run: RunRecord, part: RunRows) -> None:
        if part.about is not None:
            run.about = part.about
        if part.over:
            run.state, run.ended = OVER, time.time()
        seq, crc = run.rows, run.crc
        for rows in pieces(part.rows):
            block = packed(seq + 1, rows, crc)
            self._rows.append(self._row(run, block))
            seq, crc = seq + len(rows), block.crc
        numbers, lines = list[int](), list[bytes]()
        info = None
        for kind, key, data in part.beside:
            if kind == EVENT:
                numbers.append(int(key))
                lines.append(data)
            elif kind == INFO:
                info = data
            elif kind == ASKED:
                self._asked.append((key, run.key, data))
            elif kind == CLOSED:
                self._closed.append((key, data.decode(), run.key))
        if lines:
            self._events.append((run.key, numbers[0], numbers[-1], b"\n".join(lines)))
        if lines or info is not None:
            self._changed.append(run.run)
        self._fence.append((run.key, run.life, run.state, seq, crc, run.ended, part.about, info, run.rows))
        self.runs[run] = seq, crc

    def _row(self, run: RunRecord, block: RowBlock) -> tuple[Any, ...]:
        data, hash = block.data, None
        if block.count == 1 and len(data) > LARGE:
            hash = hash_of(data)
            self._blobs[hash] = data
        return (
            *(run.key, block.seq, block.count, block.actor),
            *(data if hash is None else None, hash, block.crc),
        )

    def send(self, db: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
        """Send all statements; return the cursor of the fence."""
        fence = db.execute(_FENCE, (*_columns(sorted(self._fence)), self._sign))
        if self._blobs:
            db.execute(_BLOBS, (list(self._blobs), list(self._blobs.values())))
        for statement, values in (
            (_ROWS, self._rows),
            (_EVENTS, self._events),
            (_ASKED, self._asked),
        ):
            if values:
                db.execute(statement, _columns(values))
        if self._closed:
            db.execute(_CLOSED, _columns(self._closed))
        for text in _notifications(self._changed):
            db.execute("select pg_notify(%s, %s)", (CHANNEL, text))
        if self._asked or self._closed:
            db.execute("select pg_notify(%s, 'k')", (CHANNEL,))
        return fence

    def send_first(self, db: psycopg.Connection[Any], run: RunRecord) -> None:
        """Send the rows of a run that has none. Its blobs are marked as used, so that pruning does not remove them."""
        for hash, data in self._blobs.items():
            put_blob(db, hash, data)
        seq, crc = self.runs[run]
        db.execute("update callboard.runs set rows = %s, crc = %s where id = %s", (seq, crc, run.key))
        db.execute(_ROWS, _columns(self._rows))


def _columns(values: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*values, strict=True)]


def _notifications(runs: Iterable[str]) -> Iterable[str]:
    text = "r"
    for run in runs:
        if len(text) + len(run) >= MOST_TOLD:
            yield text
            text = "r"
        text += f" {run}"
    if len(text) > 1:
        yield text


def _claimed(run: str) -> RunClaimed:
    why = "it was taken over, or removed, or the database has lost rows of it"
    return RunClaimed(f"{run} can't continue in this process: {why}")
