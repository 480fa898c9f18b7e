"""Session store on disk, with access rules and aliases. It has no state of its own. It blocks, so call it in a thread.

    store = SessionStore(config_dir)
    kept = store.open_or_create_by_alias("bridges", agent="researcher")
    kept.session.messages.append({"role": "user", "content": "..."})
    store.save(kept)

A file is always replaced as a whole. The writer holds its lock (`try_hold`), so two processes never write at once. A
change without the lock, for example by an editor, shows in the file's stamp and is never overwritten: `save` raises
`Conflict`.

`caller` is an outside caller; None is the user at this machine, who may do everything. The owner of a session may do
everything with it. Other callers are denied, unless they have the scope `admin:sessions`. A session without an owner (a
file of an older program) may be read by every caller, and belongs to the first one that changes it.

Older programs stored `<alias>.yaml`, and `_/<time>-<title>.yaml` for unnamed sessions. The first `open` copies such a
file and never changes it, so the program that wrote it can continue to use it. The id is computed from the name, so
every copy gets the same one. The file's name counts as an alias until the copy is renamed. `warn` is called for
unusable files, which count as missing.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import msgspec

from ....protocol.control.method_structs import SessionMeta
from ....protocol.errors import Conflict, Denied, InvalidFile, NotFound, UsageError
from ....protocol.problems import did_you_mean
from ....protocol.session import Meta, Session, read_session, write_session
from ...io.secret_redaction import without_secrets
from .files import (
    Lock,
    Stamp,
    beginning_of,
    disk_errors_named,
    holder,
    private,
    stamp,
    sweep,
    text_of,
    try_lock,
    wait_lock,
    write_whole,
)
from .names import SessionScope, all_scopes, as_id, checked_alias, entries, is_automatic, legacy_id, new_id, scope_of
from .roles import name_of

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller


__all__ = ["SessionMeta", "SessionStore", "Stored"]

log = logging.getLogger("callboard.sessions")
P = ParamSpec("P")
R = TypeVar("R")

NAMES_WITHIN = 10.0
"""Seconds to wait for another process that changes names."""

ADMIN = "admin:sessions"
LOCAL = "local"
"""Owner name of the user at this machine."""

_UNNAMED = "_"
Warn = Callable[[str], None]


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


def _on_disk(
    method: Callable[Concatenate[SessionStore, P], R],
) -> Callable[Concatenate[SessionStore, P], R]:
    """Decorator that turns errors of the disk into `NotKept`."""

    @wraps(method)
    def wrapped(self: SessionStore, /, *args: P.args, **options: P.kwargs) -> R:
        with disk_errors_named(self.config_dir):
            return method(self, *args, **options)

    return wrapped


class SessionStore:
    """Session files of a configuration directory. `warn` is called with irregularities of the files."""

    def __init__(self, config_dir: Path, *, warn: Callable[[str], None] = log.warning) -> None:
        self.config_dir = config_dir
        self.warn = warn

    # --- lookup ---------------------------------------------------------------------------------------------

    @_on_disk
    def resolve_alias(self, alias: str, agent: str | None = None) -> str | None:
        """Return the id of an alias; None if there is no such alias."""
        return id_of(scope_of(self.config_dir, agent), checked_alias(alias), self.warn)

    @_on_disk
    def find(self, name: str, agent: str | None = None, *, caller: Caller | None = None) -> tuple[str, str | None]:
        """Return id and agent of the session with this id, of any owner, or with this alias among the sessions of
        `agent`.

        Raises:
            NotFound: it does not exist; the hint names only sessions of `caller`.
            UsageError: no session can have this name.
        """
        id = as_id(name)
        if id is not None:
            for scope in all_scopes(self.config_dir):
                if is_there(scope, id):
                    return id, scope.agent
            raise NotFound(f"there is no session '{name}'")
        id = self.resolve_alias(name, agent)
        if id is not None and is_there(scope_of(self.config_dir, agent), id):
            return id, agent
        aliases = [each.alias for each in self.list(agent, caller=caller) if each.alias]
        of = f" of agent '{agent}'" if agent is not None else ""
        hint = did_you_mean(name, aliases) or "`callboard sessions list` lists all sessions"
        raise NotFound(f"there is no session '{name}'{of}; {hint}")

    @_on_disk
    def list(
        self, agent: str | None = None, *, everywhere: bool = False, caller: Caller | None = None
    ) -> list[SessionMeta]:
        """Return the sessions of an agent, of none, or of all, newest first. Sessions that the caller may not read are
        omitted.
        """
        scopes = all_scopes(self.config_dir) if everywhere else [scope_of(self.config_dir, agent)]
        found = [meta for scope in scopes for meta in listed(scope, caller, self.warn)]
        return sorted(found, key=lambda meta: (meta.last_modified, meta.id), reverse=True)

    def path(self, id: str, agent: str | None = None) -> Path:
        """Return the path of the session's file. An older program's session has none until it is opened."""
        return scope_of(self.config_dir, agent).state(id)

    @_on_disk
    def meta(self, stored: Stored) -> SessionMeta:
        """Return the session as lists show it."""
        path = self.path(stored.id, stored.agent)
        written = stamp(path) if path.is_file() else stored.stamp
        return meta_of(stored.session, stored.id, stored.alias, stored.agent, written)

    # --- opening --------------------------------------------------------------------------------------------

    @_on_disk
    def create(
        self,
        agent: str | None = None,
        alias: str | None = None,
        initial: Session | None = None,
        *,
        caller: Caller | None = None,
    ) -> Stored:
        """Create a session.

        Raises:
            Conflict: the alias is in use.
        """
        scope = scope_of(self.config_dir, agent)
        alias = None if alias is None else checked_alias(alias)
        with self._names(scope):
            if alias is not None and self.resolve_alias(alias, agent) is not None:
                raise Conflict(f"a session called '{alias}' already exists; choose another name for the new one")
            return self._create(scope, alias, initial, caller)

    @_on_disk
    def open(self, id: str, agent: str | None = None, *, caller: Caller | None = None) -> Stored:
        """Return the session with this id.

        Raises:
            NotFound, Denied: it does not exist, or has another owner.
            InvalidFile: its file cannot be read.
        """
        scope = scope_of(self.config_dir, agent)
        known = as_id(id)
        if known is None:
            raise UsageError(f"'{id}' is not a session id, which is a UUID")
        # A session of an older program has no such file until it is migrated here.
        if not scope.state(known).is_file():
            alias = alias_of_legacy(scope, known)
            if alias is None:
                raise NotFound(f"there is no session '{id}'")
            with self._names(scope):
                migrate(scope, alias)
        return self._opened(scope, known, None, caller)

    @_on_disk
    def open_or_create_by_alias(
        self,
        alias: str,
        agent: str | None = None,
        initial: Callable[[], Session] = Session,
        *,
        caller: Caller | None = None,
    ) -> Stored:
        """Return the session with this alias; create it if it does not exist.

        Raises:
            Denied: it has another owner.
        """
        scope = scope_of(self.config_dir, agent)
        alias = checked_alias(alias)
        # First without the lock, which only a creation or a migration needs.
        id = pointed(scope.pointer(alias), scope, self.warn)
        if id is None:
            with self._names(scope):
                # Looked up again under the lock: another process may have created it meanwhile.
                id = pointed(scope.pointer(alias), scope) or migrate(scope, alias)
                if id is None:
                    return self._create(scope, alias, initial(), caller)
        return self._opened(scope, id, alias, caller)

    @_on_disk
    def fresh(self, stored: Stored) -> Stored:
        """Return the session as it is on disk; `stored` itself if the file is unchanged."""
        scope = scope_of(self.config_dir, stored.agent)
        path = scope.state(stored.id)
        if path.is_file() and stamp(path) == stored.stamp:
            stored.alias = alias_of(scope, stored.id, stored.alias)
            return stored
        return self._opened(scope, stored.id, stored.alias, None)

    # --- changing -------------------------------------------------------------------------------------------

    @_on_disk
    def try_hold(self, id: str, agent: str | None = None) -> Lock | None:
        """Acquire the session's lock, to change it; return None while another process has it.

        Raises:
            NotFound: the session no longer exists.
        """
        folder = scope_of(self.config_dir, agent).folder(id)
        try:
            lock = try_lock(folder / "lock")
        except FileNotFoundError:
            raise NotFound(f"there is no session '{id}'") from None
        if lock is not None:
            sweep(folder)
        return lock

    def in_use(self, stored: Stored) -> Conflict:
        """Return the error for a session that is locked by another process; it names that process if it is known."""
        pid = holder(scope_of(self.config_dir, stored.agent).folder(stored.id) / "lock")
        by = f"process {pid}" if pid is not None else "another process"
        return Conflict(f"session '{stored.label}' is in use by {by}; try again when that is done")

    @_on_disk
    def save(self, stored: Stored) -> None:
        """Write the changed session. Hold the lock meanwhile.

        Raises:
            NotFound: it was deleted.
            Conflict: the file was changed meanwhile.
        """
        path = scope_of(self.config_dir, stored.agent).state(stored.id)
        if not path.is_file():
            raise NotFound(f"session '{stored.label}' was deleted meanwhile")
        if stamp(path) != stored.stamp:
            raise Conflict(f"session '{stored.label}' was changed by another program meanwhile: {path}")
        write_whole(path, _written(stored.session))
        stored.stamp = stamp(path)

    @_on_disk
    def save_copy(self, stored: Stored) -> Path:
        """Write the session to a new file next to its own, which cannot be read. Only users read that copy."""
        path = self.path(stored.id, stored.agent).with_name(f"state-{new_id()[:8]}.yaml")
        write_whole(path, _written(stored.session))
        return path

    @_on_disk
    def rename(self, id: str, alias: str, agent: str | None = None, *, caller: Caller | None = None) -> Stored:
        """Replace the session's alias; its file stays as it is.

        Raises:
            Conflict: another session has the alias.
        """
        alias = checked_alias(alias)
        scope = scope_of(self.config_dir, agent)
        stored = self._for_change(id, agent, caller)
        with self._names(scope):
            other = self.resolve_alias(alias, agent)
            if other is not None and other != id:
                raise Conflict(f"a session called '{alias}' already exists")
            # The new alias is written before old ones are removed: a crash leaves two aliases rather than none.
            write_whole(scope.pointer(alias), f"{id}\n")
            for old in aliases_of(scope, id):
                if old != alias:
                    scope.pointer(old).unlink(missing_ok=True)
        stored.alias = alias
        return stored

    @_on_disk
    def delete(self, id: str, agent: str | None = None, *, caller: Caller | None = None) -> None:
        """Delete the session permanently, including an older program's file of it. Hold the lock meanwhile.

        The user at this machine may also delete a session whose file cannot be read.
        """
        scope = scope_of(self.config_dir, agent)
        try:
            self._for_change(id, agent, caller)
        except InvalidFile:
            if caller is not None:  # its owner is unknown
                raise
        with self._names(scope):
            # Aliases go first: a crash leaves a session without an alias rather than an alias without a session.
            for alias in aliases_of(scope, id):
                scope.pointer(alias).unlink(missing_ok=True)
            # The file of an older program goes before the state: without a state it would be migrated again.
            for found, _, path in [*legacy_sessions(scope)]:
                if found == id:
                    path.unlink(missing_ok=True)
            scope.state(id).unlink(missing_ok=True)
            shutil.rmtree(scope.folder(id), ignore_errors=True)

    @_on_disk
    def move(self, id: str, agent: str | None, to: str | None, *, caller: Caller | None = None) -> Stored:
        """Assign the session to another agent, or to none. Hold the lock meanwhile.

        Raises:
            Conflict: that agent has a session with this alias already, or the session belongs to an older program.
        """
        stored = self._for_change(id, agent, caller)
        if to == agent:
            return stored
        old, new = scope_of(self.config_dir, agent), scope_of(self.config_dir, to)
        # In one order, whatever the direction: two processes that move sessions must not wait for each other.
        first, second = sorted((old, new), key=lambda scope: scope.home)
        with self._names(first), self._names(second):
            alias = alias_of(old, id)
            if any(found == id for found, _, _ in legacy_sessions(old)):
                raise Conflict(f"session '{stored.label}' is in the format of an older program and can't be moved")
            if alias is not None and self.resolve_alias(alias, to) is not None:
                raise Conflict(f"the target already has a session called '{alias}'")
            private(new.folder(id).parent)
            # A rename is atomic: after a crash the session is in one of the two places, and complete.
            old.folder(id).rename(new.folder(id))
            if alias is not None:
                write_whole(new.pointer(alias), f"{id}\n")
                old.pointer(alias).unlink(missing_ok=True)
        return self.open(id, to)

    # --- internal -------------------------------------------------------------------------------------------

    def _for_change(self, id: str, agent: str | None, caller: Caller | None) -> Stored:
        stored = self.open(id, agent, caller=caller)
        if claim(caller, stored.session.meta, id):
            self.save(stored)
        return stored

    @contextlib.contextmanager
    def _names(self, scope: SessionScope) -> Iterator[None]:
        private(scope.home)
        lock = wait_lock(scope.home / "lock", NAMES_WITHIN)
        if lock is None:
            raise Conflict(f"another process has locked the names of sessions: {scope.home / 'lock'}")
        with lock:
            sweep(scope.home / "by-name")
            yield

    def _create(self, scope: SessionScope, alias: str | None, initial: Session | None, caller: Caller | None) -> Stored:
        id = new_id()
        session = initial or Session()
        session.meta = new_meta(caller)
        try:
            write_whole(scope.state(id), _written(session))
            if alias is not None:
                write_whole(scope.pointer(alias), f"{id}\n")
        except OSError:  # For example, the disk is full: remove the incomplete session.
            shutil.rmtree(scope.folder(id), ignore_errors=True)
            raise
        return Stored(id=id, alias=alias, agent=scope.agent, session=session, stamp=stamp(scope.state(id)))

    def _opened(self, scope: SessionScope, id: str, guess: str | None, caller: Caller | None) -> Stored:
        path = scope.state(id)
        try:
            written = stamp(path)
            text = text_of(path)
        except FileNotFoundError:
            raise NotFound(f"there is no session '{id}'") from None
        if not text.strip("\ufeff\0 \t\r\n"):  # Callboard never writes an empty file; a crash or a full disk does.
            name = alias_of(scope, id, guess) or id
            raise InvalidFile(f"session '{name}': its file {path} is empty; delete the session to start again")
        session = read_session(text, str(path))
        check_read(caller, session.meta, id)
        alias = alias_of(scope, id, guess)
        return Stored(id=id, alias=alias, agent=scope.agent, session=session, stamp=written)


def _written(session: Session) -> str:
    """Return the session's file, without secrets of the vault and without reasoning items that contained any.

    Reasoning items are removed rather than redacted: a provider has signed them, and would reject a changed one.
    """
    kept = without_secrets(session)
    if kept is not session:
        for before, after in (
            (session.messages, kept.messages),
            (session.compressed_messages, kept.compressed_messages),
        ):
            for was, message in zip(before, after, strict=True):
                for part, old in ((message, was), (message.get("content"), was.get("content"))):
                    if (
                        isinstance(part, dict)
                        and isinstance(old, dict)
                        and part.get("thought") is not old.get("thought")
                    ):
                        del part["thought"]
    return write_session(kept)


def new_meta(caller: Caller | None) -> Meta:
    """Return the metadata of a session that `caller` creates."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Meta(owner=subject_of(caller), created_at=now, created_by_key_id=None if caller is None else caller.key)


def subject_of(caller: Caller | None) -> str:
    """Return the owner of sessions that `caller` creates."""
    return LOCAL if caller is None else caller.subject


def may_see(caller: Caller | None, meta: Meta) -> bool:
    """Return whether `caller` may read the session."""
    return caller is None or meta.owner is None or meta.owner == caller.subject or caller.has(ADMIN)


def check_read(caller: Caller | None, meta: Meta, id: str) -> None:
    """Raise `Denied` if the caller may not read the session."""
    if not may_see(caller, meta):
        raise Denied(f"session {id} belongs to another user")


def claim(caller: Caller | None, meta: Meta, id: str) -> bool:
    """Check that the caller may change the session; return whether this call made the caller its owner.

    Raises:
        Denied: it has another owner.
    """
    check_read(caller, meta, id)
    if meta.owner is not None:
        return False
    meta.owner = subject_of(caller)
    return True


def meta_of(
    session: Session, id: str, alias: str | None, agent: str | None, stamp: Stamp, *, legacy: bool = False
) -> SessionMeta:
    """Return the session as lists show it."""
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


def id_of(scope: SessionScope, alias: str, warn: Warn) -> str | None:
    """Return the id of an alias; None if there is no such alias."""
    found = pointed(scope.pointer(alias), scope, warn)
    if found is None and _legacy(scope, alias) is not None:
        return legacy_id(scope.agent, alias)
    return found


def is_there(scope: SessionScope, id: str) -> bool:
    """Return whether the session exists, also as an older program's file that was not copied yet."""
    return scope.state(id).is_file() or alias_of_legacy(scope, id) is not None


def alias_of(scope: SessionScope, id: str, guess: str | None = None) -> str | None:
    """Return the session's alias. `guess` is its last known alias, and saves a listing if it is still right."""
    if guess is not None and pointed(scope.pointer(guess), scope) == id:
        return guess
    return next(iter(aliases_of(scope, id)), None)


def aliases_of(scope: SessionScope, id: str) -> list[str]:
    """Return the session's aliases: one, unless a process was killed while it renamed the session."""
    return [path.name for path in scope.pointers() if pointed(path, scope) == id]


def pointed(path: Path, scope: SessionScope, warn: Warn | None = None) -> str | None:
    """Return the id in an alias file; None if the file does not exist or is unusable."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            text = stream.read(100).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    id = as_id(text)
    if id is not None and scope.state(id).is_file():
        return id
    if warn is not None:
        what = "names a session that does not exist" if id is not None else "does not contain the id of a session"
        warn(f"{path} {what}; it is ignored")
    return None


def migrate(scope: SessionScope, alias: str) -> str | None:
    """Copy a session of an older program; return its id, or None if it does not exist. Hold the lock of names
    meanwhile.

    Raises:
        InvalidFile: the file is no session.
    """
    path = _legacy(scope, alias)
    if path is None:
        return None
    text = text_of(path)
    read_session(text, str(path))
    id = legacy_id(scope.agent, alias)
    if not scope.state(id).is_file():
        write_whole(scope.state(id), text)
    write_whole(scope.pointer(alias), f"{id}\n")
    # Written last: an alias must never point to a session that does not exist.
    return id


def _legacy(scope: SessionScope, alias: str) -> Path | None:
    path = legacy_file(scope, alias)
    if path is None:
        return None
    id = legacy_id(scope.agent, alias)
    renamed = scope.state(id).is_file() and any(other != alias for other in aliases_of(scope, id))
    return None if renamed else path


def legacy_file(scope: SessionScope, alias: str) -> Path | None:
    """Return the older file of this name, or None. If both directories have one, a name with a time means the one in
    `_/`.
    """
    places = [scope.home / f"{alias}.yaml", scope.home / _UNNAMED / f"{alias}.yaml"]
    if is_automatic(alias):
        places.reverse()
    return next((path for path in places if path.is_file()), None)


def legacy_sessions(scope: SessionScope) -> Iterator[tuple[str, str, Path]]:
    """Yield id, alias and path of each file of an older program."""
    told: set[str] = set()
    for folder in (scope.home, scope.home / _UNNAMED):
        for found in sorted(entries(folder)):
            if found.suffix != ".yaml" or found.stem in told:
                continue
            try:
                alias = checked_alias(found.stem)
            except UsageError:
                continue  # Loki never writes a session with such a name.
            path = legacy_file(scope, alias)
            if path is not None:
                told.add(alias)
                yield legacy_id(scope.agent, alias), alias, path


def alias_of_legacy(scope: SessionScope, id: str) -> str | None:
    """Return the alias of an older session with this id that has not been copied yet."""
    return next((alias for found, alias, _ in legacy_sessions(scope) if found == id), None)
