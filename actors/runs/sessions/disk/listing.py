"""Lists sessions: reads the head of each file, not its messages. Unreadable files are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import InvalidFile
from .....protocol.session import read_session
from ..access import may_see
from .catalog import Warn, pointed
from .files import beginning_of, stamp, text_of, try_lock
from .legacy import legacy_sessions
from .places import Scope
from .stored import SessionMeta, meta_of

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller


def listed(scope: Scope, caller: Caller | None, warn: Warn) -> Iterator[SessionMeta]:
    """The sessions that the caller may see."""
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
