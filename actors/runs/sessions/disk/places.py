"""The paths of sessions: of no agent in `sessions/`, of an agent in `agents/<agent>/sessions/`, each with

    by-id/<uuid>/state.yaml       the session
    by-id/<uuid>/lock             held by the process that works with it
    by-name/<alias>               the id, as text
    <alias>.yaml                  of older programs; also `_/<time>-<title>.yaml`
    lock                          held while names change

An agent that has no directory of its own in the configuration directory (a built-in one, a file elsewhere) keeps them
in `sessions/agents/<agent>/`, since a directory of its name would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....io.directories import user_folder
from ..names import as_id, checked_agent


class Scope(NamedTuple):
    """The sessions of one agent, or (None) of none."""

    agent: str | None
    home: Path

    def folder(self, id: str) -> Path:
        """The directory of a session."""
        return self.home / "by-id" / id

    def state(self, id: str) -> Path:
        """Its file."""
        return self.home / "by-id" / id / "state.yaml"

    def pointer(self, alias: str) -> Path:
        """The file that says what an alias stands for."""
        return self.home / "by-name" / alias

    def ids(self) -> list[str]:
        """The ids there are."""
        found = (path for path in entries(self.home / "by-id") if as_id(path.name) == path.name)
        return sorted(path.name for path in found if (path / "state.yaml").is_file())

    def hollow(self) -> list[Path]:
        """Directories of sessions that a killed process has half made or half removed."""
        found = entries(self.home / "by-id")
        return [path for path in found if as_id(path.name) is not None and not (path / "state.yaml").is_file()]

    def pointers(self) -> list[Path]:
        """The files of aliases."""
        found = entries(self.home / "by-name")
        return sorted(path for path in found if not path.name.startswith(".") and path.is_file())


def scope_of(config_dir: Path, agent: str | None) -> Scope:
    """The sessions of an agent, or of none.

    Raises:
        UsageError: no agent can have that name.
    """
    if agent is None:
        return Scope(None, user_folder("sessions", config_dir))
    checked_agent(agent)
    own = config_dir / "agents" / agent
    guest = user_folder("sessions", config_dir) / "agents" / agent
    if not (own / "sessions").is_dir() and (guest.is_dir() or not own.is_dir()):
        return Scope(agent, guest)
    return Scope(agent, own / "sessions")


def all_scopes(config_dir: Path) -> Iterator[Scope]:
    """Every scope that holds something, the one of no agent first."""
    yield scope_of(config_dir, None)
    places = (config_dir / "agents", user_folder("sessions", config_dir) / "agents")
    names = {path.name for path in entries(places[0]) if (path / "sessions").is_dir()}
    names |= {path.name for path in entries(places[1]) if path.is_dir()}
    for name in sorted(names):
        if not name.startswith("."):
            yield scope_of(config_dir, name)


def entries(folder: Path) -> list[Path]:
    """What is in a directory; nothing if it is not there."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
