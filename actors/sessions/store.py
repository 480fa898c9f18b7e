"""The sessions on disk. Nothing here waits for a model or keeps a state of its own; it blocks, so call it in a thread.

    store = SessionStore(config_dir)
    kept = store.open_or_create_by_alias("bridges", agent="researcher")
    kept.session.messages.append({"role": "user", "content": "..."})
    store.save(kept)

A file is replaced whole. Who changes one holds its lock meanwhile (`hold`), so that two processes never write at once;
what was changed without the lock, with an editor say, is noticed by its time and never overwritten: `Conflict`.

`caller` is whoever asks from outside (see `access`); without one it is the person at this machine.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.errors import Conflict, InvalidFile, NotFound, UsageError
from ...protocol.problems import did_you_mean
from ...protocol.session import Session, head_of, read_session, write_session
from .access import check_read, claim, may_see, new_meta
from .files import Lock, holder, private, sweep, try_lock, wait_lock, write_whole
from .legacy import alias_of_legacy, legacy_file, legacy_sessions
from .names import as_id, checked_alias, is_automatic, legacy_id, new_id
from .places import Scope, all_scopes, scope_of

if TYPE_CHECKING:
    from ...protocol.control.caller import Caller

log = logging.getLogger("callboard.sessions")

NAMES_WITHIN = 10.0
"""Seconds to wait for another process that changes names."""

Stamp = tuple[int, int, int]


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
        is_autoname: nobody chose its alias.
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


class SessionStore:
    """See the module. `warn` is told what is odd about the files."""

    def __init__(self, config_dir: Path, *, warn: Callable[[str], None] = log.warning) -> None:
        self.config_dir = config_dir
        self.warn = warn

    # --- finding --------------------------------------------------------------------------------------------

    def resolve_alias(self, alias: str, agent: str | None = None) -> str | None:
        """The id that an alias stands for; None if it stands for none."""
        scope = scope_of(self.config_dir, agent)
        alias = checked_alias(alias)
        found = self._pointed(scope, alias)
        if found is None and legacy_file(scope, alias) is not None:
            return legacy_id(agent, alias)
        return found

    def resolve(self, name: str, agent: str | None = None) -> str:
        """The id of the session that somebody calls `name`: an id or an alias.

        Raises:
            NotFound: there is none.
            UsageError: nothing can be called so.
        """
        id = as_id(name) or self.resolve_alias(name, agent)
        if id is not None and self._is_there(scope_of(self.config_dir, agent), id):
            return id
        aliases = [each.alias for each in self.list(agent) if each.alias]
        of = f" of agent '{agent}'" if agent is not None else ""
        hint = did_you_mean(name, aliases) or "callboard sessions list shows those there are"
        raise NotFound(f"there is no session '{name}'{of}; {hint}")

    def locate(self, id: str) -> str | None:
        """Whose session this is: the agent's name, or None for no agent.

        Raises:
            NotFound: there is none with this id.
        """
        wanted = as_id(id)
        if wanted is not None:
            for scope in all_scopes(self.config_dir):
                if self._is_there(scope, wanted):
                    return scope.agent
        raise NotFound(f"there is no session '{id}'")

    def list(
        self, agent: str | None = None, *, everywhere: bool = False, caller: Caller | None = None
    ) -> list[SessionMeta]:
        """The sessions of an agent, of none, or all there are; newest first. Others' are left out."""
        scopes = all_scopes(self.config_dir) if everywhere else [scope_of(self.config_dir, agent)]
        found = [meta for scope in scopes for meta in self._in(scope, caller)]
        return sorted(found, key=lambda meta: (meta.last_modified, meta.id), reverse=True)

    def path(self, id: str, agent: str | None = None) -> Path:
        """The session's file, which is there unless an older program's was not opened yet."""
        return scope_of(self.config_dir, agent).state(id)

    def meta(self, stored: Stored) -> SessionMeta:
        """The session, as a list shows it."""
        path = self.path(stored.id, stored.agent)
        return _meta(stored.session, stored.id, stored.alias, stored.agent, _stamp(path))

    # --- opening --------------------------------------------------------------------------------------------

    def create(
        self,
        agent: str | None = None,
        alias: str | None = None,
        initial: Session | None = None,
        *,
        caller: Caller | None = None,
    ) -> Stored:
        """A new session.

        Raises:
            Conflict: the alias is in use.
        """
        scope = scope_of(self.config_dir, agent)
        alias = None if alias is None else checked_alias(alias)
        with self._names(scope):
            if alias is not None and self.resolve_alias(alias, agent) is not None:
                raise Conflict(f"there is a session called '{alias}' already; choose another name for the new one")
            return self._create(scope, alias, initial, caller)

    def open(self, id: str, agent: str | None = None, *, caller: Caller | None = None) -> Stored:
        """The session with this id.

        Raises:
            NotFound, Denied: there is none, or it is somebody else's.
            InvalidFile: its file can't be read.
        """
        scope = scope_of(self.config_dir, agent)
        known = as_id(id)
        if known is None:
            raise UsageError(f"'{id}' is not the id of a session, which is a UUID")
        if not scope.state(known).is_file():
            alias = alias_of_legacy(scope, known)
            if alias is None:
                raise NotFound(f"there is no session '{id}'")
            with self._names(scope):
                self._migrate(scope, alias)
        stored = self._read(scope, known)
        check_read(caller, stored.session.meta, known)
        return stored

    def open_or_create_by_alias(
        self,
        alias: str,
        agent: str | None = None,
        initial: Callable[[], Session] = Session,
        *,
        caller: Caller | None = None,
    ) -> Stored:
        """The session of this name, made if there is none.

        Raises:
            Denied: it is somebody else's.
        """
        scope = scope_of(self.config_dir, agent)
        alias = checked_alias(alias)
        id = self._pointed(scope, alias)
        if id is None:
            with self._names(scope):
                id = self._pointed(scope, alias) or self._migrate(scope, alias)
                if id is None:
                    return self._create(scope, alias, initial(), caller)
        return self.open(id, agent, caller=caller)

    def fresh(self, stored: Stored) -> Stored:
        """The session as it is now: `stored` itself if nobody has changed the file."""
        scope = scope_of(self.config_dir, stored.agent)
        path = scope.state(stored.id)
        if path.is_file() and _stamp(path) == stored.stamp:
            stored.alias = self._alias_of(scope, stored.id)
            return stored
        return self.open(stored.id, stored.agent)

    # --- changing -------------------------------------------------------------------------------------------

    def try_hold(self, id: str, agent: str | None = None) -> Lock | None:
        """The session's lock, to change it; None while another process works with it.

        Raises:
            NotFound: there is no such session any more.
        """
        try:
            return try_lock(scope_of(self.config_dir, agent).folder(id) / "lock")
        except FileNotFoundError:
            raise NotFound(f"there is no session '{id}'") from None

    def in_use(self, stored: Stored) -> Conflict:
        """What to tell who can't have the lock."""
        pid = holder(scope_of(self.config_dir, stored.agent).folder(stored.id) / "lock")
        by = f"process {pid}" if pid is not None else "another process"
        return Conflict(f"session '{stored.label}' is in use by {by}; try again when that is done")

    def save(self, stored: Stored) -> None:
        """Write what was changed. Hold the lock meanwhile.

        Raises:
            NotFound: it was deleted.
            Conflict: somebody else has changed the file.
        """
        path = scope_of(self.config_dir, stored.agent).state(stored.id)
        if not path.is_file():
            raise NotFound(f"session '{stored.label}' was deleted meanwhile")
        if _stamp(path) != stored.stamp:
            raise Conflict(f"session '{stored.label}' was changed by somebody else meanwhile: {path}")
        write_whole(path, write_session(stored.session))
        stored.stamp = _stamp(path)

    def rename(self, id: str, alias: str, agent: str | None = None, *, caller: Caller | None = None) -> Stored:
        """Give it this alias in place of the one it has; its file stays as it is.

        Raises:
            Conflict: another session has the alias.
        """
        alias = checked_alias(alias)
        scope = scope_of(self.config_dir, agent)
        stored = self._for_change(id, agent, caller)
        with self._names(scope):
            other = self.resolve_alias(alias, agent)
            if other is not None and other != id:
                raise Conflict(f"there is a session called '{alias}' already")
            old = self._alias_of(scope, id)
            write_whole(scope.pointer(alias), f"{id}\n")
            if old is not None and old != alias:
                scope.pointer(old).unlink(missing_ok=True)
        stored.alias = alias
        return stored

    def delete(self, id: str, agent: str | None = None, *, caller: Caller | None = None) -> None:
        """Remove it for good, an older program's file of it as well. Hold the lock meanwhile."""
        scope = scope_of(self.config_dir, agent)
        self._for_change(id, agent, caller)
        with self._names(scope):
            aliases = [path.name for path in scope.pointers() if self._pointed(scope, path.name) == id]
            for alias in aliases:
                scope.pointer(alias).unlink(missing_ok=True)
            for found, _, path in [*legacy_sessions(scope)]:
                if found == id:
                    path.unlink(missing_ok=True)
            scope.state(id).unlink(missing_ok=True)
            shutil.rmtree(scope.folder(id), ignore_errors=True)

    def move(self, id: str, agent: str | None, to: str | None, *, caller: Caller | None = None) -> Stored:
        """Make it a session of another agent, or of none. Hold the lock meanwhile.

        Raises:
            Conflict: that agent has a session of this alias already.
        """
        stored = self._for_change(id, agent, caller)
        if to == agent:
            return stored
        old, new = scope_of(self.config_dir, agent), scope_of(self.config_dir, to)
        with self._names(old), self._names(new):
            alias = self._alias_of(old, id)
            if alias is not None and self.resolve_alias(alias, to) is not None:
                raise Conflict(f"there is a session called '{alias}' already where this one should go")
            private(new.folder(id).parent)
            old.folder(id).rename(new.folder(id))
            if alias is not None:
                write_whole(new.pointer(alias), f"{id}\n")
                old.pointer(alias).unlink(missing_ok=True)
        return self.open(id, to)

    def set_owner(
        self, id: str, owner: str | None, agent: str | None = None, *, caller: Caller | None = None
    ) -> Stored:
        """Give it to somebody. Hold the lock meanwhile."""
        stored = self._for_change(id, agent, caller)
        stored.session.meta.owner = owner
        self.save(stored)
        return stored

    # --- inside ---------------------------------------------------------------------------------------------

    def _for_change(self, id: str, agent: str | None, caller: Caller | None) -> Stored:
        stored = self.open(id, agent, caller=caller)
        if claim(caller, stored.session.meta, id):
            self.save(stored)
        return stored

    @contextlib.contextmanager
    def _names(self, scope: Scope) -> Iterator[None]:
        """What changes names, one process at a time."""
        private(scope.home)
        lock = wait_lock(scope.home / "lock", NAMES_WITHIN)
        if lock is None:
            raise Conflict(f"another process keeps the names of sessions locked: {scope.home / 'lock'}")
        with lock:
            yield

    def _create(self, scope: Scope, alias: str | None, initial: Session | None, caller: Caller | None) -> Stored:
        id = new_id()
        session = initial or Session()
        session.meta = new_meta(caller)
        write_whole(scope.state(id), write_session(session))
        if alias is not None:
            write_whole(scope.pointer(alias), f"{id}\n")
        return Stored(id=id, alias=alias, agent=scope.agent, session=session, stamp=_stamp(scope.state(id)))

    def _migrate(self, scope: Scope, alias: str) -> str | None:
        """Copy an older program's session; its id, or None if there is no such one."""
        path = legacy_file(scope, alias)
        if path is None:
            return None
        text = _text_of(path)
        read_session(text, str(path))
        id = legacy_id(scope.agent, alias)
        if not scope.state(id).is_file():
            write_whole(scope.state(id), text)
        write_whole(scope.pointer(alias), f"{id}\n")
        return id

    def _is_there(self, scope: Scope, id: str) -> bool:
        return scope.state(id).is_file() or alias_of_legacy(scope, id) is not None

    def _pointed(self, scope: Scope, alias: str) -> str | None:
        """The id in an alias' file; None, with a warning, if that file is of no use."""
        path = scope.pointer(alias)
        try:
            text = path.read_bytes()[:100].decode("utf-8", "replace").strip()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        id = as_id(text)
        if id is not None and scope.state(id).is_file():
            return id
        what = "names a session that is not there" if id is not None else "does not hold the id of a session"
        self.warn(f"{path} {what}; it counts as missing")
        return None

    def _alias_of(self, scope: Scope, id: str) -> str | None:
        return next((path.name for path in scope.pointers() if self._pointed(scope, path.name) == id), None)

    def _read(self, scope: Scope, id: str) -> Stored:
        path = scope.state(id)
        sweep(path.parent)
        try:
            stamp = _stamp(path)
            session = read_session(_text_of(path), str(path))
        except FileNotFoundError:
            raise NotFound(f"there is no session '{id}'") from None
        alias = self._alias_of(scope, id)
        return Stored(id=id, alias=alias, agent=scope.agent, session=session, stamp=stamp)

    def _in(self, scope: Scope, caller: Caller | None) -> Iterator[SessionMeta]:
        sweep(scope.home / "by-name")
        aliases = {self._pointed(scope, path.name): path.name for path in scope.pointers()}
        here = scope.ids()
        for id in here:
            sweep(scope.folder(id))
            yield from self._shown(scope, id, aliases.get(id), scope.state(id), caller)
        for id, alias, path in legacy_sessions(scope):
            if id not in here:
                yield from self._shown(scope, id, alias, path, caller, legacy=True)

    def _shown(
        self, scope: Scope, id: str, alias: str | None, path: Path, caller: Caller | None, *, legacy: bool = False
    ) -> Iterator[SessionMeta]:
        try:
            text, stamp = _text_of(path), _stamp(path)
            session = read_session(head_of(text), str(path))
            if session.meta.owner is None:
                session = read_session(text, str(path))
        except FileNotFoundError:
            return  # deleted while we looked
        except (InvalidFile, OSError) as error:
            self.warn(f"a session can't be read: {error}")
            return
        if may_see(caller, session.meta):
            meta = _meta(session, id, alias, scope.agent, stamp)
            yield msgspec.structs.replace(meta, legacy=legacy)


def _meta(session: Session, id: str, alias: str | None, agent: str | None, stamp: Stamp) -> SessionMeta:
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
    )


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not UTF-8: {error}") from None
