"""Preludes: the role and the session that begin a conversation when the user names no other.

    repl_prelude: role:coder          # the chat
    cmd_prelude: session:daily        # `callboard ask`
    cmd_prelude: daily:coder          # the session `daily`; an empty session also gets the role

The setting `agent_session` does the same for an agent.
"""

from __future__ import annotations

import msgspec

from ..errors import ConfigError
from .model import Settings


class Prelude(msgspec.Struct, frozen=True):
    """The role and the session named by a prelude; None for a part that it leaves out."""

    role: str | None = None
    session: str | None = None


def prelude_of(settings: Settings, key: str) -> Prelude:
    """Return the prelude under a key of the settings: `repl_prelude` or `cmd_prelude`.

    Raises:
        ConfigError: the value has none of the three forms.
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
