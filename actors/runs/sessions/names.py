"""Names of sessions: an id (UUID), an optional alias, and the agent that they belong to; and the paths that they
become.

Names are validated here and nowhere else. Sessions without an agent are in `sessions/`, those with one in
`agents/<agent>/sessions/`:

    by-id/<uuid>/state.yaml       the session
    by-id/<uuid>/lock             held by the process that works with it
    by-name/<alias>               the id, as text
    <alias>.yaml                  of older programs; also `_/<time>-<title>.yaml`
    lock                          held while names change

An agent without a directory in the configuration directory (built in, or in a file outside it) has its sessions in
`sessions/agents/<agent>/`: a directory of its name in `agents/` would hide the agent.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import UsageError
from ...io.directories import user_folder

TEMP = "temp"
"""Reserved alias of the session that is not stored."""

AUTOMATIC = re.compile(r"\d{8}T\d{6}(-.+)?")
"""Generated aliases: `20261103T100000-what-holds-a-bridge-up`."""

LONGEST = 120
_FAMILY = uuid.UUID("3c0c9d7e-7d2b-5e0e-9a35-0b6f2d4c8e11")


def new_id() -> str:
    """Return a random id."""
    return str(uuid.uuid4())


def as_id(text: str) -> str | None:
    """Return `text` as an id in its canonical spelling, or None."""
    if len(text) != 36:
        return None
    try:
        found = str(uuid.UUID(text))
    except ValueError:
        return None
    return found if found == text.lower() else None


def legacy_id(agent: str | None, alias: str) -> str:
    """Return the id of an older program's session, computed from its name alone."""
    return str(uuid.uuid5(_FAMILY, f"{agent or ''}/{alias}"))


def checked_alias(text: str) -> str:
    """Return the name of a session after a check; it becomes a part of a path.

    `_/` before an automatic name (`20261103T...`) is removed; any other slash is an error.

    Raises:
        UsageError: the text cannot be an alias.
    """
    alias = text.removeprefix("_/") if AUTOMATIC.fullmatch(text.removeprefix("_/")) else text
    what = _wrong(alias)
    if what is None and as_id(alias) is not None:
        what = "it looks like an id"
    if what is None and alias == TEMP:
        what = "it is reserved for the session that is not saved"
    if what is not None:
        raise UsageError(f"'{_printable(text)}' can't be the name of a session: {what}")
    return alias


def checked_agent(text: str) -> str:
    """Return the name of an agent. It becomes a part of a path.

    Raises:
        UsageError: the text cannot be the name of an agent.
    """
    what = _wrong(text)
    if what is not None:
        raise UsageError(f"'{_printable(text)}' can't be the name of an agent with sessions: {what}")
    return text


def _wrong(name: str) -> str | None:
    checks = (
        (not name.strip(), "it is empty"),
        (name != name.strip(), "it begins or ends with a space"),
        (name.startswith("."), "it begins with a dot"),
        ("/" in name or "\\" in name, "it contains a slash"),
        # control characters, half surrogates, other kinds of spaces
        (not name.isprintable(), "it contains a character that can't be shown"),
        (len(name.encode("utf-8", "surrogatepass")) > LONGEST, f"it is longer than {LONGEST} bytes"),
        (name.endswith((".part", ".tmp", ".lock")), "it ends with .part, .tmp or .lock"),
    )
    return next((what for is_so, what in checks if is_so), None)


def _printable(text: str) -> str:
    short = text if len(text) <= 60 else text[:57] + "..."
    return short if short.isprintable() else ascii(short)[1:-1]


def is_automatic(alias: str | None) -> bool:
    """Return whether this alias was generated."""
    return alias is not None and AUTOMATIC.fullmatch(alias) is not None


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
