"""Queries about the runs of a cluster: status, events, rows, questions, figures; and their retention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, LiteralString

import msgspec

from ..journal.row import RowBlock, StoredRow, unpacked
from .queue import notify

if TYPE_CHECKING:
    import psycopg

BLOCKS = 32
"""Blocks of events that one query reads."""


class StoredRunState(msgspec.Struct, frozen=True):
    """Status of a run.

    Attributes:
        info: status for lists, written by its worker, or at its submission.
        state, parked: as in the table.
        worker: name of its worker; is_taken: True if it has an owner, alive or dead.
        changed: number of its last change.
    """

    run: str
    info: bytes
    state: int
    parked: bool
    worker: str | None
    is_taken: bool
    life: int
    changed: int


class ClusterQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question; `over` is None while it is open, else `answered` or the party that closed it."""

    id: str
    run: str
    data: bytes
    over: str | None
    changed: int


class ClusterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a cluster, for metrics.

    Attributes:
        queued: runs that wait for a worker; oldest: seconds for which the first of them has waited.
        workers: number of workers; least_lease: seconds until the next lease ends.
        takeovers: runs taken from dead workers; fenced: runs that a worker has lost to another one.
    """

    queued: int
    oldest: float
    workers: int
    least_lease: float
    takeovers: int
    fenced: int


_ROWS_AFTER = """
select r.seq, r.count, r.actor, coalesce(r.data, b.data), r.crc from callboard.rows r
left join callboard.blobs b on b.id = r.blob where r.run = %s and r.seq + r.count > %s + 1 order by r.seq
"""
# A part stays as long as its run: the next worker of the run finds the part, with its result, by its id.
_PRUNE = """
delete from callboard.runs where id in (
    select id from callboard.runs r where state = 1 and (
        (%s > 0 and id <= (select id from callboard.runs where state = 1 order by id desc offset %s limit 1))
        or (%s > 0 and ended < extract(epoch from clock_timestamp()) - %s * 86400.0)
    ) and not exists (select 1 from callboard.runs p where p.run = r.parent and p.state = 0)
    order by id limit %s for update skip locked
) returning run
"""
# `put_blob` does not touch a blob that was used in the last 30 minutes. The hour leaves its caller as long again to
# submit the run that refers to the blob.
_UNUSED = """
delete from callboard.blobs b where b.used < clock_timestamp() - interval '1 hour'
    and not exists (select 1 from callboard.rows r where r.blob = b.id)
    and not exists (select 1 from callboard.runs r where r.bundle = b.hash)
"""
_STANDING: LiteralString = (
    "select run, info, state, parked, w.name, owner is not null, life, changed"
    " from callboard.runs left join callboard.workers w on w.sign = owner"
)
_CHANGED = _STANDING + " where changed > %s order by changed limit %s"
_NEWEST = _STANDING + " where state = 0 or id in (select id from callboard.runs order by id desc limit %s)"  # noqa: S608 - ours
_OF = _STANDING + " where run = any(%s)"
_ASKED: LiteralString = (
    "select q.id, r.run, q.data, q.answer is not null, q.closed, q.changed from callboard.questions q"
    " join callboard.runs r on r.id = q.run"
)
_OPEN = _ASKED + " where q.answer is null and q.closed is null and r.state = 0 and r.parent is null order by q.asked"
_SINCE = _ASKED + " where q.changed > %s and r.parent is null order by q.changed"
_OF_PARTS = _ASKED + " where r.run = any(%s) and q.answer is null and q.closed is null and r.state = 0 order by q.asked"


def changed_since(db: psycopg.Connection[Any], changed: int, most: int = 1_000) -> list[StoredRunState]:
    """Return the status of the runs whose change number is above `changed`, the oldest change first; at most `most`."""
    rows = db.execute(_CHANGED, (changed, most))
    return [_run_state(row) for row in rows]


def newest(db: psycopg.Connection[Any], most: int) -> list[StoredRunState]:
    """Return the status of the `most` newest runs, and of all others that have not ended; in no defined order."""
    rows = db.execute(_NEWEST, (most,))
    return [_run_state(row) for row in rows]


def run_states_of(db: psycopg.Connection[Any], runs: Iterable[str]) -> list[StoredRunState]:
    """Return the status of the given runs, without those that do not exist; in no defined order."""
    return [_run_state(row) for row in db.execute(_OF, (list(runs),))]


def _run_state(row: Sequence[Any]) -> StoredRunState:
    run, info, *rest = row
    return StoredRunState(run, bytes(info), *rest)


def events_after(db: psycopg.Connection[Any], run: str, after: int) -> list[bytes]:
    """Return event lines of a run, beginning with the block that holds the first event after this number.

    The first lines of that block may be earlier events. At most `BLOCKS` blocks are returned, so call it again with the
    number of the last event until nothing is new.
    """
    found = db.execute(
        "select e.data from callboard.events e join callboard.runs r on r.id = e.run"
        " where r.run = %s and e.last > %s order by e.first limit %s",
        (run, after, BLOCKS),
    ).fetchall()
    return [line for (data,) in found for line in bytes(data).split(b"\n")]


def last_event(db: psycopg.Connection[Any], run: str) -> bytes | None:
    """Return the line of the newest event of a run; None if there is no event."""
    found = db.execute(
        "select e.data from callboard.events e join callboard.runs r on r.id = e.run"
        " where r.run = %s order by e.first desc limit 1",
        (run,),
    ).fetchone()
    return None if found is None else bytes(found[0]).rpartition(b"\n")[2]


def rows_after(db: psycopg.Connection[Any], run: str, after: int, most: int) -> list[StoredRow] | None:
    """Return up to `most` rows of a run after `after`; None if it does not exist. Earlier rows are not checked."""
    found = db.execute("select id from callboard.runs where run = %s", (run,)).fetchone()
    if found is None:
        return None
    rows: list[StoredRow] = []
    for seq, count, actor, data, crc in db.execute(_ROWS_AFTER, (found[0], after)):
        rows += [row for row in unpacked(RowBlock(seq, count, actor, data, crc)) if row.seq > after]
        if len(rows) >= most:
            break
    return rows[:most]


def figures(db: psycopg.Connection[Any]) -> ClusterFigures:
    """Return the figures of the cluster."""
    queued, oldest = db.execute(
        "select count(*), coalesce(extract(epoch from clock_timestamp() - min(queued)), 0)::double precision"
        " from callboard.runs where state = 0 and owner is null and not parked"
    ).fetchall()[0]
    workers, least = db.execute(
        "select count(*), coalesce(min(extract(epoch from lease - clock_timestamp())), 0)::double precision"
        " from callboard.workers"
    ).fetchall()[0]
    counts = dict(db.execute("select name, value from callboard.counts").fetchall())
    return ClusterFigures(
        queued=queued,
        oldest=oldest,
        workers=workers,
        least_lease=least,
        takeovers=counts.get("takeovers", 0),
        fenced=counts.get("fenced", 0),
    )


def prune(db: psycopg.Connection[Any], *, keep: int, days: float, most: int = 500) -> list[str]:
    """Remove ended runs beyond `keep` or `days`, the oldest first and at most `most`, and return their ids.

    A remote child stays until its parent has ended. Without more runs to remove, unused blobs are removed as well.

    Args:
        keep: number of the newest runs that stay; 0 for all.
        days: days for which runs stay; 0 for ever.
    """
    with db.transaction():
        gone = [run for (run,) in db.execute(_PRUNE, (keep, keep, days, days, most))]
        # When all old runs are gone, unused blobs can go too. Blobs of a run that is being submitted are younger.
        if len(gone) < most:
            db.execute(_UNUSED)
        if gone:
            notify(db, "r", *gone)
    return gone


def forget(db: psycopg.Connection[Any], run: str) -> bool:
    """Remove an ended or parked run with all its data and its ended remote children.

    Returns False if it does not exist, or is neither ended nor parked.
    """
    with db.transaction():
        gone = db.execute(
            "delete from callboard.runs where run = %s and (state = 1 or parked) and owner is null", (run,)
        ).rowcount
        if gone:
            db.execute("delete from callboard.runs where parent = %s and state = 1", (run,))
        notify(db, "r", run)
    return bool(gone)


# --- questions --------------------------------------------------------------------------------------------------


def open_questions(db: psycopg.Connection[Any]) -> list[ClusterQuestion]:
    """Return the questions that wait for an answer of a user, the oldest first."""
    return [_asked(row) for row in db.execute(_OPEN)]


def questions_of_parts(db: psycopg.Connection[Any], runs: Iterable[str]) -> list[ClusterQuestion]:
    """Return the open questions of these remote children. Users see the questions that the parent makes of them."""
    return [_asked(row) for row in db.execute(_OF_PARTS, (list(runs),))]


def questions_since(db: psycopg.Connection[Any], changed: int) -> list[ClusterQuestion]:
    """Return the questions whose change number is above `changed`, the oldest change first.

    A question changes when it is asked, answered or closed. Questions of remote children are omitted.
    """
    return [_asked(row) for row in db.execute(_SINCE, (changed,))]


def _asked(row: Sequence[Any]) -> ClusterQuestion:
    id, run, data, answered, closed, changed = row
    over = "answered" if answered else closed
    return ClusterQuestion(id=id, run=run, data=bytes(data), over=over, changed=changed)


def answer(db: psycopg.Connection[Any], question: str, data: bytes) -> Literal["taken", "closed", "late"]:
    """Answer a question and return the outcome.

    Returns:
        `taken` if this answer counts, or equals the one that counts; `late` if another answer came first; `closed` if
        the question was closed without an answer, does not exist, or its run has ended.
    """
    with db.transaction():
        found = db.execute(
            "update callboard.questions q set answer = %s, answered = clock_timestamp(),"
            " changed = nextval('callboard.changes') from callboard.runs r"
            " where q.id = %s and q.answer is null and q.closed is null and r.id = q.run and r.state = 0"
            " returning r.run",
            (data, question),
        ).fetchone()
        if found is not None:
            notify(db, "a", found[0])
            notify(db, "k")
            return "taken"
    known = db.execute("select answer from callboard.questions where id = %s", (question,)).fetchone()
    if known is None or known[0] is None:
        return "closed"
    # The same answer again is an earlier attempt of this caller, whose result was lost.
    return "taken" if bytes(known[0]) == data else "late"


def answers_for(db: psycopg.Connection[Any], sign: str) -> list[tuple[str, bytes]]:
    """Return ids and answers of the answered questions of a worker's runs that are not closed.

    They include questions that were answered before the worker took the run; it has read those with the run.
    """
    found = db.execute(
        "select q.id, q.answer from callboard.questions q join callboard.runs r on r.id = q.run"
        " where r.owner = %s and q.answer is not null and q.closed is null",
        (sign,),
    ).fetchall()
    return [(id, bytes(answer)) for id, answer in found]


# --- blobs ------------------------------------------------------------------------------------------------------


def put_blob(db: psycopg.Connection[Any], hash: bytes, data: bytes) -> None:
    """Store a blob for half an hour at least, and for as long as a run refers to it."""
    fresh = "select used > clock_timestamp() - interval '30 minutes' from callboard.blobs where hash = %s"
    found = db.execute(fresh, (hash,)).fetchone()  # usually it is fresh, and nothing has to be written
    if found is None:
        db.execute("insert into callboard.blobs(hash, data) values (%s, %s) on conflict do nothing", (hash, data))
    elif not found[0]:
        db.execute("update callboard.blobs set used = clock_timestamp() where hash = %s", (hash,))


def blob(db: psycopg.Connection[Any], hash: bytes) -> bytes | None:
    """Return the blob with this hash; None if there is none."""
    found = db.execute("select data from callboard.blobs where hash = %s", (hash,)).fetchone()
    return None if found is None else bytes(found[0])
