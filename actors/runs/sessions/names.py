"""Names of sessions: a UUID, an optional alias, and the agent that they belong to.

All three become parts of paths. They are validated here and nowhere else.
"""

from __future__ import annotations

import re
import uuid

from ....protocol.errors import UsageError

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
    """Return the alias, without a `_/` prefix. It becomes a part of a path.

    Raises:
        UsageError: the text cannot be an alias.
    """
    alias = text.removeprefix("_/") if AUTOMATIC.fullmatch(text.removeprefix("_/")) else text
    what = _wrong(alias)
    if what is None and as_id(alias) is not None:
        what = "it looks like an id"
    if what is None and alias == TEMP:
        what = "that is the session which is not kept"
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
        ("/" in name or "\\" in name, "it holds a slash"),
        # control characters, half surrogates, other kinds of spaces
        (not name.isprintable(), "it holds a character that can't be shown"),
        (len(name.encode("utf-8", "surrogatepass")) > LONGEST, f"it is longer than {LONGEST} bytes"),
        (name.endswith((".part", ".tmp", ".lock")), "files that end so are not sessions"),
    )
    return next((what for is_so, what in checks if is_so), None)


def _printable(text: str) -> str:
    short = text if len(text) <= 60 else text[:57] + "..."
    return short if short.isprintable() else ascii(short)[1:-1]


def is_automatic(alias: str | None) -> bool:
    """Return whether this alias was generated."""
    return alias is not None and AUTOMATIC.fullmatch(alias) is not None
