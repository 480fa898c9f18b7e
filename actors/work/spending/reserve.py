"""Reservation of room for a request in an account, waiting if necessary."""

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
    """Reserve the upper bound of a request, as soon as there is room; also in the ledger if days are limited.

    Args:
        on_wait: called if the request has to wait.
        turn: the request is a turn of a model; a request for embeddings is not.

    Raises:
        TurnsReached, BudgetReached: an account has reached its limit, or reached it during the wait.
    """
    enter = room_in if account.day is None else account.day.admit
    return enter(account, most, on_wait, turn=turn)


async def room_in(account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool) -> Hold:
    """Reserve in the accounts alone; see `reserve`."""
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
    except BaseException:  # Cancelled: a reservation made at that very moment must be released for others.
        leave()
        for each in found:
            if isinstance(each, Hold):
                each.release()
        raise
    if isinstance(found[0], LimitReached):
        raise found[0]
    return found[0]
