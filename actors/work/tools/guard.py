"""A model that goes round in circles: the same call again and again, or the same few calls in turn.

A call that has come `repeats` times in a row, or a chain of up to `chain` calls that has, is not played once more: the
model gets a note instead. The numbers are Loki's: (2, 3) at the root, (4, 10) for a child, which is unwatched.
"""

from __future__ import annotations

from ....protocol.chat import ToolCall
from .rendering import text_of
from .tool import Json

AT_ROOT = (2, 3)
AS_CHILD = (4, 10)


class RepeatGuard:
    """Remembers the last calls of one conversation."""

    def __init__(self, repeats: int, chain: int) -> None:
        self._repeats = repeats
        self._chain = chain
        self._calls: list[tuple[str, str]] = []

    def copy(self) -> RepeatGuard:
        """Another that remembers the same calls."""
        copied = RepeatGuard(self._repeats, self._chain)
        copied._calls = list(self._calls)
        return copied

    def alert(self, call: ToolCall) -> Json | None:
        """What to tell the model instead of playing this call, or None; the call is remembered."""
        key = (call.name, text_of(call.arguments))
        length = self._circle(key)
        self._calls.append(key)
        del self._calls[: -self._repeats * self._chain]
        if length is None:
            return None
        what = "this call" if length == 1 else f"this chain of {length} calls"
        return {
            "tool_call_loop_alert": {
                "code": 400,
                "message": f"{what} came {self._repeats} times in a row and was not repeated. The result would be the "
                "same. Use what you have, call something else, or give your answer.",
                "call": call.name,
            }
        }

    def _circle(self, key: tuple[str, str]) -> int | None:
        """Length of the chain that `key` would begin or continue once too often; None if there is none.

        A chain counts from its first repetition's end: A, B, A, B and again A.
        """
        calls = self._calls
        for length in range(1, self._chain + 1):
            span = length * self._repeats
            if len(calls) < span:
                return None
            recent = calls[-span:]
            if recent[0] == key and all(recent[i] == recent[i % length] for i in range(span)):
                return length
        return None
