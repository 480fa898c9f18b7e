"""Sessions that older programs have kept: `<alias>.yaml`, and `_/<time>-<title>.yaml` of unnamed ones.

The first `open` copies one and never changes it: the program that wrote it can go on with it.
Its id follows from its name, so that every copy gets the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .....protocol.errors import UsageError
from ..names import checked_alias, is_automatic, legacy_id
from .places import Scope, entries

_UNNAMED = "_"


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
