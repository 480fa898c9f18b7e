"""Session records: as the store returns them, and as lists show them."""

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
from .layout import SessionScope

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from .....protocol.control.method_structs import SessionMeta


class Stored(msgspec.Struct, kw_only=True):
    """Session that was opened.

    Attributes:
        stamp: fingerprint of the file at its last read or write.
    """

    id: str
    alias: str | None
    agent: str | None
    session: Session
    stamp: Stamp = (0, 0, 0)

    @property
    def label(self) -> str:
        """Name of the session in messages: its alias, else its id."""
        return self.alias or self.id


def meta_of(
    session: Session, id: str, alias: str | None, agent: str | None, stamp: Stamp, *, legacy: bool = False
) -> SessionMeta:
    """Return the session as lists show it."""
    # Imported here: it pulls in six modules that a run does not need.
    from .....protocol.control.method_structs import SessionMeta

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


def listed(scope: SessionScope, caller: Caller | None, warn: Warn) -> Iterator[SessionMeta]:
    """Yield the sessions that the caller may read, from the heads of their files. Unreadable ones cause warnings."""
    _tidy(scope)
    aliases = {pointed(path, scope, warn): path.name for path in scope.pointers()}
    here = scope.ids()
    for id in here:
        yield from _readable_session(scope, id, aliases.get(id), scope.state(id), caller, warn)
    for id, alias, path in legacy_sessions(scope):
        if id not in here:
            yield from _readable_session(scope, id, alias, path, caller, warn, legacy=True)


def _readable_session(
    scope: SessionScope,
    id: str,
    alias: str | None,
    path: Path,
    caller: Caller | None,
    warn: Warn,
    *,
    legacy: bool = False,
) -> Iterator[SessionMeta]:
    try:
        written = stamp(path)
        session = read_session(beginning_of(path), str(path))
        # The file was not written by Callboard, so its keys may be in any order and below the messages.
        if session.meta.owner is None:
            session = read_session(text_of(path), str(path))
    except FileNotFoundError:
        return  # deleted since the listing
    except (InvalidFile, OSError) as error:
        warn(f"a session can't be read: {error}")
        return
    if may_see(caller, session.meta):
        yield meta_of(session, id, alias, scope.agent, written, legacy=legacy)


def _tidy(scope: SessionScope) -> None:
    """Remove incomplete session directories of killed processes, unless a session is being created or removed now."""
    if not scope.hollow():
        return
    try:
        lock = try_lock(scope.home / "lock")
    except OSError:
        return  # the directory is read-only
    if lock is not None:
        with lock:
            for folder in scope.hollow():
                shutil.rmtree(folder, ignore_errors=True)
