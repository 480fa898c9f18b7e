"""A session as the store returns it, and as a list shows it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from .....protocol.session import Session
from ..names import is_automatic
from .files import Stamp


class Stored(msgspec.Struct, kw_only=True):
    """A session that was opened.

    Attributes:
        stamp: of the file when it was read or written last.
    """

    id: str
    alias: str | None
    agent: str | None
    session: Session
    stamp: Stamp = (0, 0, 0)

    @property
    def label(self) -> str:
        """How people call it."""
        return self.alias or self.id


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as a list shows it.

    Attributes:
        last_modified: RFC 3339.
        is_autoname: its alias is generated.
        legacy: an older program's, which was not opened here yet.
    """

    id: str
    alias: str | None
    agent: str | None
    last_modified: str
    is_autoname: bool = False
    title: str | None = None
    owner: str | None = None
    created_at: str | None = None
    model: str | None = None
    cwd: str | None = None
    legacy: bool = False


def meta_of(
    session: Session, id: str, alias: str | None, agent: str | None, stamp: Stamp, *, legacy: bool = False
) -> SessionMeta:
    """The session, as a list shows it."""
    return SessionMeta(
        id=id,
        alias=alias,
        agent=agent,
        last_modified=datetime.fromtimestamp(stamp[0] / 1e9, UTC).isoformat().replace("+00:00", "Z"),
        is_autoname=is_automatic(alias),
        title=session.title,
        owner=session.meta.owner,
        created_at=session.meta.created_at,
        model=session.model,
        cwd=cwd if isinstance(cwd := session.other.get("cwd"), str) else None,
        legacy=legacy,
    )
