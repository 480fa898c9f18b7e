"""Role in which a model answers in a session without an agent.

The file has the name of the role (`role_name`, as in Loki) or its prompt (`role_prompt`, Callboard's own key). Every
turn looks up the role again. Loki instead puts the role's system prompt into the first message. Such a message is
removed when the role changes, because it would precede the new role's prompt.
"""

from __future__ import annotations

from ....protocol.session import Session
from .names import TEMP

_PROMPT = "role_prompt"


def prompt_of(session: Session) -> str | None:
    """Return the prompt that defines the session's role, if any."""
    found = session.other.get(_PROMPT)
    return found if isinstance(found, str) and found else None


def name_of(session: Session) -> str | None:
    """Return the role's name. Loki writes `temp` for a role without a file.

    The system prompt of such a role is in the first message.
    """
    return None if session.role_name == TEMP else session.role_name


def is_empty(session: Session) -> bool:
    """Return whether the session has no messages."""
    return not (session.messages or session.compressed_messages)


def change_role(session: Session, name: str | None, prompt: str | None = None) -> None:
    """Set the session's role by name or by prompt, or remove it."""
    session.role_name = name
    session.other = {key: value for key, value in session.other.items() if key != _PROMPT}
    if prompt:
        session.other[_PROMPT] = prompt
    for kept in (session.compressed_messages, session.messages):
        if kept:
            if kept[0].get("role") == "system":
                del kept[0]
            return
