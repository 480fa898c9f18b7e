"""What actors of runs are told, beside the kernel's own messages (`protocol/kernel/messages`)."""

from __future__ import annotations

from .kernel.messages import Down, Message, Resumed

__all__ = ["Down", "Message", "PersonSays", "Resumed"]


class PersonSays(Message, frozen=True, kw_only=True):
    """Told to an agent at work by somebody who watches it; its model reads it with the next request.

    Attributes:
        text: what they say.
        by: who they are.
    """

    text: str
    by: str = ""
