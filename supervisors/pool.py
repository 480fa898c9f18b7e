"""Resource pool: expensive resources shared by key (a model server, an index, a connection), opened once and kept warm.

    @asynccontextmanager
    async def engine(me: Actor, key: str) -> AsyncIterator[Engine]:
        process = await start_process(me, ["engine", key])
        yield Engine(process)

    pool = Pool(root, engine, name="engines", idle_ttl=300)
    async with pool.lease("small") as engine:
        ...

**The problem.** A resource outlives the task that opened it, and is used by many tasks. A context manager of trio must
be left in the task that entered it, so neither the first nor the last lessee can own the resource. And a thousand
leases of one missing resource must cause one start.

**Ownership.** An actor of its own owns each resource, a child of the pool's actor: that actor's task enters the context
manager and leaves it. Actors that `open` spawns with `me.spawn` end with the resource, and the crash of a linked one
ends the resource.

**Single-flight start.** The first lease of a key starts its holder; later leases wait for that same start. A failed
start fails all waiting leases, and the next lease tries again. A start is abandoned when no lease waits for it any
more. A new holder of a key begins only when the previous one has ended, so two never contend for a port or a lock file.

**Warm leases touch no mailbox.** Leasing an open resource increments a count and returning it decrements the count, in
the caller's task and without a checkpoint. One reaper task closes idle resources. It keeps one queue for each
`idle_ttl` in use, ordered by the time of return, so the head of a queue is due first; the reaper's deadline is moved
only if it would be late.

**Restarts.** A pool supervises its resources and starts them on demand. An end that was not requested, and a failed
start, are failures: with a `breaker` (see `policy`) they delay the next start.

**Long leases.** A lease that is held longer than it is used (so that the resource stays the same) delays a reload, and
with `max_open` it delays leases of other keys. `lease.stale` says that it should be returned, and `make_room` requests
that.

Invariants:
- At most one holder per key is starting or open (`_holders`); retired ones are in `_leaving` until their actor has
  ended.
- With `max_open`, every open or starting resource has a slot; `_slots` counts them.
- `holder.leases` counts lessees. A retired holder closes when that reaches 0.
"""

from __future__ import annotations

import contextvars
import math
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, TypeVar, final

import msgspec
import trio

from ..protocol.kernel.errors import ActorError, ActorFailed, PoolClosed, ShuttingDown, TooManyRestarts
from ..protocol.kernel.events import ActorRestarted, ResourceClosed, ResourceOpened
from .actor import STOP_WITHIN, Actor
from .histogram import LatencyHistogram
from .policy import Breaker
from .ref import End, describe
from .root import Root

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

Opener = Callable[[Actor, K], AbstractAsyncContextManager[R]]
"""Called in the holder's task as `open(me, key)`; entered and left there. Leases receive the value that it yields."""

_CHECK_HEALTH = object()


class PoolStatistics(msgspec.Struct, kw_only=True):
    """Counters of a pool since its start, and its current size.

    Attributes:
        opened: resources opened.
        hits: leases that found their resource open.
        revived: hits that found the resource idle.
        misses: leases that waited for a start.
        seconds_waited: sum of those waits.
        waits: starts that waited for room (`max_open`).
        failed_starts: starts that crashed.
        lost: resources that ended by themselves after they were opened.
        evicted_idle: resources closed because they were unused for `idle_ttl`.
        evicted_lru: resources closed as the least recently used, for `max_idle` or to make room.
        health_ok: health checks that passed.
        health_failed: health checks that failed, each the end of its resource.
        leased: resources with a lease.
        idle: open resources without a lease.
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


@dataclass(eq=False, slots=True, repr=False)
class Holder(Generic[K, R]):
    """A resource and the actor that owns it.

    Attributes:
        ttl: seconds that it stays open without a lease.
        breaker: set once the breaker has allowed its start.
        open: True while it may be leased.
        retired: reason why it may no longer be leased; empty before.
        leases: number of lessees.
        waiting: number of leases that wait for the start.
        settled: set when the start has succeeded or failed.
        lost: set when the resource closes while it may be in use.
        since: time at which it became idle.
        lined_up: True once it has a slot, or a place in the queue for one.
        slot: True if it has one of the `max_open` slots.
        freeing: True if its slot will be free soon.
        turn: set together with `slot`.
    """

    key: K
    ttl: float
    actor: Actor = field(init=False)
    resource: R = field(init=False)
    error: BaseException | None = None
    breaker: Breaker | None = None
    open: bool = False
    retired: str = ""
    leases: int = 0
    waiting: int = 0
    settled: trio.Event = field(default_factory=trio.Event)
    lost: trio.Event = field(default_factory=trio.Event)
    since: float = 0.0
    lined_up: bool = False
    slot: bool = False
    freeing: bool = False
    turn: trio.Event = field(default_factory=trio.Event)

    def give_slot(self) -> None:
        """Allow the start, as far as `max_open` is concerned."""
        self.slot = True
        self.turn.set()

    async def may_start(self, breaker: Breaker, on_start: Callable[[Actor, K, float], None] | None) -> None:
        """Wait until the breaker allows the start.

        Raises:
            TooManyRestarts: the breaker allows no start.
        """
        restart = breaker.down
        wait = breaker.begin(trio.current_time())
        self.breaker = breaker
        if restart:
            self.actor.emit(ActorRestarted(error=breaker.error, restarts=breaker.failures))
        if on_start is not None:
            on_start(self.actor, self.key, wait)
        await trio.sleep(wait)

    def charge(self) -> None:
        """Report the end to the breaker. An end with an error counts as a failure; one without was requested."""
        if self.breaker is None:
            return
        self.breaker.over()
        error = self.error
        while isinstance(error, ActorFailed) and error.__cause__ is not None:
            error = error.__cause__
        if error is not None:
            self.breaker.failed(describe(error), trio.current_time())


@final
class IdleHolders(Generic[K, R]):
    """Holders of open resources without a lease.

    There is one queue per `ttl`, in the order in which the holders became idle, so the head of a queue is due first. A
    pool uses few different `ttl`, so looking at all heads is cheap.
    """

    def __init__(self) -> None:
        self._queues: dict[float, OrderedDict[K, Holder[K, R]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Holder[K, R]]:
        for queue in self._queues.values():
            yield from queue.values()

    @property
    def expiring(self) -> int:
        """Number of holders whose `ttl` is finite."""
        return sum(len(queue) for ttl, queue in self._queues.items() if ttl != math.inf)

    def add(self, holder: Holder[K, R]) -> None:
        """Add a holder that became idle at `holder.since`, which is now."""
        queue = self._queues.get(holder.ttl)
        if queue is None:
            queue = self._queues[holder.ttl] = OrderedDict()
        queue[holder.key] = holder

    def remove(self, holder: Holder[K, R]) -> None:
        """Remove a holder. No effect if it is not idle."""
        queue = self._queues.get(holder.ttl)
        if queue is not None and queue.pop(holder.key, None) is not None and not queue:
            del self._queues[holder.ttl]

    def oldest(self) -> Holder[K, R] | None:
        """Return the least recently used holder, or None; one with an infinite `ttl` only if there is no other."""
        heads = [next(iter(queue.values())) for queue in self._queues.values()]
        return min(heads, key=lambda holder: (holder.ttl == math.inf, holder.since), default=None)

    def due(self, now: float) -> list[Holder[K, R]]:
        """Return the holders whose `ttl` has passed."""
        found: list[Holder[K, R]] = []
        for ttl, queue in self._queues.items():
            for holder in queue.values():
                if holder.since + ttl > now:
                    break
                found.append(holder)
        return found

    def next_due(self) -> float:
        """Return the time at which the first holder is due; `inf` if there is none."""
        return min((next(iter(queue.values())).since + ttl for ttl, queue in self._queues.items()), default=math.inf)


@final
class Pool(Generic[K, R]):
    """A pool of resources shared by key; see the essay at the top of the module.

    Args:
        owner: the pool's actor is a child of this one, and the pool ends with it.
        open: opens one resource.
        name: name of the pool's actor.
        idle_ttl: seconds that an unused resource stays open, or a function from key to seconds. With `inf` it stays
            open regardless of `max_idle`; only a lease that waits for room closes it.
        max_idle: most unused resources that stay open; the least recently used is closed first.
        max_open: most resources that may be open at all. Beyond it an unused one is closed to make room, else the lease
            waits, first come first served.
        make_room: called when a lease has to wait for room and no resource is unused; it may return leases.
        health: `await health(resource)` checks unused resources regularly. False, an exception or no result within
            `health_interval` closes the resource.
        health_interval: seconds between two rounds of checks.
        stop_within: seconds that a resource has to close.
        breaker: returns the circuit breaker of a key; call its `worked` when the resource has proved itself.
        on_start: called with the actor, the key and the seconds that the breaker delays it, before each start.

    Attributes:
        waited: durations that leases waited for a start.
    """

    def __init__(
        self,
        owner: Actor | Root,
        open: Opener[K, R],
        *,
        name: str = "pool",
        idle_ttl: float | Callable[[K], float] = 300.0,
        max_idle: int = 50,
        max_open: int | None = None,
        make_room: Callable[[], None] | None = None,
        health: Callable[[R], Awaitable[bool]] | None = None,
        health_interval: float = 60.0,
        stop_within: float = STOP_WITHIN,
        breaker: Callable[[K], Breaker] | None = None,
        on_start: Callable[[Actor, K, float], None] | None = None,
    ) -> None:
        if max_open is not None and max_open < 1:
            raise ValueError(f"max_open must be at least 1, got {max_open}")
        self.closed: bool = False
        self._open = open
        self._idle_ttl = idle_ttl
        self._max_idle = max_idle
        self._max_open = max_open
        self._make_room = make_room
        self._health = health
        self._health_interval = health_interval
        self._stop_within = stop_within
        self._breaker = breaker
        self._on_start = on_start
        self.waited: LatencyHistogram = LatencyHistogram()
        self._count = PoolStatistics()
        self._holders: dict[K, Holder[K, R]] = {}  # starting or open, at most one per key
        self._leaving: dict[K, list[Holder[K, R]]] = {}  # retired, and their actors not ended yet
        self._idle: IdleHolders[K, R] = IdleHolders()
        self._slots = 0  # used, of max_open
        self._queue: deque[Holder[K, R]] = deque()  # starts that wait for a slot
        self._freeing = 0  # slots whose holders are about to end
        self._alarm = math.inf  # when the reaper wakes next
        self._next_round = math.inf  # of health checks
        self._sleep: trio.CancelScope | None = None
        # A resource outlives its first lessee, so it is opened in the context of the pool, not of that lessee.
        self._context = contextvars.copy_context()
        parent = owner.actor if isinstance(owner, Root) else owner
        self._me = parent.adopt(self._reap, (), name=name, bond="linked")
        self._me.launch()

    # --- leasing ------------------------------------------------------------------------------------------

    def lease(self, key: K) -> Lease[K, R]:
        """`async with pool.lease(key) as resource`: share the key's resource, opening it if necessary.

        Raises (on entering):
            PoolClosed: the pool is closing.
            ActorFailed: the start failed; `__cause__` is the error of `open`.
            TooManyRestarts: the breaker allows no start now. The caller puts the resource's name before its text.
        """
        return Lease(self, key)

    async def warm(self, key: K) -> None:
        """Open the key's resource, so that the next lease is quick. Raises as a lease does."""
        async with self.lease(key):
            pass

    async def reload(self, key: K | None = None) -> None:
        """Close and reopen the key's resource (without a key: every open one), and wait until that is done.

        Lessees keep the old resource until they return it. It closes after the last one, and the new one is opened
        after that. New leases wait for the new resource, so a caller that holds a lease of the key would wait for ever.

        Raises:
            ActorFailed, PoolClosed, TooManyRestarts: a new start failed, as in `lease`. Several failures are raised as
                an `ExceptionGroup`.
        """
        keys = [key] if key is not None else list(filter(self.__contains__, self._holders))
        errors: list[Exception] = []

        async def renew(key: K) -> None:
            try:
                await self.warm(key)
            except (ActorFailed, PoolClosed, TooManyRestarts) as error:
                errors.append(error)

        for each in keys:
            self.retire(each)
        async with trio.open_nursery() as nursery:
            for each in keys:
                nursery.start_soon(renew, each)
        if errors:
            several = ExceptionGroup(f"{len(errors)} resources could not be opened again", errors)
            raise errors[0] if len(errors) == 1 else several

    def retire(self, key: K) -> None:
        """Stop leasing the key's resource: it closes when its leases are returned. No effect if it is not open."""
        holder = self._holders.get(key)
        if holder is not None and holder.open:
            self._retire(holder, "reload")

    async def close(self) -> None:
        """Close all resources at the same time, leased ones too (their lessees see `lost`)."""
        self.closed = True
        await self._me.ref.stop()

    @property
    def statistics(self) -> PoolStatistics:
        """A copy of the current counters."""
        return msgspec.structs.replace(self._count, idle=len(self._idle))

    @property
    def crowded(self) -> bool:
        """True if a lease waits for room and no slot is about to become free for it."""
        return len(self._queue) > self._freeing

    def leases(self, key: K) -> int:
        """Return the number of leases of the key's resource; 0 also if it is not open."""
        return self._holders[key].leases if key in self._holders else 0

    def __contains__(self, key: K) -> bool:
        """Return whether the key's resource is open, so that a lease would not wait."""
        holder = self._holders.get(key)
        return holder is not None and holder.open

    # --- called by Lease ----------------------------------------------------------------------------------

    def take(self, key: K) -> Holder[K, R] | None:
        """Lease the key's resource if it is open, else return None."""
        holder = self._holders.get(key)
        if holder is None or not holder.open:
            return None
        if holder.leases == 0:
            self._idle.remove(holder)
            self._count.leased += 1
            self._count.revived += 1
        holder.leases += 1
        self._count.hits += 1
        return holder

    async def wait_for(self, key: K) -> Holder[K, R]:
        """Lease the key's resource when its start is complete; start it if necessary. Raises as a lease does."""
        if self.closed:
            raise PoolClosed(f"pool {self._me.path} is closed")
        if self._breaker is not None:
            self._breaker(key).check(trio.current_time())
        self._count.misses += 1
        holder = self._holders.get(key) or self._start(key)
        holder.waiting += 1
        since = trio.current_time()
        try:
            await holder.settled.wait()
        except trio.Cancelled:
            if holder.waiting == 0:  # `_opened` ran after the cancellation and already counted this lease
                self.give_back(holder)
                raise
            holder.waiting -= 1
            if holder.waiting == 0:  # no other lease wants the resource
                self._retire(holder, "unwanted")
            raise
        finally:
            waited = trio.current_time() - since
            self._count.seconds_waited += waited
            self.waited.add(waited)
        if holder.leases:  # `_opened` has counted this lease
            return holder
        if self.closed:
            raise PoolClosed(f"pool {self._me.path} was closed during the start")
        why = describe(holder.error) if holder.error else "it was stopped"
        raise ActorFailed(f"{holder.actor.path} could not be opened: {why}") from holder.error

    def give_back(self, holder: Holder[K, R]) -> None:
        """Return one lease. After the last one the resource becomes idle, or closes."""
        holder.leases -= 1
        if holder.leases:
            return
        self._count.leased -= 1
        if not holder.open:
            self._dismiss(holder)  # it was retired, or is lost
            return
        if self.crowded:
            self._evict(holder, "room")
            return
        now = trio.current_time()
        holder.since = now
        self._idle.add(holder)
        if self._idle.expiring > self._max_idle:
            self._evict_oldest("lru")
        if self._health is not None and self._next_round == math.inf:
            self._next_round = now + self._health_interval
        due = min(now + holder.ttl, self._next_round)
        if due < self._alarm:
            self._alarm = due
            if self._sleep is not None:
                self._sleep.deadline = due

    def lose(self, holder: Holder[K, R], error: BaseException | None) -> None:
        """Register that a lessee has found the resource gone, before its own actor notices. No effect if retired."""
        if holder.open:
            self._count.lost += 1
            holder.error = error or ActorError("a lessee lost it")
            self._retire(holder, "lost")

    # --- opening ------------------------------------------------------------------------------------------

    def _start(self, key: K) -> Holder[K, R]:
        holder = Holder[K, R](key, self._idle_ttl(key) if callable(self._idle_ttl) else self._idle_ttl)
        label = re.sub(r"[^\w.:@-]+", "-", str(key))[:40] or "resource"
        try:
            actor = self._me.adopt(self._hold, (holder,), name=label, bond="watched", stop_within=self._stop_within)
        except ShuttingDown:
            raise PoolClosed(f"pool {self._me.path} is closing") from None
        holder.actor = actor
        self._holders[key] = holder
        actor.on_end(lambda end: self._ended(holder, end))
        self._context.copy().run(actor.launch)
        if key not in self._leaving:
            self._line_up(holder)
        return holder

    def _line_up(self, holder: Holder[K, R]) -> None:
        """Give the holder a slot, or a place in the queue for one."""
        holder.lined_up = True
        if self._max_open is None or self._slots < self._max_open:
            holder.give_slot()
            self._slots += 1
            return
        self._count.waits += 1
        self._queue.append(holder)
        if self.crowded and not self._evict_oldest("room") and self._make_room is not None:
            self._make_room()

    async def _hold(self, me: Actor, holder: Holder[K, R]) -> None:
        """Body of a holder's actor: open the resource, keep it until told to stop, close it."""
        for previous in tuple(self._leaving.get(holder.key, ())):
            await previous.actor.ref.wait()
        if not holder.lined_up and not holder.retired:  # a retired one is about to be stopped and needs no slot
            self._line_up(holder)
        await holder.turn.wait()
        if self._breaker is not None:
            await holder.may_start(self._breaker(holder.key), self._on_start)
        since = trio.current_time()
        with trio.CancelScope() as closing:
            async with self._open(me, holder.key) as resource:
                try:
                    self._opened(holder, resource)
                    me.emit(ResourceOpened(key=me.name, seconds=trio.current_time() - since))
                    me.started()
                    async for _ in me:  # each message is a request to check the health
                        if holder.leases:
                            continue
                        if not await self._is_healthy(resource):
                            self._count.health_failed += 1
                            self._retire(holder, "health")
                            return
                        self._count.health_ok += 1
                finally:
                    if not holder.retired:
                        if not self.closed:
                            self._count.lost += 1
                        self._retire(holder, "closed" if self.closed else "lost")
                    self._expect_slot(holder)
                    holder.lost.set()
                    me.emit(ResourceClosed(key=me.name, reason=holder.retired))
                    closing.deadline = trio.current_time() + self._stop_within

    def _opened(self, holder: Holder[K, R], resource: R) -> None:
        if holder.breaker is not None:
            holder.breaker.over()
        self._count.opened += 1
        holder.resource = resource
        if not holder.retired:
            holder.open = True
            holder.leases, holder.waiting = holder.waiting, 0
            self._count.leased += 1
            holder.settled.set()

    async def _is_healthy(self, resource: R) -> bool:
        assert self._health is not None
        with trio.move_on_after(self._health_interval):
            try:
                return await self._health(resource)
            except Exception:  # noqa: BLE001 - a check that raises is a check that failed
                return False
        return False

    # --- closing ------------------------------------------------------------------------------------------

    def _evict_oldest(self, why: str) -> bool:
        """Close the least recently used idle resource; return False if there is none."""
        oldest = self._idle.oldest()
        if oldest is not None:
            self._evict(oldest, why)
        return oldest is not None

    def _evict(self, holder: Holder[K, R], why: str) -> None:
        self._count.evicted_idle += why == "idle"
        self._count.evicted_lru += why != "idle"
        self._retire(holder, why)

    def _retire(self, holder: Holder[K, R], why: str) -> None:
        """Stop leasing the resource; it closes with its last lease."""
        if holder.retired:
            return
        holder.retired = why
        holder.open = False
        del self._holders[holder.key]
        self._idle.remove(holder)
        self._leaving.setdefault(holder.key, []).append(holder)
        if holder.lined_up and not holder.slot:
            self._queue.remove(holder)
        if not holder.leases:
            self._dismiss(holder)

    def _dismiss(self, holder: Holder[K, R]) -> None:
        self._expect_slot(holder)
        if holder.settled.is_set():
            holder.actor.request_stop()
        else:
            holder.actor.interrupt()  # it is starting, and receives no mail

    def _expect_slot(self, holder: Holder[K, R]) -> None:
        """Count the holder's slot as free soon, so that no other resource is closed for a waiting lease."""
        if holder.slot and not holder.freeing:
            holder.freeing = True
            self._freeing += 1

    def _ended(self, holder: Holder[K, R], end: End) -> None:
        holder.error = end.error or holder.error
        holder.charge()
        if not holder.settled.is_set() and end.error is not None:
            self._count.failed_starts += 1
        self._retire(holder, "failed")
        holder.settled.set()
        self._leaving[holder.key].remove(holder)
        if not self._leaving[holder.key]:
            del self._leaving[holder.key]
        self._freeing -= holder.freeing
        if holder.slot and self._queue:
            self._queue.popleft().give_slot()
        else:
            self._slots -= holder.slot

    async def _reap(self, me: Actor) -> None:
        """Body of the pool's actor: close resources that were idle for too long, and check the health of the others."""
        try:
            while True:
                with trio.CancelScope(deadline=self._alarm) as self._sleep:
                    await me.receive()
                now = trio.current_time()
                for holder in self._idle.due(now):
                    self._evict(holder, "idle")
                if now >= self._next_round:
                    for holder in self._idle:
                        if not holder.actor.mailbox:
                            holder.actor.mailbox.put_nowait(_CHECK_HEALTH)
                    self._next_round = now + self._health_interval if self._idle else math.inf
                self._alarm = min(self._idle.next_due(), self._next_round)
        finally:
            self.closed = True


@final
class Lease(Generic[K, R]):
    """A use of a resource: `async with lease as resource`. It can be entered once.

    Without a block: `resource = await lease.acquire()`, and later `lease.release()`, in any task.

    Attributes:
        key: key of the resource.
    """

    __slots__ = ("_holder", "_pool", "_released", "key")

    def __init__(self, pool: Pool[K, R], key: K) -> None:
        self.key: K = key
        self._pool = pool
        self._holder: Holder[K, R] | None = None
        self._released = False

    async def acquire(self) -> R:
        """Return the resource. A checkpoint only if it is not open yet.

        Raises:
            PoolClosed, ActorFailed, TooManyRestarts: see `Pool.lease`.
            RuntimeError: this lease was entered before.
        """
        if self._holder is not None:
            raise RuntimeError("a lease is entered once; call `pool.lease` again for another")
        self._holder = self._pool.take(self.key) or await self._pool.wait_for(self.key)
        return self._holder.resource

    def release(self) -> None:
        """Return the lease to the pool. A second call has no effect."""
        if not self._released:
            self._pool.give_back(self._entered)
            self._released = True

    def report_lost(self, error: BaseException | None = None) -> None:
        """Report that the resource is gone, and why: it is leased no more, even before its own actor notices."""
        self._pool.lose(self._entered, error)

    async def __aenter__(self) -> R:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease. Never a checkpoint."""
        self.release()

    @property
    def stale(self) -> bool:
        """True if the next lease would get another resource: this one is lost, or closes after its last lease."""
        return not self._entered.open

    @property
    def lost(self) -> trio.Event:
        """Set when the resource closes while this lease holds it: it died, or the pool closes."""
        return self._entered.lost

    @property
    def error(self) -> BaseException | None:
        """The error that ended the resource; None while it is open, and if it was closed without an error."""
        return self._entered.error

    @property
    def _entered(self) -> Holder[K, R]:
        if self._holder is None:
            raise RuntimeError("this lease has not been entered yet: `async with pool.lease(key) as resource`")
        return self._holder
