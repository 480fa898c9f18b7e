"""Aliases of sessions, including session files of older programs.

Older programs stored `<alias>.yaml`, and `_/<time>-<title>.yaml` for unnamed sessions. The first `open` copies such a
file and never changes it, so the program that wrote it can continue to use it. The id is computed from the name, so
every copy gets the same one. The file's name counts as an alias until the copy is renamed. `warn` is called for
unusable files, which count as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from .....protocol.errors import UsageError
from .....protocol.session import read_session
from ..names import as_id, checked_alias, is_automatic, legacy_id
from .files import text_of, write_whole
from .layout import SessionScope, entries

_UNNAMED = "_"
Warn = Callable[[str], None]


def id_of(scope: SessionScope, alias: str, warn: Warn) -> str | None:
    """Return the id of an alias; None if there is no such alias."""
    found = pointed(scope.pointer(alias), scope, warn)
    if found is None and _legacy(scope, alias) is not None:
        return legacy_id(scope.agent, alias)
    return found


def is_there(scope: SessionScope, id: str) -> bool:
    """Return whether the session exists, copied or not."""
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
        what = "names a session that is not there" if id is not None else "does not hold the id of a session"
        warn(f"{path} {what}; it counts as missing")
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
