"""The role in which a model answers in a session that has no agent.

The file keeps the name of the role (`role_name`, as in Loki's), or the prompt that stands for one (`role_prompt`,
ours), and every turn finds the role anew. Loki puts the role's system prompt into the first message instead; such a
message goes when the role is changed, since it would go before the new one.
"""

from __future__ import annotations

from ....protocol.session import Session
from .names import TEMP

_PROMPT = "role_prompt"


def prompt_of(session: Session) -> str | None:
    """The prompt that stands for a role."""
    found = session.other.get(_PROMPT)
    return found if isinstance(found, str) and found else None


def name_of(session: Session) -> str | None:
    """The role's name. `temp` is what Loki calls one that was no file; its system prompt is in the first message."""
    return None if session.role_name == TEMP else session.role_name


def is_empty(session: Session) -> bool:
    """Whether nothing was said in it."""
    return not (session.messages or session.compressed_messages)


def change_role(session: Session, name: str | None, prompt: str | None = None) -> None:
    """Give the session this role, or the one that a prompt makes, or none."""
    session.role_name = name
    session.other = {key: value for key, value in session.other.items() if key != _PROMPT}
    if prompt:
        session.other[_PROMPT] = prompt
    for kept in (session.compressed_messages, session.messages):
        if kept:
            if kept[0].get("role") == "system":
                del kept[0]
            return
