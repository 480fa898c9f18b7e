"""Preludes: the role and the session that a conversation begins with where nothing else is named.

    repl_prelude: role:coder          # the chat
    cmd_prelude: session:daily        # `callboard ask`
    cmd_prelude: daily:coder          # the session `daily`, which gets the role if nothing was said in it yet

An agent has `agent_session` for the same purpose.
"""

from __future__ import annotations

import msgspec

from ..errors import ConfigError
from .model import Settings


class Prelude(msgspec.Struct, frozen=True):
    """What a prelude names; None for what it leaves open."""

    role: str | None = None
    session: str | None = None


def prelude_of(settings: Settings, key: str) -> Prelude:
    """The prelude under this key of the settings: `repl_prelude` or `cmd_prelude`.

    Raises:
        ConfigError: the setting is none.
    """
    text = str(settings.other.get(key) or "")
    if not text:
        return Prelude()
    first, colon, second = text.partition(":")
    if not colon or not first or not second:
        raise ConfigError(f"`{key}` is session:NAME, SESSION:ROLE or role:NAME, not '{text}'")
    if first == "role":
        return Prelude(role=second)
    return Prelude(session=second) if first == "session" else Prelude(session=first, role=second)
