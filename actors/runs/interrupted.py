"""Lists the durable runs whose process is gone. Blocking; needs no root. `durable` goes on with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ...protocol.journal import STUCK, About, decode_about
from ..io.directories import journal_dir

if TYPE_CHECKING:
    from pathlib import Path

    from ...supervisors.journal.row import Kept


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose process was killed, or has ended before it.

    Attributes:
        sign: of that process.
        life: how many processes have played it.
        about: what it says of itself; None if that can't be read.
        damage: why it can't be read, or "".
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
        """Why it can't go on, as far as that is known, or ""."""
        return self.damage or ("" if self.about is None else self.about.spoilt)

    @property
    def stuck(self) -> bool:
        """Whether processes that went on with it have died again and again, so that only a person may have it go on."""
        about = self.about
        return about is not None and about.is_idle(self.rows) and self.life - about.since + 1 >= STUCK


def interrupted(environ: Mapping[str, str]) -> list[Interrupted]:
    """All of them, the oldest first."""
    return Looks().interrupted(environ)


class Looks:
    """Looks again and again, and reads what has changed since the last time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, list[Interrupted]]] = {}

    def interrupted(self, environ: Mapping[str, str]) -> list[Interrupted]:
        """As `interrupted`."""
        directory = journal_dir(environ)
        if not directory.is_dir():
            return []
        from ...supervisors.journal.reading import interrupted_in
        from ...supervisors.journal.sign import lives
        from ...supervisors.journal.store import databases, path_of

        now: dict[str, tuple[object, list[Interrupted]]] = {}
        for sign in databases(directory, unsettled=True):
            if lives(directory, sign):
                continue
            found = self._known.get(sign)
            stamp = _stamp(path_of(directory, sign))
            if found is None or found[0] != stamp:
                found = stamp, [_of(kept) for kept in interrupted_in(directory, sign)]
            now[sign] = found
        self._known = now
        return sorted((run for _, runs in now.values() for run in runs), key=lambda run: run.began)


def _stamp(path: Path) -> object:
    """What is another one when the database has changed."""
    stamps: list[object] = []
    for file in (path, path.with_name(path.name + "-wal")):
        try:
            found = file.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return stamps


def _of(kept: Kept) -> Interrupted:
    about, damage = None, kept.damage
    try:
        about = decode_about(kept.about) if kept.about else None
    except msgspec.MsgspecError as error:
        damage = damage or f"it is of another version of callboard: {error}"
    return Interrupted(
        run=kept.run,
        sign=kept.sign,
        began=kept.began,
        life=kept.life,
        rows=kept.rows,
        about=about,
        damage=damage,
    )
