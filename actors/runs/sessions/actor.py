"""The actor of a session in use: it gives out turns, one at a time, in the order of the requests.

So two writers of one process never meet; the lock keeps out other processes (see `disk.files`).

The holder of the turn may change the session until it gives the turn back. It always does: the turn is a context
manager (see `live`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec
import trio

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .store import Stored

IDLE = 300.0
"""Seconds after which an unused session is forgotten; its file stays."""


class TakeTurn(msgspec.Struct, frozen=True, tag="take-turn"):
    """Asked for a turn; the answer, which comes when it is one's turn, is a `Loan`."""


@final
class Loan:
    """The right to work with a session.

    Attributes:
        known: the session as the last holder left it; None before the first.
    """

    def __init__(self, known: Stored | None) -> None:
        self.known = known
        self._back = trio.Event()

    def give_back(self) -> None:
        """Let the next one have it."""
        self._back.set()

    async def returned(self) -> None:
        """Wait until it is given back."""
        await self._back.wait()


@final
class LiveSession:
    """Body of a session's actor.

    Attributes:
        busy: whether the turn is taken.
    """

    def __init__(self) -> None:
        self.busy = False
        self._known: Stored | None = None

    async def __call__(self, me: Actor) -> None:
        while True:
            with trio.move_on_after(IDLE) as patience:
                await me.receive()
            if patience.cancelled_caught:
                return
            request = me.take_request()
            if not request.waits:
                continue  # who asked has gone meanwhile
            loan = Loan(self._known)
            self.busy = True
            try:
                request.reply(loan)
                await loan.returned()
                self._known = loan.known
            finally:
                self.busy = False
