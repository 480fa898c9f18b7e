"""Paths of sessions. Sessions without an agent are in `sessions/`, those with one in `agents/<agent>/sessions/`.

    by-id/<uuid>/state.yaml       the session
    by-id/<uuid>/lock             held by the process that works with it
    by-name/<alias>               the id, as text
    <alias>.yaml                  of older programs; also `_/<time>-<title>.yaml`
    lock                          held while names change

An agent without a directory in the configuration directory (built in, or in a file outside it) has its sessions in
`sessions/agents/<agent>/`: a directory of its name in `agents/` would hide the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....io.directories import user_folder
from ..names import as_id, checked_agent


class SessionScope(NamedTuple):
    """Sessions of one agent, or of no agent (None)."""

    agent: str | None
    home: Path

    def folder(self, id: str) -> Path:
        """Return the directory of a session."""
        return self.home / "by-id" / id

    def state(self, id: str) -> Path:
        """Return the path of a session's file."""
        return self.home / "by-id" / id / "state.yaml"

    def pointer(self, alias: str) -> Path:
        """Return the path of an alias file."""
        return self.home / "by-name" / alias

    def ids(self) -> list[str]:
        """Return the ids of all sessions, sorted."""
        found = (path for path in entries(self.home / "by-id") if as_id(path.name) == path.name)
        return sorted(path.name for path in found if (path / "state.yaml").is_file())

    def hollow(self) -> list[Path]:
        """Return directories of sessions that a killed process has partly created or partly removed."""
        found = entries(self.home / "by-id")
        return [path for path in found if as_id(path.name) is not None and not (path / "state.yaml").is_file()]

    def pointers(self) -> list[Path]:
        """Return the alias files, sorted."""
        found = entries(self.home / "by-name")
        return sorted(path for path in found if not path.name.startswith(".") and path.is_file())


def scope_of(config_dir: Path, agent: str | None) -> SessionScope:
    """Return the scope of an agent's sessions, or of those without an agent.

    Raises:
        UsageError: no agent can have that name.
    """
    if agent is None:
        return SessionScope(None, user_folder("sessions", config_dir))
    checked_agent(agent)
    own = config_dir / "agents" / agent
    guest = user_folder("sessions", config_dir) / "agents" / agent
    if not (own / "sessions").is_dir() and (guest.is_dir() or not own.is_dir()):
        return SessionScope(agent, guest)
    return SessionScope(agent, own / "sessions")


def all_scopes(config_dir: Path) -> Iterator[SessionScope]:
    """Yield every scope with sessions, beginning with the one without an agent."""
    yield scope_of(config_dir, None)
    places = (config_dir / "agents", user_folder("sessions", config_dir) / "agents")
    names = {path.name for path in entries(places[0]) if (path / "sessions").is_dir()}
    names |= {path.name for path in entries(places[1]) if path.is_dir()}
    for name in sorted(names):
        if not name.startswith("."):
            yield scope_of(config_dir, name)


def entries(folder: Path) -> list[Path]:
    """Return the entries of a directory; none if it does not exist."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
