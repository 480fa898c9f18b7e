"""Waits until an account has room for a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ....protocol.errors import LimitReached
from .accounts import Hold

if TYPE_CHECKING:
    from .accounts import Account, Amount


async def reserve(account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool = True) -> Hold:
    """Reserve what a request may come to, as soon as there is room.

    Args:
        on_wait: called if it has to wait.
        turn: it is a turn of a model; one for vectors is none.

    Raises:
        TurnsReached, BudgetReached: an account is at its end, or came to it meanwhile.
    """
    hold = account.hold(most, turn=turn)
    if hold is not None:
        return hold
    on_wait()
    found: list[Hold | LimitReached] = []
    woken = trio.Event()

    def wake(what: Hold | LimitReached) -> None:
        found.append(what)
        woken.set()

    leave = account.wait(most, wake, turn=turn)
    try:
        await woken.wait()
    except BaseException:  # cancelled: what was reserved at that very moment is for others
        leave()
        for each in found:
            if isinstance(each, Hold):
                each.release()
        raise
    if isinstance(found[0], LimitReached):
        raise found[0]
    return found[0]
