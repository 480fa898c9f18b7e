"""A session as the store returns it, and as a list shows it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .....protocol.errors import InvalidFile
from .....protocol.session import Session, read_session
from ..access import may_see
from ..names import is_automatic
from ..roles import name_of
from .catalog import Warn, legacy_sessions, pointed
from .files import Stamp, beginning_of, stamp, text_of, try_lock
from .places import Scope

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller


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
    cost: float = 0.0
    role: str | None = None
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
        cost=session.meta.cost,
        role=name_of(session) if agent is None else None,
        legacy=legacy,
    )


def listed(scope: Scope, caller: Caller | None, warn: Warn) -> Iterator[SessionMeta]:
    """The sessions that the caller may see, by the heads of their files. Those that can't be read are left out."""
    _tidy(scope)
    aliases = {pointed(path, scope, warn): path.name for path in scope.pointers()}
    here = scope.ids()
    for id in here:
        yield from _shown(scope, id, aliases.get(id), scope.state(id), caller, warn)
    for id, alias, path in legacy_sessions(scope):
        if id not in here:
            yield from _shown(scope, id, alias, path, caller, warn, legacy=True)


def _shown(
    scope: Scope, id: str, alias: str | None, path: Path, caller: Caller | None, warn: Warn, *, legacy: bool = False
) -> Iterator[SessionMeta]:
    try:
        written = stamp(path)
        session = read_session(beginning_of(path), str(path))
        if session.meta.owner is None:  # it was not written here, so anything may stand anywhere
            session = read_session(text_of(path), str(path))
    except FileNotFoundError:
        return  # deleted while we looked
    except (InvalidFile, OSError) as error:
        warn(f"a session can't be read: {error}")
        return
    if may_see(caller, session.meta):
        yield meta_of(session, id, alias, scope.agent, written, legacy=legacy)


def _tidy(scope: Scope) -> None:
    """Remove remains of sessions whose maker or remover was killed; not while one is made or removed."""
    if not scope.hollow():
        return
    try:
        lock = try_lock(scope.home / "lock")
    except OSError:
        return  # it may only be read
    if lock is not None:
        with lock:
            for folder in scope.hollow():
                shutil.rmtree(folder, ignore_errors=True)
