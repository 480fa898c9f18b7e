"""The idle resources of a pool: which was used least recently, and which has been idle for too long."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio

if TYPE_CHECKING:
    from .lease import Holder

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@final
class Idle(Generic[K, R]):
    """Holders of open resources without a lease.

    They stand in lines by their `ttl`, each in the order in which they came, so that the head of a line is due first.
    There are few different `ttl`, so to look at all heads is cheap.
    """

    def __init__(self) -> None:
        self._lines: dict[float, OrderedDict[K, Holder[K, R]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Holder[K, R]]:
        for line in self._lines.values():
            yield from line.values()

    @property
    def passing(self) -> int:
        """How many of them are not kept for good."""
        return sum(len(line) for ttl, line in self._lines.items() if ttl != math.inf)

    def add(self, holder: Holder[K, R]) -> None:
        """It is idle since `holder.since`, which is now."""
        line = self._lines.get(holder.ttl)
        if line is None:
            line = self._lines[holder.ttl] = OrderedDict()
        line[holder.key] = holder

    def remove(self, holder: Holder[K, R]) -> None:
        """It is idle no more; does nothing if it was not."""
        line = self._lines.get(holder.ttl)
        if line is not None and line.pop(holder.key, None) is not None and not line:
            del self._lines[holder.ttl]

    def oldest(self) -> Holder[K, R] | None:
        """The one that was used least recently; of those kept for good only if there is no other."""
        heads = [next(iter(line.values())) for line in self._lines.values()]
        return min(heads, key=lambda holder: (holder.ttl == math.inf, holder.since), default=None)

    def due(self, now: float) -> list[Holder[K, R]]:
        """Those whose time is up."""
        found: list[Holder[K, R]] = []
        for ttl, line in self._lines.items():
            for holder in line.values():
                if holder.since + ttl > now:
                    break
                found.append(holder)
        return found

    def next_due(self) -> float:
        """When the time of the first of them is up; `inf` if there is none."""
        return min((next(iter(line.values())).since + ttl for ttl, line in self._lines.items()), default=math.inf)


async def passes(check: Callable[[R], Awaitable[bool]] | None, resource: R, within: float) -> bool:
    """Whether the health check of a resource passes, in time."""
    assert check is not None
    with trio.move_on_after(within):
        try:
            return await check(resource)
        except Exception:  # noqa: BLE001 - a check that raises is a check that failed
            return False
    return False
