"""What a model has thought, kept in the turn in which it thought it, for the eyes of the same model.

`chat.Thought.data` is a list, in the order in which things came:

    an object   a block of thinking, in the provider's own words (with signatures, encrypted)
    a number    so many characters of the turn's text
    null        the next of its calls

What stands at the end without a block behind it is left out, so mostly there are blocks alone. An object with the key
`_text` stands for so many characters of the text, as well: they have to be sent within that block.

`form` names the provider's format, and `by` the model: `sent` gives the blocks to that model in that format alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .....protocol import chat

Json = Any

TEXT = "_text"

Piece = str | chat.ToolCall | tuple[dict[str, Json], str]
"""A piece of a turn: text, a call, or a block with the text that belongs into it."""


class Weaver:
    """Notes the order in which blocks, text and calls come; made for the first block.

    Args:
        text, calls: characters and calls that came before it.
    """

    def __init__(self, *, text: int, calls: int) -> None:
        self.data: list[Json] = [*([text] if text else ()), *([None] * calls)]

    def block(self, block: dict[str, Json]) -> None:
        """A block of thinking."""
        self.data.append(block)

    def within(self, block: dict[str, Json], text: int) -> None:
        """The last `text` characters belong into that block."""
        place = next((at for at in range(len(self.data) - 1, -1, -1) if isinstance(self.data[at], int)), None)
        if place is None or self.data[place] < text:
            return
        before = self.data[place] - text
        self.data[place : place + 1] = [*([before] if before else ()), {**block, TEXT: text}]

    def text(self, piece: str) -> None:
        """More text of the reply."""
        if self.data and isinstance(self.data[-1], int):
            self.data[-1] += len(piece)
        else:
            self.data.append(len(piece))

    def call(self) -> None:
        """Another call."""
        self.data.append(None)

    def thought(self, form: str) -> chat.Thought | None:
        """What is to be kept; None for nothing."""
        data = self.data
        while data and not isinstance(data[-1], dict):
            data = data[:-1]
        return chat.Thought(form=form, data=data) if data else None


def blocks(turn: chat.AssistantTurn, model: str, form: str) -> list[Json]:
    """What `model` has thought in that turn, if it is in that format; nothing else is for it."""
    thought = turn.thought
    if thought is None or thought.by != model or thought.form != form or not isinstance(thought.data, list):
        return []
    return thought.data


def sent(turn: chat.AssistantTurn, model: str, form: str) -> Iterator[Piece]:
    """The turn as it came, piece by piece. Blank texts, which some providers refuse, are left out."""
    text, calls = turn.text, list(turn.tool_calls)
    for item in blocks(turn, model, form):
        if isinstance(item, dict):
            own, text = _parted(text, item.get(TEXT, 0))
            yield {key: value for key, value in item.items() if key != TEXT}, own
        elif isinstance(item, int):
            piece, text = _parted(text, item)
            if piece.strip():
                yield piece
        elif item is None and calls:
            yield calls.pop(0)
    if text.strip():
        yield text
    yield from calls


def _parted(text: str, length: Json) -> tuple[str, str]:
    """The first `length` characters, and the others. People may have written the number."""
    length = max(0, length) if isinstance(length, int) else 0
    return text[:length], text[length:]
