"""The pool: costly things shared by key (a model server, an index, a connection), each opened once and kept warm.

    @asynccontextmanager
    async def engine(me: Actor, key: str) -> AsyncIterator[Engine]:
        process = await start_process(me, ["engine", key])
        yield Engine(process)

    pool = Pool(root, engine, name="engines", idle_ttl=300)
    async with pool.lease("small") as engine:
        ...

**Who owns what.** Every resource is owned by an actor of its own, a child of the pool's: that actor's task enters the
context manager and leaves it, and no other task does, so no cancel scope is left from another task. What
`open` spawns with `me.spawn` dies with the resource, and the crash of a linked child is the end of the resource.

**One start per key.** The first lease of a key starts its holder; later leases wait for that
same start. It fails for all who wait, and the next lease tries again. It goes on as long as one of them still waits.
A new holder of a key begins when the old one has ended, so two never fight over a port or a lock file.

**Warm leases touch no mailbox.** Leasing an open resource counts up, returning counts down, in the caller's own
task and without a checkpoint. One reaper looks after all that is idle. There is a line for each `idle_ttl` in use,
where returned last stands last, so its head is due first, and the reaper's one deadline is moved only when it would be
too late.

**Restarts.** A pool supervises its resources and starts them on demand. An end that was not asked for, and a start that
failed, are crashes: with a `breaker` (see `policy`), that says when a lease may start the resource again.

**Leases that are kept.** A lease that is kept longer than it is used (so that the resource stays as it is) can
hold up a reload, and with `max_open` leases of other keys that need the room. `lease.stale` says that it is to
go, and `make_room` asks for some to be returned.
"""

from __future__ import annotations

import contextvars
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar, final

import msgspec
import trio

from ..protocol.kernel.errors import ActorError, ActorFailed, PoolClosed, ShuttingDown, TooManyRestarts
from ..protocol.kernel.events import ResourceClosed, ResourceOpened
from .actor import Actor
from .lease import Holder, Idle, Lease, PoolStatistics, passes
from .life import STOP_WITHIN
from .policy import Breaker
from .ref import End, describe
from .root import Root
from .tally import Tally

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

Opener = Callable[[Actor, K], AbstractAsyncContextManager[R]]
"""Called in the holder's task as `open(me, key)`; entered and left there. What it yields is what is leased."""

_CHECK = object()


@final
class Pool(Generic[K, R]):
    """See the module.

    Args:
        owner: the pool lives and ends as a child of this.
        open: opens one resource.
        name: name of the pool's actor.
        idle_ttl: seconds that an unused resource stays open, or what tells them by key. With `inf` it is kept for good,
            beyond `max_idle` as well; only those who wait for room can have it closed.
        max_idle: how many unused ones stay open; the least recently used goes first.
        max_open: how many may be open at all. Beyond it, an unused one is closed to make room, else the lease
            waits, first come first served.
        make_room: called when a lease has to wait for room although nothing is unused; it may return leases.
        health: `await health(resource)` is asked now and then about unused resources; False, an exception or no
            answer within `health_interval` closes the resource.
        health_interval: seconds between two rounds of checks.
        stop_within: seconds a resource has to close.
        breaker: of a key, if its starts are to be bounded; tell it `worked` when the resource has proved itself.
        on_start: gets the actor, the key and the seconds that the breaker has it wait, before each start.

    Attributes:
        waited: how long those had to wait who did.
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
        self.closed = False
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
        self.waited = Tally()
        self._count = PoolStatistics()
        self._holders: dict[K, Holder[K, R]] = {}  # starting or open, at most one per key
        self._leaving: dict[K, list[Holder[K, R]]] = {}  # no longer leased out, not yet ended
        self._idle: Idle[K, R] = Idle()
        self._slots = 0  # taken, of max_open
        self._queue: deque[Holder[K, R]] = deque()  # starts that wait for a slot
        self._freeing = 0  # slots whose holders are about to end
        self._alarm = math.inf  # when the reaper looks next
        self._next_round = math.inf  # of health checks
        self._nap: trio.CancelScope | None = None
        # A resource outlives its first lessee, so it is opened in the pool's context, not in that one's.
        self._context = contextvars.copy_context()
        parent = owner.actor if isinstance(owner, Root) else owner
        self._me = parent.adopt(self._keep, (), name=name, bond="linked")
        self._me.launch()

    # --- using it -----------------------------------------------------------------------------------------

    def lease(self, key: K) -> Lease[K, R]:
        """`async with pool.lease(key) as resource`: share the key's resource, opening it if need be.

        Raises (on entering):
            PoolClosed: the pool is closing.
            ActorFailed: the start failed; `__cause__` is the error of `open`.
            TooManyRestarts: the breaker allows no start now; the text lacks a subject.
        """
        return Lease(self, key)

    async def warm(self, key: K) -> None:
        """Have the key's resource open, so that the next lease is quick. Raises as a lease does."""
        async with self.lease(key):
            pass

    async def reload(self, key: K | None = None) -> None:
        """Open the key's resource anew (without a key: every open one), and wait until that is done.

        Those who lease the old one keep it until they are done; it is closed after the last, and the new one is
        opened after that. Leases made meanwhile wait for the new one. So don't call it while leasing the key.

        Raises:
            ActorFailed: a new start failed; several that failed come as an `ExceptionGroup`.
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
        """Give out no more leases of the key's open resource: it closes when its leases are returned."""
        holder = self._holders.get(key)
        if holder is not None and holder.open:
            self._retire(holder, "reload")

    async def close(self) -> None:
        """Close everything, all at the same time, also what is leased (its lessees see `lost`)."""
        self.closed = True
        await self._me.ref.stop()

    @property
    def statistics(self) -> PoolStatistics:
        """The counters as they are now."""
        return msgspec.structs.replace(self._count, idle=len(self._idle))

    @property
    def crowded(self) -> bool:
        """Whether a lease waits for room."""
        return len(self._queue) > self._freeing

    def leases(self, key: K) -> int:
        """How many use the key's resource; 0 also if it isn't open."""
        return self._holders[key].leases if key in self._holders else 0

    def __contains__(self, key: K) -> bool:
        """Whether the key's resource is open, so that a lease would not wait."""
        holder = self._holders.get(key)
        return holder is not None and holder.open

    # --- a lease's two ends (called by Lease) -------------------------------------------------------------

    def take(self, key: K) -> Holder[K, R] | None:
        """Lease the key's resource if it is open."""
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
        """Lease the key's resource when its start is done; start it if needed."""
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
            if holder.waiting == 0:  # between my cancellation and now it was opened, and counted for me
                self.give_back(holder)
                raise
            holder.waiting -= 1
            if holder.waiting == 0:  # no lease is left that wants it
                self._retire(holder, "unwanted")
            raise
        finally:
            waited = trio.current_time() - since
            self._count.seconds_waited += waited
            self.waited.add(waited)
        if holder.leases:  # counted for me by `_opened`
            return holder
        if self.closed:
            raise PoolClosed(f"pool {self._me.path} was closed during the start")
        why = describe(holder.error) if holder.error else "it was stopped"
        raise ActorFailed(f"{holder.actor.path} could not be opened: {why}") from holder.error

    def give_back(self, holder: Holder[K, R]) -> None:
        """One lessee is done."""
        holder.leases -= 1
        if holder.leases:
            return
        self._count.leased -= 1
        if holder.open:
            self._rest(holder)
        else:
            self._dismiss(holder)  # it was reloaded, or is gone already

    def lose(self, holder: Holder[K, R], error: BaseException | None) -> None:
        """A lessee knows before us that it is gone."""
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
        actor.on_end(lambda end: self._gone(holder, end))
        self._context.copy().run(actor.launch)
        if key not in self._leaving:
            self._line_up(holder)
        return holder

    def _line_up(self, holder: Holder[K, R]) -> None:
        """Give it a slot now, or its place in the line for one."""
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
        """Body of a holder: open, keep until told to stop, close."""
        for old in tuple(self._leaving.get(holder.key, ())):
            await old.actor.ref.wait()
        if not holder.lined_up and not holder.retired:  # else no lease wants it any more, and we are about to end
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
                    async for _ in me:
                        if holder.leases:
                            continue
                        if not await passes(self._health, resource, self._health_interval):
                            self._count.health_failed += 1
                            self._retire(holder, "health")
                            return
                        self._count.health_ok += 1
                finally:
                    self._lose(holder)
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

    # --- closing ------------------------------------------------------------------------------------------

    def _rest(self, holder: Holder[K, R]) -> None:
        """The last lease is returned: keep it for a while, unless its slot is wanted."""
        if self.crowded:
            self._evict(holder, "room")
            return
        now = trio.current_time()
        holder.since = now
        self._idle.add(holder)
        if self._idle.passing > self._max_idle:
            self._evict_oldest("lru")
        if self._health is not None and self._next_round == math.inf:
            self._next_round = now + self._health_interval
        due = min(now + holder.ttl, self._next_round)
        if due < self._alarm:
            self._alarm = due
            if self._nap is not None:
                self._nap.deadline = due

    def _evict_oldest(self, why: str) -> bool:
        """Close the idle one that was used least recently, rather one that isn't kept for good."""
        oldest = self._idle.oldest()
        if oldest is not None:
            self._evict(oldest, why)
        return oldest is not None

    def _evict(self, holder: Holder[K, R], why: str) -> None:
        self._count.evicted_idle += why == "idle"
        self._count.evicted_lru += why != "idle"
        self._retire(holder, why)

    def _retire(self, holder: Holder[K, R], why: str) -> None:
        """Lease it out no more; it closes with its last lease."""
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
        self._free(holder)
        if holder.settled.is_set():
            holder.actor.request_stop()
        else:
            holder.actor.interrupt()  # in the middle of its start, where it reads no mail

    def _free(self, holder: Holder[K, R]) -> None:
        """Its slot will soon be free, so nothing else need be closed for waiting leases."""
        if holder.slot and not holder.freeing:
            holder.freeing = True
            self._freeing += 1

    def _lose(self, holder: Holder[K, R]) -> None:
        """From here on the resource is closed, in use or not."""
        if not holder.retired:
            if not self.closed:
                self._count.lost += 1
            self._retire(holder, "closed" if self.closed else "lost")
        self._free(holder)
        holder.lost.set()

    def _gone(self, holder: Holder[K, R], end: End) -> None:
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

    async def _keep(self, me: Actor) -> None:
        """Body of the pool's actor: close what is idle for too long, check the health of the rest."""
        try:
            while True:
                with trio.CancelScope(deadline=self._alarm) as self._nap:
                    await me.receive()
                self._look_round(trio.current_time())
        finally:
            self.closed = True

    def _look_round(self, now: float) -> None:
        for holder in self._idle.due(now):
            self._evict(holder, "idle")
        if now >= self._next_round:
            for holder in self._idle:
                if not holder.actor.mailbox:
                    holder.actor.mailbox.put_nowait(_CHECK)
            self._next_round = now + self._health_interval if self._idle else math.inf
        self._alarm = min(self._idle.next_due(), self._next_round)
