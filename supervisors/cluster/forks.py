"""Forks: what another run begins with of one of the cluster, and that run in the queue with its first rows.

    of = origin(db, "run-7f3a01bc")         anybody
    submit(db, of, wanted, about, rows)     anybody: it is there with all its rows, or not at all

A worker takes such a run as one whose worker has died: it has rows, and goes on from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..journal.row import OVER, Kept, Past, Row, State
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
    """A run that others may begin like.

    Attributes:
        past: all that is kept of it; without rows if it has not begun.
        info, request, bundle, needs, priority, subject: see `queue.Wanted`.
        parent: the run that it is a part of, or None.
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
        """Its id."""
        return self.past.kept.run


def origin(db: psycopg.Connection[Any], run: str) -> Origin | None:
    """All of a run, whichever worker plays it; None if there is none.

    Raises:
        Damaged: it is not as it was written.
    """
    with db.transaction():
        # Its worker may write meanwhile: what is said of it and its rows are of one moment.
        db.execute("set transaction isolation level repeatable read, read only")
        found = db.execute(_ORIGIN, (run,)).fetchone()
        if found is None:
            return None
        key, state, life, rows, crc, began, ended, about, info, request, bundle, needs, priority, subject, parent = (
            found
        )
        kept = Kept(
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
    """All parts of a run, and parts of these, each with that which is one of the run itself."""
    return [(part, of) for part, of in db.execute(_PARTS, (run,))]


def submit(
    db: psycopg.Connection[Any], origin: str, wanted: Wanted, about: bytes, rows: Sequence[Row]
) -> Literal["put", "gone", "taken"]:
    """Put a run into the queue that begins with rows; it is on the disk with all of them when this returns.

    Args:
        origin: the run that they are of, which keeps the bundle until the other one does.
        about: what is said of it, for who goes on with it.

    Returns:
        `gone` if the origin is not there any more, `taken` if there is another run of this id.
    """
    with db.transaction():
        if db.execute("select 1 from callboard.runs where run = %s for key share", (origin,)).fetchone() is None:
            return "gone"
        key = put(db, wanted, about).fetchone()
        if key is not None:
            put_first_rows(db, wanted.run, key[0], rows)
            return "put"
    return "put" if is_there(db, wanted) else "taken"
