"""A bounded queue for a subscription to something that has no log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Self, TypeVar, final

import trio

from ....protocol.errors import CallboardError

T = TypeVar("T")


class FeedLagged(CallboardError):
    """The reader was too slow, and the feed has ended; a new one begins with what there is then."""

    code = "lagged"


@final
class Feed(Generic[T]):
    """`async for item in feed`; a reader more than `bound` items behind gets `FeedLagged`.

    Args:
        first: the initial items, which the bound ignores, so that a subscription can begin anew.
    """

    def __init__(self, bound: int = 10_000, first: Iterable[T] = ()) -> None:
        self._items: deque[T] = deque(first)
        self._bound = bound + len(self._items)
        self._cut = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, item: T) -> None:
        """Never waits."""
        if len(self._items) >= self._bound:
            self._cut = True
            self._items.clear()
        if not self._cut:
            self._items.append(item)
        self._lot.unpark()

    def __aiter__(self) -> Feed[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._cut:
                raise FeedLagged("the reader was too slow; subscribe again")
            await self._lot.park()
        return self._items.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._items.clear()
