"""Reads and writes the aliases of sessions: our files and those of older programs.

Older programs have kept `<alias>.yaml`, and `_/<time>-<title>.yaml` of unnamed sessions. The first `open` copies such a
file and never changes it: the program that wrote it can go on with it. Its id follows from its name, so that every copy
gets the same, and it counts as an alias until the copy gets another. `warn` is called for unusable files; they count as
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from .....protocol.errors import UsageError
from .....protocol.session import read_session
from ..names import as_id, checked_alias, is_automatic, legacy_id
from .files import text_of, write_whole
from .places import Scope, entries

_UNNAMED = "_"
Warn = Callable[[str], None]


def id_of(scope: Scope, alias: str, warn: Warn) -> str | None:
    """The id that an alias stands for; None if it stands for none."""
    found = pointed(scope.pointer(alias), scope, warn)
    if found is None and _legacy(scope, alias) is not None:
        return legacy_id(scope.agent, alias)
    return found


def is_there(scope: Scope, id: str) -> bool:
    """Whether there is such a session, copied or not."""
    return scope.state(id).is_file() or alias_of_legacy(scope, id) is not None


def alias_of(scope: Scope, id: str, guess: str | None = None) -> str | None:
    """What the session is called; `guess` is what it was called a moment ago."""
    if guess is not None and pointed(scope.pointer(guess), scope) == id:
        return guess
    return next(iter(aliases_of(scope, id)), None)


def aliases_of(scope: Scope, id: str) -> list[str]:
    """Its aliases: one, unless a process was killed while it renamed the session."""
    return [path.name for path in scope.pointers() if pointed(path, scope) == id]


def pointed(path: Path, scope: Scope, warn: Warn | None = None) -> str | None:
    """The id in an alias' file; None if there is no such file, or it is of no use."""
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


def migrate(scope: Scope, alias: str) -> str | None:
    """Copy an older program's session; its id, or None if there is no such one. Hold the lock of names meanwhile.

    Raises:
        InvalidFile: it is no session.
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
    return id


def _legacy(scope: Scope, alias: str) -> Path | None:
    path = legacy_file(scope, alias)
    if path is None:
        return None
    id = legacy_id(scope.agent, alias)
    renamed = scope.state(id).is_file() and any(other != alias for other in aliases_of(scope, id))
    return None if renamed else path


def legacy_file(scope: Scope, alias: str) -> Path | None:
    """The file of this name; None if there is none. Where both places have one, a name by time is one of `_/`."""
    places = [scope.home / f"{alias}.yaml", scope.home / _UNNAMED / f"{alias}.yaml"]
    if is_automatic(alias):
        places.reverse()
    return next((path for path in places if path.is_file()), None)


def legacy_sessions(scope: Scope) -> Iterator[tuple[str, str, Path]]:
    """Id, alias and file of each."""
    told: set[str] = set()
    for folder in (scope.home, scope.home / _UNNAMED):
        for found in sorted(entries(folder)):
            if found.suffix != ".yaml" or found.stem in told:
                continue
            try:
                alias = checked_alias(found.stem)
            except UsageError:
                continue  # no session of Loki's is called so
            path = legacy_file(scope, alias)
            if path is not None:
                told.add(alias)
                yield legacy_id(scope.agent, alias), alias, path


def alias_of_legacy(scope: Scope, id: str) -> str | None:
    """The alias of the session with this id that was not copied yet."""
    return next((alias for found, alias, _ in legacy_sessions(scope) if found == id), None)
