"""Interface between a driver and the part of an actor that runs next to its decider (the children of an agent)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...protocol.effects import Effect
from ..work.journal.actor_journal import JournalPlayer, OpenChildren


class BackgroundWork(Protocol):
    """Executor of effects that are not `Work`.

    Such an effect takes no time. Its outcome reaches the decider through `Driver.tell`.
    """

    @property
    def at_once(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Synchronous executors, by type of effect."""

    def go_on(self, player: JournalPlayer, left: OpenChildren, *, ends: bool) -> None:
        """Resume after recovery: the decider has replayed its journal, which leaves `left` open.

        Args:
            ends: the decider has finished, or the run is only recovered in order to end; start nothing new.
        """

    async def caught_up(self) -> None:
        """Wait until the children are recovered too, so that their outcomes can be sent to the decider."""
