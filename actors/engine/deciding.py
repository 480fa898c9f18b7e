"""What decides, as those see it who play it: `driver`, which tells it what happens, and `past`, what has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from ...protocol.effects import Effect
from ...protocol.kernel.messages import Message


class Decider(Protocol):
    """A plain object, synchronous and deterministic; see `driver`.

    Attributes:
        heard: whether events are listened to; if not, `Emit` may be left out.
    """

    heard: bool

    def begin(self, request: Any) -> list[Effect]:
        """What is to be done first."""

    def on(self, message: Message) -> list[Effect]:
        """What is to be done now that this has happened."""

    def remembers(self) -> Iterable[object]:
        """What it has taken in so far, for who measures the memory of its actor."""


class Tape(Protocol):
    """Writes down what one decider was told and what it said."""

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """It was told `message` (the request, for `begin`), and said this."""


Recorder: TypeAlias = Callable[[Decider, Callable[[], Decider]], Tape]
"""Makes a tape for a decider, and for what makes another one like it."""

recorder: ContextVar[Recorder | None] = ContextVar("callboard_recorder", default=None)
"""Writes down all that is decided by actors of this context and by those below them: of a run, or of a test."""
