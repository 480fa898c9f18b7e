"""Messages between nodes, and the queues that hold them.

A node sees everything that is queued for it, in the order of arrival. What stays queued afterwards is decided by its
`context_window` (`Queue.trim`); an edge may clear the queue of its target before it delivers (`Queue.clear`). Messages
marked as kept survive both, unless they are asked for by name. The marks are part of the message: who passes a message
on unchanged passes its marks on, too.
"""

from __future__ import annotations

import msgspec

from ....protocol.chat import Role
from ....protocol.workflow.model import Seed
from ....protocol.workflow_messages import Message

__all__ = ["TASK", "Message", "Queue", "carried", "seeded", "signed"]

TASK = "TASK"
"""The source of the messages that a run begins with."""


def seeded(seed: Seed) -> Message:
    """What a file puts into a queue."""
    return Message(role=seed.role, content=seed.content)


def signed(message: Message, source: str) -> Message:
    """A message with a source: its own, else this one."""
    return message if message.source is not None else msgspec.structs.replace(message, source=source)


def carried(message: Message, source: str, target: str, *, keep: bool = False, dynamic: bool = False) -> Message:
    """A message as it arrives at `target`: from a user, or from the model itself where a node talks to itself."""
    role: Role = message.role
    if not message.preserve_role:
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
    """What waits for one node."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def add(self, message: Message) -> None:
        """Put a message behind the others."""
        self.messages.append(message)

    def clear(self, *, context: bool, kept: bool) -> list[Message]:
        """Drop the messages that are not kept, or those that are, or both; returns what was dropped."""
        dropped = [message for message in self.messages if (kept if message.keep else context)]
        if dropped:
            self.messages = [message for message in self.messages if not (kept if message.keep else context)]
        return dropped

    def trim(self, window: int) -> list[Message]:
        """Drop what does not fit into a window; returns what was dropped.

        All kept messages stay and count: the newest others get the room that they leave. 0 is room for no others, and
        below that there is no limit.
        """
        if window < 0 or not self.messages:
            return []
        others = sum(not message.keep for message in self.messages)
        excess = others - max(0, window - (len(self.messages) - others))
        if excess <= 0:
            return []
        dropped: list[Message] = []
        left: list[Message] = []
        for message in self.messages:
            (dropped if not message.keep and len(dropped) < excess else left).append(message)
        self.messages = left
        return dropped
