"""Where the journal of a worker writes: the runs that are its own, in the database of the cluster.

    store = ClusterStore(dsn, sign, name, lease)
    journal = Journal(store, None)
    store.adopt("run-7f3a01bc", key, life)    # taken from the queue
    journal.begin("run-7f3a01bc", about)      # from here on as in a file

A group is one transaction in one exchange (a pipeline). Its first statement changes the runs of the group that are ours
by owner and life, and thereby locks them; what comes after it is inserted for those alone that it has changed. So
whoever has lost a run writes nothing of it, and is told (`RunRecord.refused`).

What is beside rows (`Part.beside`): `event` is a line of the log, by its number; `info` how the run stands for lists;
`asked` a question, by its id, and `closed` who has closed it.

When the answer to a commit was lost, what is there is looked up before the group is tried again.

A database that crashes, or fails over, may lose rows that nobody waited for, though we were told that they are there.
So the first statement also says how many rows of a run there must be: where there are fewer, the run is refused as one
that others have taken, and goes on from what is there. No effect was begun on the strength of what was lost, since each
waits for the disk, and all that was written before is there then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ...protocol.kernel.errors import JournalBroken, RunClaimed
from ..journal.row import LARGE, OVER, Block, Part, Row, RunRecord, hash_of, packed, pieces
from .database import connected, told
from .queue import count
from .tables import CHANNEL
from .telling import put_blob

if TYPE_CHECKING:
    import psycopg

EVENT, INFO, ASKED, CLOSED = "event", "info", "asked", "closed"
"""Kinds of what is beside rows."""

MOST_TOLD = 7_000
"""Bytes of what is told at once; PostgreSQL takes 8,000."""

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
# It waits for a transaction of ours that is still under way, on a connection of which we have heard nothing more.
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
# `xmin` is the transaction that has changed a run last: what follows the fence is for those that it has let through.
_BLOBS = """
insert into callboard.blobs(hash, data) select v.hash, v.data from unnest(%s::bytea[], %s::bytea[]) as v(hash, data)
on conflict (hash) do nothing
"""
_EVENTS = """
insert into callboard.events(run, first, last, data)
select v.run, v.first, v.last, v.data
from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[]) as v(run, first, last, data)
join callboard.runs r on r.id = v.run and r.xmin = pg_current_xact_id()::xid
on conflict (run, first) do update set last = excluded.last, data = excluded.data
    where excluded.last >= callboard.events.last
"""
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
    """See the module, and `journal.row.Store`. Used by the journal's thread, but for `adopt` and `forget`.

    Args:
        dsn, name, lease: see `database.connected`.
        sign: of this process, as `workers` has it.
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
        """A run is ours from now on, which nobody has begun: its first row goes there. In any thread."""
        self._taken[run] = key, life, began

    @property
    def is_open(self) -> bool:
        """See `journal.row.Store`: a barrier asks the database, whatever was written before."""
        return True

    def write(self, group: Mapping[RunRecord, Part], *, full: bool) -> None:
        """One transaction; with `full` it is on the disk for good when this returns.

        Of runs that are `refused` afterwards nothing was written.

        Raises:
            Unwritten: it is not known whether it is written; the next try finds out.
            JournalBroken: nothing will ever be.
        """
        with told():
            db = self._opened()
            try:
                self._write(db, group, full=full)
            except BaseException:  # whatever it was, what was sent may count
                self._in_doubt = True
                self._let_go()
                raise
        self._in_doubt = False

    def _write(self, db: psycopg.Connection[Any], group: Mapping[RunRecord, Part], *, full: bool) -> None:
        self._find_keys(db, group)
        if self._in_doubt:
            self._find_again(db, group)
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
        there = {each[0] for each in fence.fetchall()}
        # Of a run that is over nobody is the owner: what is asked about it then is refused, and nobody was fenced.
        if lost := sum(run.key not in there and (run.state != OVER or group[run].over) for run in batch.runs):
            count(db, "fenced", lost)
        self.checked = now  # when it was sent: it was ours then, or later
        for run, (seq, crc) in batch.runs.items():
            if run.key in there:
                run.rows, run.crc = seq, crc
            else:
                run.refused = _claimed(run.run)

    def letter(self, run: str, data: bytes) -> None:  # noqa: ARG002 - nothing is left here
        """See `journal.row.Store`: what is left for runs of a cluster lies with its questions."""
        raise RunClaimed(f"nothing can be left for {run} here: the cluster has its questions")

    def record(self, run: str) -> RunRecord:
        """See `journal.row.Store`."""
        with told():
            found = (
                self._opened()
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
        """Let go of the connection; runs stay."""
        self._let_go()
        return True

    def _opened(self) -> psycopg.Connection[Any]:
        if self._db is None or self._db.closed:
            self._db = connected(*self._how)
        return self._db

    def _let_go(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _find_keys(self, db: psycopg.Connection[Any], group: Mapping[RunRecord, Part]) -> None:
        """The numbers of runs that are written for the first time."""
        for run, part in group.items():
            if run.key or run.refused is not None:
                continue
            part.about = run.about if part.about is None else part.about
            taken = self._taken.pop(run.run, None)
            if taken is not None:
                run.key, run.life, run.began = taken
                continue
            db.execute(_BEGIN, (run.run, self.sign, run.crc, run.began, run.about))
            found = db.execute(
                "select id from callboard.runs where run = %s and owner = %s and life = 1", (run.run, self.sign)
            ).fetchone()
            if found is None:
                raise JournalBroken(f"the cluster has a run '{run.run}' already")
            run.key = found[0]

    def _find_again(self, db: psycopg.Connection[Any], group: Mapping[RunRecord, Part]) -> None:
        """Take out of the group what is there: a commit whose answer was lost may count all the same."""
        found = {row[0]: row for row in db.execute(_LOOK, ([run.key for run in group], self.sign)).fetchall()}
        for run, part in group.items():
            row = found.get(run.key)
            if row is not None and row[2] == run.life and row[3] >= run.rows:
                part.drop_written(run, row[3], row[4], "the cluster")


def put_first_rows(db: psycopg.Connection[Any], run: str, key: int, rows: Sequence[Row]) -> None:
    """Give a run the rows that it begins with. This very transaction has put it into its table, outermost: none of
    `_ROWS` would be written else."""
    record, part = RunRecord(run), Part()
    record.key, part.rows = key, [(row.actor, row.data) for row in rows]
    batch = _Batch("")
    batch.add(record, part)
    batch.send_first(db, record)


class _Batch:
    """The parts of a group as the statements take them."""

    def __init__(self, sign: str) -> None:
        self.runs: dict[RunRecord, tuple[int, int]] = {}
        self._sign = sign
        self._fence: list[tuple[Any, ...]] = []
        self._rows: list[tuple[Any, ...]] = []
        self._blobs: dict[bytes, bytes] = {}
        self._events: list[tuple[Any, ...]] = []
        self._asked: list[tuple[Any, ...]] = []
        self._closed: list[tuple[Any, ...]] = []
        self._told: list[str] = []

    @property
    def asks(self) -> bool:
        """Whether people are asked something, or no more: no row would tell that a crash has lost that."""
        return bool(self._asked or self._closed)

    def add(self, run: RunRecord, part: Part) -> None:
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
            self._told.append(run.run)
        self._fence.append((run.key, run.life, run.state, seq, crc, run.ended, part.about, info, run.rows))
        self.runs[run] = seq, crc

    def _row(self, run: RunRecord, block: Block) -> tuple[Any, ...]:
        data, hash = block.data, None
        if block.count == 1 and len(data) > LARGE:
            hash = hash_of(data)
            self._blobs[hash] = data
        return (
            *(run.key, block.seq, block.count, block.actor),
            *(data if hash is None else None, hash, block.crc),
        )

    def send(self, db: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
        """Send all of it; what the fence returns."""
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
        for text in _telling(self._told):
            db.execute("select pg_notify(%s, %s)", (CHANNEL, text))
        if self._asked or self._closed:
            db.execute("select pg_notify(%s, 'k')", (CHANNEL,))
        return fence

    def send_first(self, db: psycopg.Connection[Any], run: RunRecord) -> None:
        """Send the rows of one that has none. What is large stays from now on, even if it was there and about to go."""
        for hash, data in self._blobs.items():
            put_blob(db, hash, data)
        seq, crc = self.runs[run]
        db.execute("update callboard.runs set rows = %s, crc = %s where id = %s", (seq, crc, run.key))
        db.execute(_ROWS, _columns(self._rows))


def _columns(values: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*values, strict=True)]


def _telling(runs: Iterable[str]) -> Iterable[str]:
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
    return RunClaimed(f"nothing more of {run} can be kept or done here: {why}")
