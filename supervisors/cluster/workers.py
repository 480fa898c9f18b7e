"""Who plays runs in a cluster: each worker has a row, and a lease in it by the clock of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .queue import tell

if TYPE_CHECKING:
    import psycopg


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker.

    Attributes:
        sign: its own, of this very process.
        name: as people call it; the next process on the machine has the same.
        url: where its control channel is, or ""; token: what opens it to who is on its machine.
        has: its labels; room: how many runs it plays at a time.
        left: seconds of its lease; less than 0 for one that is dead.
        runs: how many it plays.
    """

    sign: str
    name: str
    url: str = ""
    token: str = ""
    has: tuple[str, ...] = ()
    room: int = 0
    version: str = ""
    draining: bool = False
    left: float = 0.0
    runs: int = 0


class Reached(msgspec.Struct, frozen=True):
    """Where the worker of a run is, and the token for who is on its machine."""

    name: str
    url: str
    token: str


class Held(msgspec.Struct, frozen=True):
    """What a worker hears when it renews its lease.

    Attributes:
        late: its lease was over, so that others may have taken its runs.
        runs: those that it has, with how many rows of each are there; None unless they were asked for, or it was late.
        cancelled: those of them that shall be cancelled, with who wants that.
    """

    late: bool
    runs: dict[str, int] | None
    cancelled: dict[str, str]


def register(db: psycopg.Connection[Any], worker: Worker, lease: float) -> None:
    """A worker lives from now on."""
    db.execute(
        "insert into callboard.workers(sign, name, url, token, has, room, version, lease)"
        " values (%s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))"
        " on conflict (sign) do update set lease = excluded.lease, url = excluded.url",
        (worker.sign, worker.name, worker.url, worker.token, list(worker.has), worker.room, worker.version, lease),
    )


def renew(db: psycopg.Connection[Any], sign: str, lease: float, *, look: bool) -> Held | None:
    """It lives still, for so many seconds more; None if it is taken for dead, and has to `register` again.

    Args:
        look: which runs it has is wanted.
    """
    found = db.execute(
        "update callboard.workers w set lease = clock_timestamp() + make_interval(secs => %s)"
        " from (select sign, lease from callboard.workers where sign = %s for update) old"
        " where w.sign = old.sign returning old.lease < clock_timestamp()",
        (lease, sign),
    ).fetchone()
    if found is None:
        return None
    if not look and not found[0]:
        return Held(late=False, runs=None, cancelled={})
    runs = db.execute("select run, rows, cancelled from callboard.runs where owner = %s", (sign,)).fetchall()
    cancelled = {run: by for run, _, by in runs if by}
    return Held(late=found[0], runs={run: rows for run, rows, _ in runs}, cancelled=cancelled)


def alive(db: psycopg.Connection[Any]) -> int:
    """How many workers there are."""
    found = db.execute("select count(*) from callboard.workers where lease > clock_timestamp()").fetchone()
    return 0 if found is None else int(found[0])


def worker_of(db: psycopg.Connection[Any], run: str, last: str = "") -> Reached | None:
    """The worker that plays a run, else one that lives and is called `last`; None if there is none."""
    found = playing(db, run) or {sign: each for sign, each in living(db).items() if each.name == last}
    return next(iter(found.values()), None)


def playing(db: psycopg.Connection[Any], run: str) -> dict[str, Reached]:
    """The same by its sign."""
    found = db.execute(
        "select w.sign, w.name, w.url, w.token from callboard.runs r join callboard.workers w on w.sign = r.owner"
        " where r.run = %s",
        (run,),
    ).fetchall()
    return {sign: Reached(*each) for sign, *each in found}


def living(db: psycopg.Connection[Any]) -> dict[str, Reached]:
    """All workers that live, by their signs."""
    found = db.execute(
        "select sign, name, url, token from callboard.workers where lease > clock_timestamp()"
    ).fetchall()
    return {sign: Reached(*each) for sign, *each in found}


def drain(db: psycopg.Connection[Any], sign: str) -> None:
    """It takes no more."""
    db.execute("update callboard.workers set draining = true where sign = %s", (sign,))


def leave(db: psycopg.Connection[Any], sign: str, prefer: str) -> None:
    """It is gone; what it has not finished goes back into the queue, first of all to one of the same name."""
    with db.transaction():
        db.execute(
            "update callboard.runs set owner = null, queued = clock_timestamp(), prefer = %s"
            " where owner = %s and state = 0",
            (prefer, sign),
        )
        db.execute("delete from callboard.workers where sign = %s", (sign,))
        tell(db, "q")


def workers(db: psycopg.Connection[Any]) -> list[Worker]:
    """All of them, the dead included that nobody has buried yet."""
    found = db.execute(
        "select w.sign, name, url, has, room, version, draining,"
        " extract(epoch from lease - clock_timestamp())::double precision,"
        " (select count(*) from callboard.runs where owner = w.sign) from callboard.workers w order by name, began"
    ).fetchall()
    return [
        Worker(
            sign=sign,
            name=name,
            url=url,
            has=tuple(has),
            room=room,
            version=version,
            draining=draining,
            left=left,
            runs=runs,
        )
        for sign, name, url, has, room, version, draining, left, runs in found
    ]
