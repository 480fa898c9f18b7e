"""Waits until an account has room for a request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.errors import LimitReached
from .accounts import Hold

if TYPE_CHECKING:
    from .accounts import Account, Amount


def reserve(
    account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool = True
) -> Coroutine[Any, Any, Hold]:
    """Reserve what a request may come to, as soon as there is room; where days are limited, in the ledger as well.

    Args:
        on_wait: called if it has to wait.
        turn: it is a turn of a model; one for vectors is none.

    Raises:
        TurnsReached, BudgetReached: an account is at its end, or came to it meanwhile.
    """
    enter = room_in if account.day is None else account.day.admit
    return enter(account, most, on_wait, turn=turn)


async def room_in(account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool) -> Hold:
    """As `reserve`, in accounts alone."""
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
