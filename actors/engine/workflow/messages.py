"""Messages between nodes, the queues that hold them, and the prompts that show them to models and users.

The inputs of a node are all messages in its queue, in the order of arrival. Its `context_window` decides which of
them remain afterwards (`Queue.trim`). An edge can clear its target's queue before it delivers (`Queue.clear`).
Messages marked as kept survive both, unless `clear` includes them explicitly. The marks are part of the message, so
a node that passes a message on unchanged passes its marks on, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ....protocol.chat import Content, Part, Role, TextPart, parts_of
from ....protocol.errors import CallboardError
from ....protocol.workflow.model import AgentConfig, Node, Seed
from ....protocol.workflow_messages import Message

__all__ = ["TASK", "Message", "Queue", "carried", "seeded", "signed"]

TASK = "TASK"
"""Source of the messages that a run begins with."""


def seeded(seed: Seed) -> Message:
    """Return a message that the file puts into a node's queue or output."""
    return Message(role=seed.role, content=seed.content)


def signed(message: Message, source: str) -> Message:
    """Return the message with `source` as its source, unless it has one already."""
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


# DevAll's number, and in `failure_text` DevAll's words for agents.
MOST_OF_INPUT = 200
"""Most characters of the input in the output of a failed node."""


def heading(message: Message) -> str:
    """Return the heading of a message in prompts and questions: its source and role."""
    # DevAll's heading, word for word.
    return f"=== INPUT FROM {message.source or 'UNKNOWN'} ({message.role}) ===\n\n"


def headed(inputs: Sequence[Message]) -> Content:
    """Return all inputs as one text, each under a heading with its source; with images and files as separate parts."""
    parts: list[Part] = []
    for message in inputs:
        between = "\n\n" if parts else ""
        parts.append(TextPart(between + heading(message)))
        parts.extend(parts_of(message.content))
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def headed_text(inputs: Sequence[Message]) -> str:
    """Return the text of `headed`, without images and files."""
    return "\n\n".join(heading(message) + message.text for message in inputs)


def conversation(
    role: str | None, inputs: Sequence[Message], mode: Literal["messages", "prompt"] = "messages"
) -> list[Message]:
    """Return the messages for a model: the role as system message, then the inputs, or an empty user message."""
    found = [Message(role="system", content=role)] if role else []
    if mode == "prompt":
        return [*found, Message(role="user", content=headed(inputs))]
    return [*found, *(inputs or (Message(role="user", content=""),))]


def remembered(memories: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return the texts of memory stores, a block for each store with its name, without empty stores."""
    return [
        f"--- {store} ---\n" + "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1))
        for store, items in memories
        if items
    ]


def remembering(messages: Sequence[Message], memories: Sequence[tuple[str, Sequence[str]]]) -> list[Message]:
    """Return a conversation with the texts of memory stores before the last user message."""
    blocks = "\n\n".join(remembered(memories))
    if not blocks:
        return list(messages)
    # DevAll's wording and place. The blocks of `remembered` and the sentence of `reflection` are DevAll's, too.
    memory = Message(role="user", content=f"===== Related Memories =====\n\n{blocks}\n\n===== End of Memory =====")
    last = max((i for i, message in enumerate(messages) if message.role == "user"), default=len(messages))
    return [*messages[:last], memory, *messages[last:]]


def reflection(said: Sequence[Message], answer: str, memories: Sequence[tuple[str, Sequence[str]]], prompt: str) -> str:
    """Return the prompt for a model's reflection on its answer.

    It consists of the memories, the conversation as text, and the author's `reflection_prompt`.
    """
    told = [f"{message.role.upper()}: {message.text}" for message in (*said, Message(role="assistant", content=answer))]
    memory = [message.text for message in remembering((), memories)]
    return "Here is a conversation between two roles: " + "\n".join([*memory, *told]) + " " + prompt


def failure_text(node: Node, error: CallboardError, inputs: Sequence[Message]) -> str:
    """Return the output of a node that failed and may continue."""
    config = node.config
    what = f"Error calling model {config.name}" if isinstance(config, AgentConfig) else f"'{node.id}' failed"
    return f"{what}: {error}\n\nOriginal input: {headed_text(inputs)[:MOST_OF_INPUT]}..."
