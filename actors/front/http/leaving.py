"""Work for a client that ends when the client leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from starlette.types import Receive

T = TypeVar("T")


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T | None:
    """Do the work; None if the client left before it was done, and the work was cancelled.

    The request's body must have been read before. What the work raises is raised as it is.
    """
    error: Exception | None = None
    value: T | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
        try:
            value = await work()
        except Exception as raised:  # noqa: BLE001 - raised again outside of the nursery, which would wrap it
            error = raised
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
    return value


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
