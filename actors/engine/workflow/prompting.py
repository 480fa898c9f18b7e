"""Prompts for models and users: a node's inputs as a conversation or as one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ....protocol.chat import Content, Part, TextPart, parts_of
from ....protocol.errors import CallboardError
from ....protocol.workflow.model import AgentConfig, Node
from .messages import Message

# DevAll's number, and in `failure_text` DevAll's words for agents.
MOST_OF_INPUT = 200
"""Most characters of the input in the output of a failed node."""


def heading(message: Message) -> str:
    """Return the heading of a message, with its source."""
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
