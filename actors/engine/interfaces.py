"""Interfaces of a decider: to the driver (`driver` executes it, `recovery` replays it), to its recorders, and to the
part of an actor that runs next to it (`BackgroundWork`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from ...protocol.effects import Effect
from ...protocol.kernel.messages import Message
from ..work.journal.actor_journal import JournalPlayer, OpenChildren


class Decider(Protocol):
    """Synchronous, deterministic object that maps messages to effects; `driver` explains the contract.

    Attributes:
        heard: True if the run's events have a subscriber; if not, the decider may omit `Emit`.
    """

    heard: bool

    def begin(self, request: Any) -> list[Effect]:
        """Return the first effects of a new run."""

    def on(self, message: Message) -> list[Effect]:
        """Return the effects that follow from this message."""

    def remembers(self) -> Iterable[object]:
        """Return the objects that hold the decider's state; introspection measures their memory."""


class Tape(Protocol):
    """Recorder of one decider: its messages and the effects that it returns."""

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """Record that `message` (the request, for `begin`) produced these effects."""


Recorder: TypeAlias = Callable[[Decider, Callable[[], Decider]], Tape]
"""Factory of a tape for a decider; the second argument makes an equal decider."""

recorder: ContextVar[Recorder | None] = ContextVar("callboard_recorder", default=None)
"""Recorder for all deciders of this context and of the actors below: those of a run, or of a test."""


class BackgroundWork(Protocol):
    """Executor of effects that are not `Work`.

    Such an effect takes no time. Its outcome reaches the decider through `Driver.tell`.
    """

    @property
    def at_once(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Synchronous executors, by type of effect."""

    def resume(self, player: JournalPlayer, left: OpenChildren, *, ends: bool) -> None:
        """Resume after recovery: the decider has replayed its journal, which leaves `left` open.

        Args:
            ends: the decider has finished, or the run is only recovered in order to end; start nothing new.
        """

    async def caught_up(self) -> None:
        """Wait until the children are recovered too, so that their outcomes can be sent to the decider."""
