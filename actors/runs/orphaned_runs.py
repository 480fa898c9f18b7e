"""List of durable runs whose process is dead. Blocking; needs no root. `durable` resumes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ...protocol.journal import STUCK, About, decode_about
from ..io.directories import journal_dir

if TYPE_CHECKING:
    from pathlib import Path

    from ...supervisors.journal.row import StoredRunRecord


class InterruptedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Durable run whose process was killed, or ended before the run did.

    Attributes:
        sign: name of that process (`liveness_lock`).
        life: number of processes that have executed the run.
        about: summary stored with the run; None if it cannot be read.
        damage: reason why the run cannot be read, or "".
    """

    run: str
    sign: str
    began: float
    life: int
    rows: int
    about: About | None
    damage: str = ""

    @property
    def why_not(self) -> str:
        """The known reason why the run cannot be resumed, or ""."""
        return self.damage or ("" if self.about is None else self.about.spoilt)

    @property
    def stuck(self) -> bool:
        """True if `STUCK` processes in a row died without adding a row. Only a user may resume such a run."""
        about = self.about
        return about is not None and about.is_idle(self.rows) and self.life - about.since + 1 >= STUCK


def interrupted(environ: Mapping[str, str]) -> list[InterruptedRun]:
    """Return all interrupted runs, oldest first."""
    return Looks().interrupted(environ)


class Looks:
    """Cache for repeated listings: reads only databases that have changed since the last call."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, list[InterruptedRun]]] = {}

    def interrupted(self, environ: Mapping[str, str]) -> list[InterruptedRun]:
        directory = journal_dir(environ)
        if not directory.is_dir():
            return []
        from ...supervisors.journal.liveness_lock import is_alive
        from ...supervisors.journal.reading import interrupted_in
        from ...supervisors.journal.store import databases, path_of

        now: dict[str, tuple[object, list[InterruptedRun]]] = {}
        for sign in databases(directory, unsettled=True):
            # A live process still executes its runs, or will mark their ends.
            if is_alive(directory, sign):
                continue
            found = self._known.get(sign)
            stamp = _stamp(path_of(directory, sign))
            if found is None or found[0] != stamp:
                found = stamp, [_of(kept) for kept in interrupted_in(directory, sign)]
            # Only databases found in this pass are retained, so that the cache does not grow with removed files.
            now[sign] = found
        self._known = now
        return sorted((run for _, runs in now.values() for run in runs), key=lambda run: run.began)


def _stamp(path: Path) -> object:
    """Return a value that differs after each change of the database."""
    stamps: list[object] = []
    # In WAL mode a commit changes only the `-wal` file until the next checkpoint.
    for file in (path, path.with_name(path.name + "-wal")):
        try:
            found = file.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return stamps


def _of(kept: StoredRunRecord) -> InterruptedRun:
    about, damage = None, kept.damage
    try:
        about = decode_about(kept.about) if kept.about else None
    except msgspec.MsgspecError as error:
        damage = damage or f"it is of another version of callboard: {error}"
    return InterruptedRun(
        run=kept.run,
        sign=kept.sign,
        began=kept.began,
        life=kept.life,
        rows=kept.rows,
        about=about,
        damage=damage,
    )
