"""Forks: submit a run that begins with rows of another run of the cluster.

    of = origin(db, "run-7f3a01bc")
    submit(db, of, wanted, about, rows)     atomic: the run is inserted with all its rows, or not at all

A worker takes such a run like one whose worker has died: it has rows, and resumes from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..journal.row import OVER, Past, State, StoredRow, StoredRunRecord
from .queue import Wanted, is_there, past_of, put
from .store import put_first_rows

if TYPE_CHECKING:
    import psycopg

_ORIGIN = """
select id, state, life, rows, crc, began, ended, about, info, request, bundle, needs, priority, subject, parent
from callboard.runs where run = %s
"""
_PARTS = """
with recursive parts(run, of) as (
    select run, run from callboard.runs where parent = %s
    union all select r.run, p.of from callboard.runs r join parts p on r.parent = p.run
)
select p.run, p.of from parts p join callboard.runs r on r.run = p.run order by r.id
"""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can be forked.

    Attributes:
        past: the run with its rows; without rows if it has not begun.
        info, request, bundle, needs, priority, subject: see `queue.Wanted`.
        parent: the run that it is a remote child of, or None.
    """

    past: Past
    info: bytes
    request: bytes
    bundle: bytes | None
    needs: tuple[str, ...]
    priority: int
    subject: str
    parent: str | None

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.past.kept.run


def origin(db: psycopg.Connection[Any], run: str) -> Origin | None:
    """Return a run with all its rows; None if it does not exist.

    Raises:
        Damaged: it is not as it was written.
    """
    with db.transaction():
        # Its worker may be writing: the run's entry and its rows must be of one moment.
        db.execute("set transaction isolation level repeatable read, read only")
        found = db.execute(_ORIGIN, (run,)).fetchone()
        if found is None:
            return None
        key, state, life, rows, crc, began, ended, about, info, request, bundle, needs, priority, subject, parent = (
            found
        )
        kept = StoredRunRecord(
            run=run,
            sign="",
            state=State.OVER if state == OVER else State.PLAYED,
            life=life,
            rows=rows,
            began=began,
            ended=ended,
            about=bytes(about),
        )
        past = past_of(db, key, kept, crc)
    return Origin(
        past=past,
        info=bytes(info),
        request=bytes(request or b""),
        bundle=None if bundle is None else bytes(bundle),
        needs=tuple(needs),
        priority=priority,
        subject=subject,
        parent=parent,
    )


def parts_of(db: psycopg.Connection[Any], run: str) -> list[tuple[str, str]]:
    """Return all remote descendants of a run, each with the direct child of the run that it is below."""
    return [(part, of) for part, of in db.execute(_PARTS, (run,))]


def submit(
    db: psycopg.Connection[Any], origin: str, wanted: Wanted, about: bytes, rows: Sequence[StoredRow]
) -> Literal["put", "gone", "taken"]:
    """Put a run with its first rows into the queue. It is durable when this returns.

    Args:
        origin: the run that the rows are from; locked meanwhile, so that its bundle is not removed.
        about: summary of the new run, for the worker that resumes it.

    Returns:
        `put` if the run is in the queue, also by an earlier attempt; `gone` if the origin does not exist any more;
        `taken` if another run has this id.
    """
    with db.transaction():
        if db.execute("select 1 from callboard.runs where run = %s for key share", (origin,)).fetchone() is None:
            return "gone"
        key = put(db, wanted, about).fetchone()
        if key is not None:
            put_first_rows(db, wanted.run, key[0], rows)
            return "put"
    return "put" if is_there(db, wanted) else "taken"
