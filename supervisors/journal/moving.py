"""Puts a run that comes from elsewhere into a journal: a database of its own, as one of a process that has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...protocol.kernel.errors import JournalError
from .place import check_place
from .row import Part, RunRecord, Unwritten, sum_of_letter
from .sign import new_sign
from .store import Store


def put_in(
    directory: Path,
    run: str,
    life: int,
    when: tuple[float, float | None],
    about: bytes,
    rows: Sequence[tuple[str, bytes]],
    letters: Sequence[tuple[bytes, float]],
) -> None:
    """Write it. Blocking.

    Args:
        when: it began, and when it was over, if it is.
        rows: whose each is, and what it says.
        letters: what was left for it, and when.

    Raises:
        JournalError: it can't be written.
    """
    check_place(directory)
    store = Store(directory, new_sign())
    record = RunRecord(run, about)
    record.life, (record.began, ended) = life, when
    part = Part()
    part.rows, part.over = list(rows), ended is not None
    try:
        store.write({record: part}, full=True)
        with store.transaction(full=True) as db:
            for data, at in letters:
                values = (run, data, at, sum_of_letter(run, data, at))
                db.execute("insert into inbox(run, data, at, sum) values (?, ?, ?, ?)", values)
    except Unwritten as error:
        raise JournalError(f"no run can be kept in {directory}: {error}") from error
    finally:
        store.close()
