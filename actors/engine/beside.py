"""What a driver knows of those who work beside its decider: who plays the children of an agent, in the first place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...protocol.effects import Effect
from ..work.journal.family import FamilyLeft
from ..work.journal.scope import Player


class Beside(Protocol):
    """Who carries out effects that are no work: they take no time, and what comes of them is told by `Driver.tell`."""

    @property
    def at_once(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Carries them out, by kind."""

    def go_on(self, player: Player, left: FamilyLeft, *, ends: bool) -> None:
        """The decider was told its past, which has left this open; `ends`: nothing more is to be done about it."""

    async def caught_up(self) -> None:
        """Until all of that is where it was, and the decider can be told what had become of it."""
