"""Run queue of a cluster: runs are submitted, taken by workers with room, and taken back from dead workers.

    submit(db, wanted)             any process
    take(db, sign, name, has, 4)   a worker: up to 4 runs, each with all its rows
    sweep(db, sign, ...)           a worker: the runs of workers whose lease has ended return to the queue
    give_back(db, sign, runs)      a worker that ends

A run is in the queue if it has not ended, has no owner and is not parked. Each take begins another incarnation
(`life`), and only the owner of that incarnation may write (`store`). One lease covers all runs of a worker, so renewing
it writes one row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..journal.row import OVER, InboxEntry, Past, State, StoredRunRecord, checked, first_sum, unpacked
from .tables import CHANNEL

if TYPE_CHECKING:
    import psycopg

MOST_AT_ONCE = 64

KNOWS_PARTS = "callboard.parts"
"""Label that remote child runs need. Every worker has it whose version can execute them."""

REMEMBERED = "q-"
"""Prefix of the ids of questions that are recorded in the run's rows. Others are closed when their worker dies."""

PREFERRED_FOR = 2.0
"""Seconds for which a returned run is reserved for a worker of the same name."""

_SUBMIT = """
insert into callboard.runs(run, needs, priority, subject, request, bundle, crc, parent, began, about, info, changed)
select %s, %s, %s, %s, %s, %s, %s, %s, extract(epoch from clock_timestamp()), %s, %s, nextval('callboard.changes')
where %s or exists (select 1 from callboard.runs where run = %s and owner = %s and life = %s and state = 0
    and cancelled = '')
on conflict (run) do nothing returning id
"""
# A cancelled run is only ended, so any worker may take it, whatever its labels. `skip locked`: workers that take at the
# same time get different runs, and none waits for another.
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
# `lost` counts deaths without a new row in between. A run that has progressed since the last death did not cause it.
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
# The last word of a connection's application name is the sign of its worker. Without further rights, a role may only
# terminate connections of the same role.
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
    """Parent of a remote child run: its id, its owner's sign, and its incarnation."""

    run: str
    sign: str
    life: int


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be submitted.

    Attributes:
        run: its id.
        request: its encoded request; info: its status for lists; bundle: hash of the files that it needs, if any.
        needs: labels that its worker must have.
        priority: runs with a smaller number are taken first.
        subject: user or key that it belongs to.
        parent: the run that it is a remote child of; it is inserted only if the parent's owner is still the given one.
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
    """A run that this worker has taken from the queue.

    Attributes:
        key, life: its number and incarnation, for `ClusterStore.adopt`.
        began: seconds since 1970.
        past: the run with its rows; without rows if it was never begun.
        seen: number of its newest event.
        cancelled: the party that requested its cancellation, or "".
        suspect: True if it may be a poison run: workers have died while they executed it.
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


class SweptRuns(msgspec.Struct, frozen=True):
    """Runs taken back from dead workers.

    Attributes:
        back: runs that wait for another worker.
        parked: poison runs: so many workers died with them that only a user can resume them.
    """

    back: list[str]
    parked: list[str]


def submit(db: psycopg.Connection[Any], wanted: Wanted) -> bool:
    """Put a run into the queue. It is durable when this returns.

    A run that an earlier attempt has inserted is not changed. For a remote child, that is any run with its id.

    Returns:
        False if another run has this id; or if the parent of a remote child has ended, was cancelled, or has another
        owner or incarnation.
    """
    with db.pipeline(), db.transaction():
        there = put(db, wanted)
    if there.fetchone() is not None:
        return True
    if wanted.parent is not None:
        return db.execute("select 1 from callboard.runs where run = %s", (wanted.run,)).fetchone() is not None
    return is_there(db, wanted)


def put(db: psycopg.Connection[Any], wanted: Wanted, about: bytes = b"") -> psycopg.Cursor[Any]:
    """Insert a run into the queue, within a transaction of the caller.

    Args:
        about: its summary, if it begins with rows.

    Returns:
        a cursor with its number; empty if another run has its id, or if its parent has another owner.
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
    notify(db, "q", wanted.run)
    return there


def is_there(db: psycopg.Connection[Any], wanted: Wanted) -> bool:
    """Return whether this very run exists: an earlier attempt has inserted it, and its answer was lost."""
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
    """Take runs from the queue that this worker can execute.

    Args:
        sign, name, has: sign, name and labels of the worker, which must be alive.
        most: number of runs that it has room for.
        suspicious: number of workers that died during a run, without a new row of it, from which on it is a suspect.
        suspects: most suspects to take. A worker executes few at a time: if it dies, one of its runs is to blame.

    Returns:
        the runs, and the errors of unreadable ones. Both belong to the worker now.
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
        # Asynchronous: if a crash of the database loses the take, the fence refuses the run's first group.
        db.execute("set local synchronous_commit = off")
        cursor = db.execute(_TAKE, wanted)
    # `returning` has no defined order.
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
    """Return a run that was taken, and the error if it can't be read."""
    key, run, life, rows, crc, began, about, info, request, bundle, cancelled, suspect = row
    kept = StoredRunRecord(
        run=run,
        sign=sign,
        state=State.INTERRUPTED,
        life=life - 1,  # the incarnation before this take, as for a run in a file before it is claimed
        rows=rows,
        began=began,
        ended=None,
        about=bytes(about),
    )
    damaged: Exception | None = None
    try:
        past = past_of(db, key, kept, crc)
    except Exception as error:  # noqa: BLE001 - an unreadable run must not block the others
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


def past_of(db: psycopg.Connection[Any], key: int, kept: StoredRunRecord, crc: int) -> Past:
    """Return a run with its rows and answers. Raises `Damaged`."""
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
    return Past(kept=kept, rows=rows, letters=[InboxEntry(bytes(answer), at) for answer, at in found])


def sweep(db: psycopg.Connection[Any], sign: str, stuck_after: int, lease: float) -> SweptRuns:
    """Return unfinished runs of dead workers to the queue, and cancel remote children whose parent has ended.

    Only for a worker whose own lease has been valid for a while: after an outage of the database, all leases have ended
    at the same time.

    Args:
        sign: sign of that worker; nothing is taken if its own lease has ended.
        stuck_after: number of workers in a row that may die during a run, without a new row, before it is parked.
        lease: seconds of a lease. Workers without runs are removed ten leases after theirs has ended.
    """
    # A dead worker's connections hold locks while the database waits for the rest of their pipeline: no timeout of
    # PostgreSQL applies there, so they are terminated.
    db.execute(_CUT, (sign,))
    with db.transaction():
        found = db.execute(_SWEEP, (sign, sign, stuck_after)).fetchall()
        if found:
            count(db, "takeovers", len(found))
            notify(db, "q")
            notify(db, "r", *(run for run, _ in found))
        db.execute(_BURY, (10 * lease,))
        if orphans := [run for (run,) in db.execute(_ORPHANS)]:
            _cancel_parts(db, orphans, "the run that they are a part of, which is over")
    return SweptRuns([run for run, parked in found if not parked], [run for run, parked in found if parked])


def give_back(db: psycopg.Connection[Any], sign: str, runs: Sequence[str], prefer: str | None = None) -> None:
    """Return runs of this worker to the queue; `prefer` names the worker that should take them."""
    with db.transaction():
        db.execute(
            "update callboard.runs set owner = null, queued = clock_timestamp(), prefer = %s"
            " where owner = %s and run = any(%s) and state = 0",
            (prefer, sign, list(runs)),
        )
        notify(db, "q")


def finish(db: psycopg.Connection[Any], sign: str, run: str, life: int, info: bytes) -> bool:
    """End a run of this worker that never began. False if it does not own the run any more."""
    with db.transaction():
        done = db.execute(
            "update callboard.runs set state = %s, owner = null, ended = extract(epoch from clock_timestamp()),"
            " info = %s, changed = nextval('callboard.changes') where run = %s and owner = %s and life = %s",
            (OVER, info, run, sign, life),
        ).rowcount
        notify(db, "r", run)
    return bool(done)


def park(db: psycopg.Connection[Any], sign: str, run: str, life: int, info: bytes) -> None:
    """Park a run of this worker: no worker takes it until a user resumes it (`unpark`).

    No effect if the worker does not own the run in this incarnation any more.
    """
    with db.transaction():
        db.execute(
            "update callboard.runs set parked = true, owner = null, info = %s, changed = nextval('callboard.changes')"
            " where run = %s and owner = %s and life = %s",
            (info, run, sign, life),
        )
        notify(db, "r", run)


def unpark(db: psycopg.Connection[Any], run: str) -> Literal["done", "missing", "over", "under way"]:
    """Return a parked run to the queue.

    Returns:
        `done`; `missing` if there is no such run; `over` if it has ended; `under way` if it is not parked.
    """
    with db.transaction():
        done = db.execute(
            "update callboard.runs set parked = false, lost = 0, queued = clock_timestamp(),"
            " changed = nextval('callboard.changes') where run = %s and parked and state = 0",
            (run,),
        ).rowcount
        notify(db, "q")
        notify(db, "r", run)
    if done:
        return "done"
    found = db.execute("select state from callboard.runs where run = %s", (run,)).fetchone()
    return "missing" if found is None else "over" if found[0] == OVER else "under way"


def cancel(db: psycopg.Connection[Any], run: str, by: str, info: bytes) -> bool:
    """Cancel a run and its remote children: its worker does so, or it ends at once if it has none.

    Args:
        info: its new status if it has no worker.

    Returns:
        False if it has ended already.
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
            notify(db, "r", run)
        else:
            notify(db, "c", run)
        _cancel_parts(db, [run], by)
    return True


def _cancel_parts(db: psycopg.Connection[Any], runs: Sequence[str], by: str) -> None:
    """Cancel all remote descendants of these runs. A worker takes those without an owner, and ends them."""
    found = db.execute(_CANCEL_PARTS, (list(runs), by)).fetchall()
    if cancelled := [run for run, owner in found if owner is not None]:
        notify(db, "c", *cancelled)
    if len(cancelled) < len(found):
        notify(db, "q")


def notify(db: psycopg.Connection[Any], kind: str, *about: str) -> None:
    """Notify all listeners when the transaction commits; see `tables.CHANNEL`."""
    # 100 run ids (`requests.ID`) take at most 4,500 bytes; PostgreSQL's limit for a payload is 8,000.
    for start in range(0, max(1, len(about)), 100):
        db.execute("select pg_notify(%s, %s)", (CHANNEL, " ".join((kind, *about[start : start + 100]))))


def count(db: psycopg.Connection[Any], name: str, more: int = 1) -> None:
    """Increase a counter for metrics."""
    db.execute(
        "insert into callboard.counts values (%s, %s)"
        " on conflict (name) do update set value = callboard.counts.value + excluded.value",
        (name, more),
    )
