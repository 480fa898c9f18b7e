"""Lists the durable runs whose process is gone. Blocking; needs no root. `durable` goes on with them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...protocol.journal import STUCK, About, decode_about
from ..io.directories import journal_dir


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
        return about is not None and not about.left and about.idle >= STUCK and about.rows == self.rows


def interrupted(environ: Mapping[str, str]) -> list[Interrupted]:
    """All of them, the oldest first."""
    from ...supervisors.journal.reading import kept_runs
    from ...supervisors.journal.row import State

    found = []
    for kept in kept_runs(journal_dir(environ), State.INTERRUPTED):
        about = None
        damage = kept.damage
        try:
            about = decode_about(kept.about) if kept.about else None
        except msgspec.MsgspecError as error:
            damage = damage or f"it is of another version of callboard: {error}"
        found.append(
            Interrupted(
                run=kept.run,
                sign=kept.sign,
                began=kept.began,
                life=kept.life,
                rows=kept.rows,
                about=about,
                damage=damage,
            )
        )
    return found
