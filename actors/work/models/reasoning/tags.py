"""Thinking that stands in the text of a reply, in `<think>` at its beginning, parted from the answer piece by piece.

Servers that do not know the models they serve send it so (vLLM without a reasoning parser, llama.cpp, Perplexity). What
comes later in a text is the answer, whatever tags it has.
"""

from __future__ import annotations

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


class Parting:
    """See the module. `take` gives what a piece adds to thinking and answer, `rest` what is left at the end."""

    def __init__(self) -> None:
        self._held = ""
        self._state: Literal["before", "within", "behind", "over"] = "before"

    def take(self, piece: str) -> tuple[str, str]:
        """More of the text: what of it is thinking, and what is the answer."""
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
        """What was held back, since it might have become a tag."""
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
