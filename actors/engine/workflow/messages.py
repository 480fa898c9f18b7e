"""Messages between nodes, and the queues that hold them.

The inputs of a node are all messages in its queue, in the order of arrival. Its `context_window` decides which of
them remain afterwards (`Queue.trim`). An edge can clear its target's queue before it delivers (`Queue.clear`).
Messages marked as kept survive both, unless `clear` includes them explicitly. The marks are part of the message, so
a node that passes a message on unchanged passes its marks on, too.
"""

from __future__ import annotations

import msgspec

from ....protocol.chat import Role
from ....protocol.workflow.model import Seed
from ....protocol.workflow_messages import Message

__all__ = ["TASK", "Message", "Queue", "carried", "seeded", "signed"]

TASK = "TASK"
"""Source of the messages that a run begins with."""


def seeded(seed: Seed) -> Message:
    """Return the message of a queue entry in the file."""
    return Message(role=seed.role, content=seed.content)


def signed(message: Message, source: str) -> Message:
    """Return the message with a source: its own, else this one."""
    return message if message.source is not None else msgspec.structs.replace(message, source=source)


def carried(message: Message, source: str, target: str, *, keep: bool = False, dynamic: bool = False) -> Message:
    """Return a message as it arrives at `target`.

    Its role is `user`, or `assistant` on an edge from a node to itself, unless the message preserves its role.
    """
    # DevAll's rule. Its literal nodes set `preserve_role`.
    role: Role = message.role
    if not message.preserve_role:
        # A node that reads its own output reads what it has said itself.
        role = "assistant" if source == target else "user"
    return Message(
        role=role,
        content=message.content,
        source=source,
        keep=keep or message.keep,
        preserve_role=message.preserve_role,
        dynamic=dynamic or message.dynamic,
        metadata=message.metadata,
    )


class Queue:
    """Messages that wait for one node."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def add(self, message: Message) -> None:
        self.messages.append(message)

    def clear(self, *, context: bool, kept: bool) -> list[Message]:
        """Drop messages without the mark (`context`), with it (`kept`), or both; return the dropped ones."""
        dropped = [message for message in self.messages if (kept if message.keep else context)]
        if dropped:
            self.messages = [message for message in self.messages if not (kept if message.keep else context)]
        return dropped

    def trim(self, window: int) -> list[Message]:
        """Drop messages beyond a window; return the dropped ones.

        All kept messages stay and count; the newest others get the remaining places. 0 leaves no place for others,
        and a negative window is unlimited.
        """
        if window < 0 or not self.messages:
            return []
        others = sum(not message.keep for message in self.messages)
        # Kept messages take their places in the window first.
        excess = others - max(0, window - (len(self.messages) - others))
        if excess <= 0:
            return []
        dropped: list[Message] = []
        left: list[Message] = []
        for message in self.messages:
            (dropped if not message.keep and len(dropped) < excess else left).append(message)
        self.messages = left
        return dropped
