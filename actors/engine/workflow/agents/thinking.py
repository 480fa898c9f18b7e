"""Reflection: the model gets the whole conversation once more, and its reply then is the answer.

The conversation goes in as a text, what memory had to say in front of it, and the author's `reflection_prompt` behind;
the model may use the agent's tools again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import Message
from ..prompting import remembering

_BEGINNING = "Here is a conversation between two roles: "


def reflection(said: Sequence[Message], answer: str, memories: Sequence[tuple[str, Sequence[str]]], prompt: str) -> str:
    """What the model is asked."""
    told = [f"{message.role.upper()}: {message.text}" for message in (*said, Message(role="assistant", content=answer))]
    memory = [message.text for message in remembering((), memories)]
    return _BEGINNING + "\n".join([*memory, *told]) + " " + prompt
