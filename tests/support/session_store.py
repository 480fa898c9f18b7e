"""A store of sessions, and files that Loki has left."""

from __future__ import annotations

import shutil
from pathlib import Path

from callboard.actors.runs.sessions.store import SessionStore

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sessions"


class SessionDirectory:
    """A configuration directory with sessions.

    Attributes:
        home: the directory.
        warnings: what the store has found odd.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.warnings: list[str] = []
        self.store = SessionStore(home, warn=self.warnings.append)

    def again(self) -> SessionStore:
        """Another store of the same directory, as another process has one."""
        return SessionStore(self.home, warn=self.warnings.append)

    def legacy(self, name: str, agent: str | None = None) -> Path:
        """Put one of Loki's files where Loki has it."""
        base = self.home / "sessions" if agent is None else self.home / "agents" / agent / "sessions"
        place = base / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / name, place)
        return place
