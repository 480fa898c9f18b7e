"""What anybody may want to know of the runs of a cluster: how they stand, what has happened, what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, LiteralString

import msgspec

from ..journal.row import Block, Row, unpacked
from .queue import tell

if TYPE_CHECKING:
    import psycopg

BLOCKS = 32
"""Blocks of events that are read at once."""


class Standing(msgspec.Struct, frozen=True):
    """How a run stands.

    Attributes:
        info: what its worker says of it, or who has put it into the queue.
        state, parked: as in the table.
        worker: the name of its worker; is_taken: whether it has one, be it dead.
        changed: the number of its last change.
    """

    run: str
    info: bytes
    state: int
    parked: bool
    worker: str | None
    is_taken: bool
    life: int
    changed: int


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question; `over` says that it was answered, or closed, and by whom."""

    id: str
    run: str
    data: bytes
    over: str | None
    changed: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster stands.

    Attributes:
        queued: runs that wait for a worker; oldest: seconds for which the first of them has.
        workers: those that are alive; least_lease: seconds that are left to the one whose lease is over next.
        takeovers: runs that were taken from the dead; fenced: that a worker has found to be others'.
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
_PRUNE = """
delete from callboard.runs where id in (
    select id from callboard.runs r where state = 1 and (
        (%s > 0 and id <= (select id from callboard.runs where state = 1 order by id desc offset %s limit 1))
        or (%s > 0 and ended < extract(epoch from clock_timestamp()) - %s * 86400.0)
    ) and not exists (select 1 from callboard.runs p where p.run = r.parent and p.state = 0)
    order by id limit %s for update skip locked
) returning run
"""
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


def changed_since(db: psycopg.Connection[Any], changed: int, most: int = 1_000) -> list[Standing]:
    """Runs that stand otherwise since then, the oldest change first."""
    rows = db.execute(_CHANGED, (changed, most))
    return [_standing(row) for row in rows]


def newest(db: psycopg.Connection[Any], most: int) -> list[Standing]:
    """The newest runs, and all that are not over."""
    rows = db.execute(_NEWEST, (most,))
    return [_standing(row) for row in rows]


def standing(db: psycopg.Connection[Any], runs: Iterable[str]) -> list[Standing]:
    """These, as far as they are there."""
    return [_standing(row) for row in db.execute(_OF, (list(runs),))]


def _standing(row: Sequence[Any]) -> Standing:
    run, info, *rest = row
    return Standing(run, bytes(info), *rest)


def events_after(db: psycopg.Connection[Any], run: str, after: int) -> list[bytes]:
    """Lines of what has happened in a run, from the block with the first event after this number on; none if there is
    none. The first ones may come before it."""
    found = db.execute(
        "select e.data from callboard.events e join callboard.runs r on r.id = e.run"
        " where r.run = %s and e.last > %s order by e.first limit %s",
        (run, after, BLOCKS),
    ).fetchall()
    return [line for (data,) in found for line in bytes(data).split(b"\n")]


def last_event(db: psycopg.Connection[Any], run: str) -> bytes | None:
    """The line of the newest event of a run."""
    found = db.execute(
        "select e.data from callboard.events e join callboard.runs r on r.id = e.run"
        " where r.run = %s order by e.first desc limit 1",
        (run,),
    ).fetchone()
    return None if found is None else bytes(found[0]).rpartition(b"\n")[2]


def rows_after(db: psycopg.Connection[Any], run: str, after: int, most: int) -> list[Row] | None:
    """So many rows of a run behind a number; None if there is no such run. What comes before them is not checked."""
    found = db.execute("select id from callboard.runs where run = %s", (run,)).fetchone()
    if found is None:
        return None
    rows: list[Row] = []
    for seq, count, actor, data, crc in db.execute(_ROWS_AFTER, (found[0], after)):
        rows += [row for row in unpacked(Block(seq, count, actor, data, crc)) if row.seq > after]
        if len(rows) >= most:
            break
    return rows[:most]


def figures(db: psycopg.Connection[Any]) -> Figures:
    """How a cluster stands."""
    queued, oldest = db.execute(
        "select count(*), coalesce(extract(epoch from clock_timestamp() - min(queued)), 0)::double precision"
        " from callboard.runs where state = 0 and owner is null and not parked"
    ).fetchall()[0]
    workers, least = db.execute(
        "select count(*), coalesce(min(extract(epoch from lease - clock_timestamp())), 0)::double precision"
        " from callboard.workers"
    ).fetchall()[0]
    counts = dict(db.execute("select name, value from callboard.counts").fetchall())
    return Figures(
        queued=queued,
        oldest=oldest,
        workers=workers,
        least_lease=least,
        takeovers=counts.get("takeovers", 0),
        fenced=counts.get("fenced", 0),
    )


def prune(db: psycopg.Connection[Any], *, keep: int, days: float, most: int = 500) -> list[str]:
    """Remove the oldest runs that are over, `most` at a time; their ids.

    Args:
        keep: how many stay, the newest; 0 for all.
        days: how long they stay; 0 for ever.
    """
    with db.transaction():
        gone = [run for (run,) in db.execute(_PRUNE, (keep, keep, days, days, most))]
        if len(gone) < most:  # nothing more of it is needed: what a run that is about to be submitted has is young
            db.execute(_UNUSED)
        if gone:
            tell(db, "r", *gone)
    return gone


def forget(db: psycopg.Connection[Any], run: str) -> bool:
    """Remove a run that is over, with all that is kept of it; whether there was one."""
    with db.transaction():
        gone = db.execute(
            "delete from callboard.runs where run = %s and (state = 1 or parked) and owner is null", (run,)
        ).rowcount
        if gone:
            db.execute("delete from callboard.runs where parent = %s and state = 1", (run,))
        tell(db, "r", run)
    return bool(gone)


# --- questions --------------------------------------------------------------------------------------------------


def open_questions(db: psycopg.Connection[Any]) -> list[Asked]:
    """Those that wait for an answer of people, the oldest first."""
    return [_asked(row) for row in db.execute(_OPEN)]


def questions_of_parts(db: psycopg.Connection[Any], runs: Iterable[str]) -> list[Asked]:
    """Those of these runs that wait for an answer. People see what the run that they are parts of makes of them."""
    return [_asked(row) for row in db.execute(_OF_PARTS, (list(runs),))]


def questions_since(db: psycopg.Connection[Any], changed: int) -> list[Asked]:
    """Those that were asked, answered or closed since then, the oldest change first."""
    return [_asked(row) for row in db.execute(_SINCE, (changed,))]


def _asked(row: Sequence[Any]) -> Asked:
    id, run, data, answered, closed, changed = row
    over = "answered" if answered else closed
    return Asked(id=id, run=run, data=bytes(data), over=over, changed=changed)


def answer(db: psycopg.Connection[Any], question: str, data: bytes) -> Literal["taken", "closed", "late"]:
    """Answer a question; whether that was taken. The first one counts, once: others are `late`."""
    with db.transaction():
        found = db.execute(
            "update callboard.questions q set answer = %s, answered = clock_timestamp(),"
            " changed = nextval('callboard.changes') from callboard.runs r"
            " where q.id = %s and q.answer is null and q.closed is null and r.id = q.run and r.state = 0"
            " returning r.run",
            (data, question),
        ).fetchone()
        if found is not None:
            tell(db, "a", found[0])
            tell(db, "k")
            return "taken"
    known = db.execute("select answer from callboard.questions where id = %s", (question,)).fetchone()
    if known is None or known[0] is None:
        return "closed"
    return "taken" if bytes(known[0]) == data else "late"  # the same: our own try, whose answer was lost


def answers_for(db: psycopg.Connection[Any], sign: str) -> list[tuple[str, bytes]]:
    """The ids of questions of a worker's runs that were answered and are not closed, and their answers. Those that were
    answered before it took the run are among them: it has found them there, and knows which."""
    found = db.execute(
        "select q.id, q.answer from callboard.questions q join callboard.runs r on r.id = q.run"
        " where r.owner = %s and q.answer is not null and q.closed is null",
        (sign,),
    ).fetchall()
    return [(id, bytes(answer)) for id, answer in found]


# --- blobs ------------------------------------------------------------------------------------------------------


def put_blob(db: psycopg.Connection[Any], hash: bytes, data: bytes) -> None:
    """Keep this for half an hour at least, and for as long as a run needs it."""
    fresh = "select used > clock_timestamp() - interval '30 minutes' from callboard.blobs where hash = %s"
    found = db.execute(fresh, (hash,)).fetchone()  # mostly it is, and nothing has to be written
    if found is None:
        db.execute("insert into callboard.blobs(hash, data) values (%s, %s) on conflict do nothing", (hash, data))
    elif not found[0]:
        db.execute("update callboard.blobs set used = clock_timestamp() where hash = %s", (hash,))


def blob(db: psycopg.Connection[Any], hash: bytes) -> bytes | None:
    """What was kept by this hash."""
    found = db.execute("select data from callboard.blobs where hash = %s", (hash,)).fetchone()
    return None if found is None else bytes(found[0])
