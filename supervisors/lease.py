"""What a pool works with (see there): leases, holders of resources, those of them that are idle, and counters."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec
import trio

from ..protocol.kernel.errors import ActorFailed
from ..protocol.kernel.events import ActorRestarted
from .policy import Breaker
from .ref import describe

if TYPE_CHECKING:
    from .actor import Actor
    from .pool import Pool

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@final
class Lease(Generic[K, R]):
    """One use of a resource: `async with lease as resource`. Entered once.

    A use that is no block: `resource = await lease.acquire()`, and later `lease.release()`, in whatever task.

    Attributes:
        key: what it is a lease of.
    """

    __slots__ = ("_holder", "_pool", "_released", "key")

    def __init__(self, pool: Pool[K, R], key: K) -> None:
        self.key = key
        self._pool = pool
        self._holder: Holder[K, R] | None = None
        self._released = False

    async def acquire(self) -> R:
        """The resource. A checkpoint only if it is not open yet."""
        if self._holder is not None:
            raise RuntimeError("a lease is entered once; call `pool.lease` again for another")
        self._holder = self._pool.take(self.key) or await self._pool.wait_for(self.key)
        return self._holder.resource

    def release(self) -> None:
        """Return it; the second time nothing."""
        if not self._released:
            self._pool.give_back(self._entered)
            self._released = True

    def report_lost(self, error: BaseException | None = None) -> None:
        """Report that the resource is gone, and of what: it is leased no more, even before its own actor notices."""
        self._pool.lose(self._entered, error)

    async def __aenter__(self) -> R:
        """As `acquire`."""
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `release`. Never a checkpoint."""
        self.release()

    @property
    def stale(self) -> bool:
        """Whether the next lease would be of another resource: mine was lost, or is to be closed after me."""
        return not self._entered.open

    @property
    def lost(self) -> trio.Event:
        """Set when the resource is gone, or going, while I hold it: it died, or the pool closes."""
        return self._entered.lost

    @property
    def error(self) -> BaseException | None:
        """What the resource died of, once it has ended."""
        return self._entered.error

    @property
    def _entered(self) -> Holder[K, R]:
        if self._holder is None:
            raise RuntimeError("this lease has not been entered yet: `async with pool.lease(key) as resource`")
        return self._holder


@dataclass(eq=False, slots=True, repr=False)
class Holder(Generic[K, R]):
    """What the pool knows of one resource and of the actor that owns it."""

    key: K
    ttl: float
    actor: Actor = field(init=False)
    resource: R = field(init=False)
    error: BaseException | None = None
    breaker: Breaker | None = None  # once it has allowed the start
    open: bool = False  # may be leased out
    retired: str = ""  # why it may not, any more
    leases: int = 0
    waiting: int = 0  # leases that wait for the start
    settled: trio.Event = field(default_factory=trio.Event)  # the start is done, or failed
    lost: trio.Event = field(default_factory=trio.Event)
    since: float = 0.0  # idle since
    lined_up: bool = False
    slot: bool = False
    freeing: bool = False
    turn: trio.Event = field(default_factory=trio.Event)  # set with its slot

    def give_slot(self) -> None:
        """It may start, as far as room is concerned."""
        self.slot = True
        self.turn.set()

    async def may_start(self, breaker: Breaker, on_start: Callable[[Actor, K, float], None] | None) -> None:
        """Wait as long as the breaker says before it starts.

        Raises:
            TooManyRestarts: the breaker allows no start.
        """
        again = breaker.down
        wait = breaker.begin(trio.current_time())
        self.breaker = breaker
        if again:
            self.actor.emit(ActorRestarted(error=breaker.error, restarts=breaker.failures))
        if on_start is not None:
            on_start(self.actor, self.key, wait)
        await trio.sleep(wait)

    def charge(self) -> None:
        """It has ended; if that was of an error, nothing has stopped it on request."""
        if self.breaker is None:
            return
        self.breaker.over()
        error = self.error
        while isinstance(error, ActorFailed) and error.__cause__ is not None:
            error = error.__cause__
        if error is not None:
            self.breaker.failed(describe(error), trio.current_time())


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


class PoolStatistics(msgspec.Struct, kw_only=True):
    """What a pool did so far, and what it holds now.

    Attributes:
        opened: resources opened.
        hits: leases that found their resource open.
        revived: those of them that found it idle.
        misses: leases that waited for a start.
        seconds_waited: how long they did, all together.
        waits: starts that waited for room (`max_open`).
        failed_starts: starts that crashed.
        lost: resources that ended by themselves after they were opened.
        evicted_idle: closed because they were unused for `idle_ttl`.
        evicted_lru: closed as the least recently used, for `max_idle` or to make room.
        health_ok: checks passed.
        health_failed: checks failed, each the end of its resource.
        leased: resources with a lease.
        idle: open resources without one.
    """

    opened: int = 0
    hits: int = 0
    revived: int = 0
    misses: int = 0
    seconds_waited: float = 0.0
    waits: int = 0
    failed_starts: int = 0
    lost: int = 0
    evicted_idle: int = 0
    evicted_lru: int = 0
    health_ok: int = 0
    health_failed: int = 0
    leased: int = 0
    idle: int = 0
