"""Reasoning items, stored with their turn and sent back only to the model that produced them.

Providers require reasoning blocks at their original position between text and tool calls. A turn stores text and calls
separately, so it also stores the order. `chat.Thought.data` is a list in the order of arrival:

    object   reasoning block in the provider's own format (signed or encrypted)
    number   this many characters of the turn's text
    null     the next tool call of the turn

Text and calls after the last block are omitted, so most lists contain only blocks. An object with the key `_text` also
contains this many characters of the text, which must be sent inside that block.

`form` is the name of the provider's format and `by` the model. `sent` yields the blocks only for the same model in the
same format: another model cannot read or verify them.

**Tags.** Servers without a reasoning parser for their model send reasoning in `<think>` tags at the start of the reply
(vLLM, llama.cpp, Perplexity). Tags later in the text are part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ....protocol import chat

Json = Any

TEXT = "_text"

Piece = str | chat.ToolCall | tuple[dict[str, Json], str]
"""Piece of a turn: a text, a tool call, or a reasoning block with the text inside it."""


class ReasoningOrder:
    """Recorder of the order of blocks, text and calls in a reply. It is created with the first block.

    Args:
        text: number of characters before the first block.
        calls: number of calls before the first block.
    """

    def __init__(self, *, text: int, calls: int) -> None:
        self.data: list[Json] = [*([text] if text else ()), *([None] * calls)]

    def block(self, block: dict[str, Json]) -> None:
        """Append a reasoning block."""
        self.data.append(block)

    def within(self, block: dict[str, Json], text: int) -> None:
        """Move the last `text` characters into `block`. No effect if the last recorded run of text is shorter."""
        place = next((at for at in range(len(self.data) - 1, -1, -1) if isinstance(self.data[at], int)), None)
        if place is None or self.data[place] < text:
            return
        before = self.data[place] - text
        self.data[place : place + 1] = [*([before] if before else ()), {**block, TEXT: text}]

    def text(self, piece: str) -> None:
        """Append text; only its length is recorded."""
        if self.data and isinstance(self.data[-1], int):
            self.data[-1] += len(piece)
        else:
            self.data.append(len(piece))

    def call(self) -> None:
        """Append a tool call."""
        self.data.append(None)

    def thought(self, form: str) -> chat.Thought | None:
        """Return the reasoning to store; None if there are no blocks."""
        data = self.data
        # `sent` appends the remaining text and calls by itself.
        while data and not isinstance(data[-1], dict):
            data = data[:-1]
        return chat.Thought(form=form, data=data) if data else None


def blocks(turn: chat.AssistantTurn, model: str, form: str) -> list[Json]:
    """Return the stored items of a turn; empty if another model or format produced them."""
    thought = turn.thought
    if thought is None or thought.by != model or thought.form != form or not isinstance(thought.data, list):
        return []
    return thought.data


def sent(turn: chat.AssistantTurn, model: str, form: str) -> Iterator[Piece]:
    """Yield the pieces of a turn in their original order. Blank texts are omitted: some providers refuse them."""
    text, calls = turn.text, list(turn.tool_calls)
    for item in blocks(turn, model, form):
        if isinstance(item, dict):
            # The text may be shorter than when it was recorded (redaction, an edit of the user): `_parted` clips.
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
    """Return the first `length` characters and the rest. The number is checked: files of users may contain it."""
    length = max(0, length) if isinstance(length, int) else 0
    return text[:length], text[length:]


OPEN, CLOSE = "<think>", "</think>"


class ThinkTagParser:
    """Incremental parser of one reply: call `take` with each piece, then `rest` at the end."""

    def __init__(self) -> None:
        self._held = ""  # text that may be the start of a tag
        self._state: Literal["before", "within", "behind", "over"] = "before"

    def take(self, piece: str) -> tuple[str, str]:
        """Process a piece of text; return its reasoning and its answer."""
        if self._state == "over":
            return "", piece
        if self._state == "behind":
            return "", self._answer(piece)
        self._held += piece
        if self._state == "before":
            begun = self._held.lstrip()
            if OPEN.startswith(begun) and begun != OPEN:
                return "", ""  # it may become the tag
            if not begun.startswith(OPEN):
                self._state = "over"
                return "", self._let_go()
            self._state, self._held = "within", begun.removeprefix(OPEN)
        thought, closed, answer = self._held.partition(CLOSE)
        if closed:
            self._state, self._held = "behind", ""
            return thought, self._answer(answer)
        tail = next((size for size in range(len(CLOSE) - 1, 0, -1) if self._held.endswith(CLOSE[:size])), 0)
        thought, self._held = self._held[: len(self._held) - tail], self._held[len(self._held) - tail :]
        return thought, ""

    def rest(self) -> tuple[str, str]:
        """Return the held text at the end of the reply, as reasoning and answer."""
        held = self._let_go()
        return (held, "") if self._state == "within" else ("", held)

    def _answer(self, piece: str) -> str:
        piece = piece.lstrip()
        if piece:
            self._state = "over"
        return piece

    def _let_go(self) -> str:
        held, self._held = self._held, ""
        return held
