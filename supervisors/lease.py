"""A lease: one use of a pooled resource; and the holder: what the pool knows of that resource (see `pool`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

import trio

from ..protocol.kernel.errors import ActorFailed
from ..protocol.kernel.events import ActorRestarted
from .policy import Breaker
from .ref import describe

if TYPE_CHECKING:
    from .actor import Actor

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Lender(Protocol[K, R]):
    """A pool, as its leases know it."""

    def take(self, key: K) -> Holder[K, R] | None:
        """Lease the key's resource if it is open."""

    async def wait_for(self, key: K) -> Holder[K, R]:
        """Lease the key's resource when its start is done."""

    def give_back(self, holder: Holder[K, R]) -> None:
        """A lease is over."""

    def lose(self, holder: Holder[K, R], error: BaseException | None) -> None:
        """Its resource is gone."""


@final
class Lease(Generic[K, R]):
    """One use of a resource: `async with lease as resource`. Entered once.

    A use that is no block: `resource = await lease.acquire()`, and later `lease.release()`, in whatever task.

    Attributes:
        key: what it is a lease of.
    """

    __slots__ = ("_holder", "_pool", "_released", "key")

    def __init__(self, pool: Lender[K, R], key: K) -> None:
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


class Holder(Generic[K, R]):
    """What the pool knows of one resource and of the actor that owns it."""

    __slots__ = (
        "actor", "breaker", "error", "freeing", "key", "leases", "lined_up", "lost", "open", "resource", "retired",
        "settled", "since", "slot", "ttl", "turn", "waiting",
    )  # fmt: skip

    resource: R
    actor: Actor

    def __init__(self, key: K, ttl: float) -> None:
        self.key = key
        self.ttl = ttl
        self.error: BaseException | None = None
        self.breaker: Breaker | None = None  # once it has allowed the start
        self.open = False  # may be leased out
        self.retired = ""  # why it may not, any more
        self.leases = 0
        self.waiting = 0  # leases that wait for the start
        self.settled = trio.Event()  # the start is done, or failed
        self.lost = trio.Event()
        self.since = 0.0  # idle since
        self.lined_up = self.slot = self.freeing = False
        self.turn = trio.Event()  # set with its slot

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
