"""The queue of a cluster: runs are put into it, taken by workers with room, and taken from those that are dead.

    submit(db, wanted)             anybody
    take(db, worker, 4)            a worker: as many as it has room for, each with all that is kept of it
    sweep(db, worker)              a worker: the runs of others whose lease is over go back into the queue
    give_back(db, sign, runs)      a worker that ends

A run is in the queue if it is not over, has no owner and is not parked. Each take is another life of it, and only who
has the life may write (`store`). A worker's lease is for all its runs, so that renewing it writes one row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..journal.row import OVER, Kept, Letter, Past, State, checked, first_sum, unpacked
from .tables import CHANNEL

if TYPE_CHECKING:
    import psycopg

MOST_AT_ONCE = 64

KNOWS_PARTS = "callboard.parts"
"""A label that parts of runs need, and that each worker has from the version on which knows them."""

REMEMBERED = "q-"
"""What ids of questions begin with that rows of their run know. Others go with the worker that has asked."""

PREFERRED_FOR = 2.0
"""Seconds for which a run that a worker has handed back waits for a worker of the same name."""

_SUBMIT = """
insert into callboard.runs(run, needs, priority, subject, request, bundle, crc, parent, began, about, info, changed)
select %s, %s, %s, %s, %s, %s, %s, %s, extract(epoch from clock_timestamp()), %s, %s, nextval('callboard.changes')
where %s or exists (select 1 from callboard.runs where run = %s and owner = %s and life = %s and state = 0
    and cancelled = '')
on conflict (run) do nothing returning id
"""
_FREE = """
    select id, %s as suspect from callboard.runs
    where state = 0 and owner is null and not parked and (needs <@ %%(has)s::text[] or cancelled <> '')
        and (prefer is null or prefer = %%(name)s or queued < clock_timestamp() - make_interval(secs => %%(preferred)s))
        and (lost >= %%(suspicious)s and rows = at_lost) = %s
    order by priority, id limit %%(%s)s for update skip locked
"""
_TAKE = f"""
with others as ({_FREE % ("false", "false", "most")}), suspects as ({_FREE % ("true", "true", "suspects")}),
next as (select * from others union all select * from suspects),
taken as (
    update callboard.runs r set owner = %(sign)s, life = life + 1, taken = clock_timestamp(), prefer = null
    from next where r.id = next.id and exists (select 1 from callboard.workers where sign = %(sign)s and not draining)
    returning r.priority, r.id, r.run, r.life, r.rows, r.crc, r.began, r.about, r.info, r.request, r.bundle,
        r.cancelled, next.suspect
),
forgotten as (
    update callboard.questions q set closed = 'cancelled', changed = nextval('callboard.changes') from taken
    where q.run = taken.id and taken.life > 1 and q.closed is null and q.answer is null
        and left(q.id, 2) <> '{REMEMBERED}'
)
select * from taken
"""  # noqa: S608 - ours
_ROWS = """
select r.seq, r.count, r.actor, coalesce(r.data, b.data), r.crc, b.hash from callboard.rows r
left join callboard.blobs b on b.id = r.blob where r.run = %s order by r.seq
"""
_SWEEP = """
with dead as (
    select sign from callboard.workers where lease < clock_timestamp() and sign <> %s
        and exists (select 1 from callboard.workers where sign = %s and lease > clock_timestamp())
),
lost as (
    select id from callboard.runs where owner in (select sign from dead) and state = 0 for update skip locked
)
update callboard.runs r set owner = null, queued = clock_timestamp(), lost = case when rows = at_lost then lost + 1
    else 1 end, at_lost = rows, parked = parked or (rows = at_lost and lost + 1 >= %s),
    changed = nextval('callboard.changes')
from lost where r.id = lost.id returning r.run, r.parked
"""
_CANCEL_PARTS = """
with recursive parts as (
    select run from callboard.runs where parent = any(%s) and state = 0
    union select r.run from callboard.runs r join parts p on r.parent = p.run where r.state = 0
)
update callboard.runs r set cancelled = %s, parked = false from parts
where r.run = parts.run and r.state = 0 and r.cancelled = '' returning r.run, r.owner
"""
_ORPHANS = """
select distinct c.parent from callboard.runs c left join callboard.runs p on p.run = c.parent
where c.parent is not null and c.state = 0 and c.cancelled = '' and p.state is distinct from 0
"""
_CUT = """
select pg_terminate_backend(a.pid) from pg_stat_activity a
join callboard.workers w on a.application_name like '%% ' || w.sign
where w.lease < clock_timestamp() and w.sign <> %s and a.usename = current_user and a.datname = current_database()
"""
_BURY = """
delete from callboard.workers w where lease < clock_timestamp() - make_interval(secs => %s)
    and not exists (select 1 from callboard.runs where owner = w.sign)
"""


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The run that another one is a part of, and who plays it: its owner's sign, and which life of it that is."""

    run: str
    sign: str
    life: int


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A run for the queue.

    Attributes:
        run: its id.
        request: what it is of; info: how it stands for lists; bundle: hash of the files that it needs, if any.
        needs: labels that its worker must have.
        priority: who has less goes first.
        subject: whose it is.
        parent: what it is a part of; it is taken into the queue only if that is played by who says so.
    """

    run: str
    request: bytes
    info: bytes
    bundle: bytes | None = None
    needs: tuple[str, ...] = ()
    priority: int = 0
    subject: str = ""
    parent: Parent | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is ours from now on.

    Attributes:
        key, life: what the store writes it by.
        began: seconds since 1970.
        past: what is kept of it; without rows if it was never begun.
        seen: the number of its newest event.
        cancelled: who wants it cancelled, or "".
        suspect: it has ended workers before, perhaps: one more, and nobody takes it by itself.
    """

    run: str
    key: int
    life: int
    began: float
    past: Past
    info: bytes
    request: bytes
    bundle: bytes | None
    cancelled: str = ""
    seen: int = 0
    suspect: bool = False


class Lost(msgspec.Struct, frozen=True):
    """What was taken from dead workers.

    Attributes:
        back: runs that wait for another worker.
        parked: those that have ended so many workers that only a person has them go on.
    """

    back: list[str]
    parked: list[str]


def submit(db: psycopg.Connection[Any], wanted: Wanted) -> bool:
    """Put a run into the queue; it is on the disk when this returns. False if there is another of this id.

    A part that is there already stays as it is, and so does nobody's.
    """
    with db.pipeline(), db.transaction():
        there = put(db, wanted)
    if there.fetchone() is not None:
        return True
    if wanted.parent is not None:
        return db.execute("select 1 from callboard.runs where run = %s", (wanted.run,)).fetchone() is not None
    return is_there(db, wanted)


def put(db: psycopg.Connection[Any], wanted: Wanted, about: bytes = b"") -> psycopg.Cursor[Any]:
    """Put a run into the queue, in a transaction; its number, or nothing if there is another of its id, or if
    its parent is not played by the worker that says so.

    Args:
        about: what is said of it, if it has rows.
    """
    parent = wanted.parent or Parent(run="", sign="", life=0)
    needs = [*wanted.needs, KNOWS_PARTS] if wanted.parent is not None else list(wanted.needs)
    there = db.execute(
        _SUBMIT,
        (
            *(wanted.run, needs, wanted.priority, wanted.subject, wanted.request, wanted.bundle),
            *(first_sum(wanted.run), parent.run or None, about, wanted.info),
            *(wanted.parent is None, parent.run, parent.sign, parent.life),
        ),
    )
    tell(db, "q", wanted.run)
    return there


def is_there(db: psycopg.Connection[Any], wanted: Wanted) -> bool:
    """Whether this very run is there: our own try, whose answer was lost."""
    same = db.execute("select request from callboard.runs where run = %s", (wanted.run,)).fetchone()
    return same is not None and bytes(same[0] or b"") == wanted.request


def take(
    db: psycopg.Connection[Any],
    sign: str,
    name: str,
    has: Collection[str],
    most: int,
    *,
    suspicious: int = 2,
    suspects: int = 1,
) -> tuple[list[Taken], dict[str, Exception]]:
    """Take runs that this worker may play; and those that can't be read, with why, which are its own as well.

    Args:
        sign, name, has: of the worker, which must live.
        most: how many it has room for.
        suspicious: workers that a run has ended without a row of it, from which on it is a suspect: of many that a dead
            worker had, one may have been to blame.
        suspects: how many of those it takes beside.
    """
    wanted = {
        "has": [*has, KNOWS_PARTS],
        "name": name,
        "preferred": PREFERRED_FOR,
        "most": min(most, MOST_AT_ONCE),
        "suspicious": suspicious,
        "suspects": suspects,
        "sign": sign,
    }
    with db.pipeline(), db.transaction():
        db.execute("set local synchronous_commit = off")  # who loses that in a crash is refused, as any other
        cursor = db.execute(_TAKE, wanted)
    found = sorted(cursor.fetchall(), key=lambda row: row[:2])
    taken: list[Taken] = []
    damaged: dict[str, Exception] = {}
    for _, *row in found:
        each, error = _taken(db, sign, row)
        taken.append(each)
        if error is not None:
            damaged[each.run] = error
    return taken, damaged


def _taken(db: psycopg.Connection[Any], sign: str, row: list[Any]) -> tuple[Taken, Exception | None]:
    """A run that was taken, and why it can't be read."""
    key, run, life, rows, crc, began, about, info, request, bundle, cancelled, suspect = row
    kept = Kept(
        run=run,
        sign=sign,
        state=State.INTERRUPTED,
        life=life - 1,  # as in a file, before it is claimed
        rows=rows,
        began=began,
        ended=None,
        about=bytes(about),
    )
    damaged: Exception | None = None
    try:
        past = past_of(db, key, kept, crc)
    except Exception as error:  # noqa: BLE001 - one that can't be read must not keep the others from being played
        damaged, past = error, Past(kept=kept, rows=[])
    taken = Taken(
        run=run,
        key=key,
        life=life,
        began=began,
        past=past,
        info=bytes(info),
        request=bytes(request or b""),
        bundle=None if bundle is None else bytes(bundle),
        cancelled=cancelled,
        seen=_seen(db, key) if rows else 0,
        suspect=suspect,
    )
    return taken, damaged


def _seen(db: psycopg.Connection[Any], key: int) -> int:
    found = db.execute("select max(last) from callboard.events where run = %s", (key,)).fetchone()
    return 0 if found is None or found[0] is None else found[0]


def past_of(db: psycopg.Connection[Any], key: int, kept: Kept, crc: int) -> Past:
    """All that is kept of a run. Raises `Damaged`."""
    rows = []
    if kept.rows:
        where = f"{kept.run} in the cluster"
        for block in checked(db.execute(_ROWS, (key,)), kept.run, kept.rows, crc, where):
            rows += unpacked(block)
    found = db.execute(
        "select answer, extract(epoch from answered)::double precision from callboard.questions"
        " where run = %s and answer is not null order by answered",
        (key,),
    ).fetchall()
    return Past(kept=kept, rows=rows, letters=[Letter(bytes(answer), at) for answer, at in found])


def sweep(db: psycopg.Connection[Any], sign: str, stuck_after: int, lease: float) -> Lost:
    """Take from the dead what they have not finished, and have parts cancelled whose run is over. Only for a worker
    whose own lease has been good for a while: when the database was away, all leases are over at once.

    Args:
        sign: of that worker; nothing is taken if its own lease is over.
        stuck_after: workers that a run may end, one after another, without a row of it.
    """
    # Its connections hold on to rows for as long as the database waits for the rest of what they were sending: no
    # timeout of PostgreSQL ends that in the midst of a pipeline.
    db.execute(_CUT, (sign,))
    with db.transaction():
        found = db.execute(_SWEEP, (sign, sign, stuck_after)).fetchall()
        if found:
            count(db, "takeovers", len(found))
            tell(db, "q")
            tell(db, "r", *(run for run, _ in found))
        db.execute(_BURY, (10 * lease,))
        if orphans := [run for (run,) in db.execute(_ORPHANS)]:
            _cancel_parts(db, orphans, "the run that they are a part of, which is over")
    return Lost([run for run, parked in found if not parked], [run for run, parked in found if parked])


def give_back(db: psycopg.Connection[Any], sign: str, runs: Sequence[str], prefer: str | None = None) -> None:
    """Put runs of ours back, that we play no more; `prefer` is the name of the worker that should have them."""
    with db.transaction():
        db.execute(
            "update callboard.runs set owner = null, queued = clock_timestamp(), prefer = %s"
            " where owner = %s and run = any(%s) and state = 0",
            (prefer, sign, list(runs)),
        )
        tell(db, "q")


def finish(db: psycopg.Connection[Any], sign: str, run: str, life: int, info: bytes) -> bool:
    """A run of ours is over that never began; whether it was ours."""
    with db.transaction():
        done = db.execute(
            "update callboard.runs set state = %s, owner = null, ended = extract(epoch from clock_timestamp()),"
            " info = %s, changed = nextval('callboard.changes') where run = %s and owner = %s and life = %s",
            (OVER, info, run, sign, life),
        ).rowcount
        tell(db, "r", run)
    return bool(done)


def park(db: psycopg.Connection[Any], sign: str, run: str, life: int, info: bytes) -> None:
    """A run of ours can't go on by itself: nobody takes it until a person wants it."""
    with db.transaction():
        db.execute(
            "update callboard.runs set parked = true, owner = null, info = %s, changed = nextval('callboard.changes')"
            " where run = %s and owner = %s and life = %s",
            (info, run, sign, life),
        )
        tell(db, "r", run)


def unpark(db: psycopg.Connection[Any], run: str) -> Literal["done", "missing", "over", "under way"]:
    """Have a run go on that nobody takes by itself; how that went."""
    with db.transaction():
        done = db.execute(
            "update callboard.runs set parked = false, lost = 0, queued = clock_timestamp(),"
            " changed = nextval('callboard.changes') where run = %s and parked and state = 0",
            (run,),
        ).rowcount
        tell(db, "q")
        tell(db, "r", run)
    if done:
        return "done"
    found = db.execute("select state from callboard.runs where run = %s", (run,)).fetchone()
    return "missing" if found is None else "over" if found[0] == OVER else "under way"


def cancel(db: psycopg.Connection[Any], run: str, by: str, info: bytes) -> bool:
    """Have a run cancelled, with its parts: by its worker, or at once if none has it; False if it is over.

    Args:
        info: how it stands then, if none has it.
    """
    with db.transaction():
        found = db.execute(
            "update callboard.runs set cancelled = %s where run = %s and state = 0 returning owner", (by, run)
        ).fetchone()
        if found is None:
            return False
        if found[0] is None:
            db.execute(
                "update callboard.runs set state = %s, info = %s, ended = extract(epoch from clock_timestamp()),"
                " changed = nextval('callboard.changes') where run = %s",
                (OVER, info, run),
            )
            tell(db, "r", run)
        else:
            tell(db, "c", run)
        _cancel_parts(db, [run], by)
    return True


def _cancel_parts(db: psycopg.Connection[Any], runs: Sequence[str], by: str) -> None:
    """Have all parts of these runs cancelled. Those that nobody has are taken by anybody, and end there."""
    found = db.execute(_CANCEL_PARTS, (list(runs), by)).fetchall()
    if cancelled := [run for run, owner in found if owner is not None]:
        tell(db, "c", *cancelled)
    if len(cancelled) < len(found):
        tell(db, "q")


def tell(db: psycopg.Connection[Any], kind: str, *about: str) -> None:
    """Tell all who listen, when the transaction is over; see `tables.CHANNEL`."""
    for start in range(0, max(1, len(about)), 100):
        db.execute("select pg_notify(%s, %s)", (CHANNEL, " ".join((kind, *about[start : start + 100]))))


def count(db: psycopg.Connection[Any], name: str, more: int = 1) -> None:
    """Count something."""
    db.execute(
        "insert into callboard.counts values (%s, %s)"
        " on conflict (name) do update set value = callboard.counts.value + excluded.value",
        (name, more),
    )
