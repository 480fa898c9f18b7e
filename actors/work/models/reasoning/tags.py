"""Separation of `<think>` reasoning at the start of a reply from the answer, for streamed pieces.

Servers without a reasoning parser for their model send it this way (vLLM, llama.cpp, Perplexity). Tags later in the
text are part of the answer.
"""

from __future__ import annotations

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


class Parting:
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
        kept = next((size for size in range(len(CLOSE) - 1, 0, -1) if self._held.endswith(CLOSE[:size])), 0)
        thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
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
