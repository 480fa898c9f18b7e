"""Workers of a cluster: each has a row with a lease, measured by the clock of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .queue import notify

if TYPE_CHECKING:
    import psycopg


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process and its row in the table.

    Attributes:
        sign: unique name of the process.
        name: name for users; the next process on the machine has the same.
        url: address of its control channel, or ""; token: secret that opens the channel on its own machine.
        has: its labels; room: number of runs that it executes at a time.
        left: seconds until its lease ends; negative for a dead worker.
        runs: number of runs that it owns.
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
    """Address of a worker's control channel, and the token that opens it on the worker's own machine."""

    name: str
    url: str
    token: str


class Held(msgspec.Struct, frozen=True):
    """Result of renewing a lease.

    Attributes:
        late: True if the lease had ended, so that other workers may have taken its runs.
        runs: its runs with their numbers of rows; None if they were not requested and the lease was in time.
        cancelled: its runs that are to be cancelled, each with the party that requested it; empty unless `runs` were
            requested or the lease was late.
    """

    late: bool
    runs: dict[str, int] | None
    cancelled: dict[str, str]


def register(db: psycopg.Connection[Any], worker: Worker, lease: float) -> None:
    """Insert a worker; if its row exists, only renew the lease, for `lease` seconds, and replace the address."""
    db.execute(
        "insert into callboard.workers(sign, name, url, token, has, room, version, lease)"
        " values (%s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))"
        " on conflict (sign) do update set lease = excluded.lease, url = excluded.url",
        (worker.sign, worker.name, worker.url, worker.token, list(worker.has), worker.room, worker.version, lease),
    )


def renew(db: psycopg.Connection[Any], sign: str, lease: float, *, look: bool) -> Held | None:
    """Renew a lease for `lease` seconds; None if the worker was removed as dead and has to `register` again.

    Args:
        look: also return its runs, and which of them are to be cancelled.
    """
    found = db.execute(
        "update callboard.workers w set lease = clock_timestamp() + make_interval(secs => %s)"
        # `returning` only has new values; the lease before the update comes from here.
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
    """Return the number of living workers."""
    found = db.execute("select count(*) from callboard.workers where lease > clock_timestamp()").fetchone()
    return 0 if found is None else int(found[0])


def worker_of(db: psycopg.Connection[Any], run: str, last: str = "") -> Reached | None:
    """Return the worker that executes a run, or else a living worker named `last`; None if there is neither."""
    found = playing(db, run) or {sign: each for sign, each in living(db).items() if each.name == last}
    return next(iter(found.values()), None)


def playing(db: psycopg.Connection[Any], run: str) -> dict[str, Reached]:
    """Return the worker that executes a run, by its sign; empty if there is none."""
    found = db.execute(
        "select w.sign, w.name, w.url, w.token from callboard.runs r join callboard.workers w on w.sign = r.owner"
        " where r.run = %s",
        (run,),
    ).fetchall()
    return {sign: Reached(*each) for sign, *each in found}


def living(db: psycopg.Connection[Any]) -> dict[str, Reached]:
    """Return all living workers, by their signs."""
    found = db.execute(
        "select sign, name, url, token from callboard.workers where lease > clock_timestamp()"
    ).fetchall()
    return {sign: Reached(*each) for sign, *each in found}


def drain(db: psycopg.Connection[Any], sign: str) -> None:
    """Mark a worker as draining: it takes no more runs."""
    db.execute("update callboard.workers set draining = true where sign = %s", (sign,))


def leave(db: psycopg.Connection[Any], sign: str, prefer: str) -> None:
    """Remove a worker. Its unfinished runs return to the queue, preferably for a worker of the name `prefer`."""
    with db.transaction():
        db.execute(
            "update callboard.runs set owner = null, queued = clock_timestamp(), prefer = %s"
            " where owner = %s and state = 0",
            (prefer, sign),
        )
        db.execute("delete from callboard.workers where sign = %s", (sign,))
        notify(db, "q")


def workers(db: psycopg.Connection[Any]) -> list[Worker]:
    """Return all workers by name, including dead ones that are not removed yet; without their tokens."""
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
