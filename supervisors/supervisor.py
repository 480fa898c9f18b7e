"""The supervisor: an actor that starts children, restarts them by OTP's rules, and ends them in order.

    site = Supervisor(
        ChildSpec(name="db", body=database),
        ChildSpec(name="api", body=api),
        strategy="rest_for_one",
    )
    root.spawn(site, name="site")

A `Supervisor` is the body of one actor and the handle to it: `await site.start_child(spec)` adds a child while it runs.
`policy` decides; this module executes the decisions.

**The problem.** The end of a child, a call such as `stop_child`, and a restart whose back-off is over may all be due at
the same time, and each of them awaits: a child that is being stopped takes seconds. Two of them interleaved would
restart a child that is being stopped, or stop the successor of a child that has just crashed.

**What does not work.** Retrying a failed restart in a loop: the supervisor would not see a request to stop until the
loop gives up. Restarting in the task of the ended child: its scope belongs to the incarnation that has ended.

**What this module does.** A lock (`_exclusively`) admits one operation at a time. The body receives `IncarnationEnded`
signals and handles them one by one. A restart that fails is not retried: its crash arrives as another
`IncarnationEnded` and is charged like the first, so a request to stop is seen between two attempts. A restart with
back-off is an entry in `_due`.

Invariants:
- A child is restarted only after its last incarnation has ended. By the strategy, siblings must have ended, too. If one
  of them does not end, the supervisor fails (`DoesNotEnd`): two incarnations never run at the same time.
- Each restart is charged before it is attempted (`Intensity`).
- A child's ref and mail survive a restart. The message it crashed on does not, since it would crash it again.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from typing import Any, final

import msgspec
import trio

from ..protocol.kernel.errors import ActorError, DoesNotEnd, ShuttingDown, TooManyRestarts
from ..protocol.kernel.events import ActorRestarted
from .actor import STOP_WITHIN, Actor, IncarnationEnded, end_incarnations
from .mailbox import BOUND
from .policy import AutoShutdown, Backoff, Intensity, Restart, Strategy, concerned, verdict
from .ref import End, Ref, describe


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Child specification: the child's body, and the effect of its end.

    Attributes:
        name: unique among its siblings.
        body: called as `body(child, *args)` at every start.
        restart: permanent, transient or temporary (see `policy`).
        significant: its own end may end the supervisor (`auto_shutdown`). Not allowed for permanent children.
        wait: start the next child only after this one has called `me.started()`; a crash before that fails the start.
        stop_within: seconds for its clean-up.
        bound: most messages that may wait in its mailbox.
    """

    name: str
    body: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...] = ()
    restart: Restart = "permanent"
    significant: bool = False
    wait: bool = False
    stop_within: float = STOP_WITHIN
    bound: int = BOUND


class _Child(msgspec.Struct, eq=False):
    spec: ChildSpec
    static: int = 0
    actor: Actor | None = None
    attempts: int = 0  # restarts in a row, for the back-off
    held: bool = False  # stopped for a sibling's restart, and about to be started with it
    unwanted: bool = False  # being stopped by `stop_child`


@final
class Supervisor:
    """Supervisor of children by OTP's rules; pass it to `spawn` as the body of an actor.

    Args:
        children: started in this order, stopped one by one in reverse.
        strategy: the children that a restart affects (see `policy`).
        intensity: restarts allowed within `period` seconds. One more makes the supervisor stop its children and fail.
        period: seconds.
        auto_shutdown: whether the end of significant children ends the supervisor.
        backoff: waiting times between restarts of one child.
        max_children: most children that may live at a time.
        rand: source of the back-off's jitter, in [0, 1).
    """

    def __init__(
        self,
        *children: ChildSpec,
        strategy: Strategy = "one_for_one",
        intensity: int = 1,
        period: float = 5.0,
        auto_shutdown: AutoShutdown = "never",
        backoff: Backoff | None = None,
        max_children: int | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._specs = children
        self._strategy: Strategy = strategy
        self._auto: AutoShutdown = auto_shutdown
        self._backoff = backoff or Backoff()
        self._max = max_children
        self._rand = rand
        self._limits = (intensity, period)
        self._intensity = Intensity(intensity, period)
        self._children: dict[str, _Child] = {}
        self._due: list[tuple[float, list[str]]] = []
        self._lock = trio.Lock()
        self._me: Actor | None = None
        names: set[str] = set()
        for spec in children:
            self._check(spec, names)
            names.add(spec.name)

    async def __call__(self, me: Actor) -> None:
        """Body of the actor: start the children, then handle their ends.

        Returns when the end of significant children ends the supervisor (`auto_shutdown`). A request to stop ends it
        like any other actor.

        Raises:
            TooManyRestarts: more than `intensity` restarts within `period` seconds.
            DoesNotEnd: a sibling that a restart affects has not ended within its time.
        """
        self._me = me
        self._intensity = Intensity(*self._limits)
        self._children = {spec.name: _Child(spec, static=place) for place, spec in enumerate(self._specs, 1)}
        self._due = []
        async with self._exclusively():
            for child in list(self._children.values()):
                await self._start(child)
        me.started()
        while True:
            signal = await self._next(me)
            async with self._exclusively():
                if signal is None:
                    await self._start_due()
                elif isinstance(signal, IncarnationEnded) and await self._ended(signal):
                    return

    # --- calls of other tasks -----------------------------------------------------------------------------

    async def start_child(self, spec: ChildSpec) -> Ref:
        """Add a child. It is stopped together with the other added children, before the constructor's children.

        Raises:
            ActorError: the supervisor is not running, is full, or has a child of that name.
            ActorFailed: the child crashed before it was ready (`spec.wait`).
        """
        async with self._exclusively():
            me = self._running()
            self._check(spec, self._children)
            if self._max is not None and me.child_count >= self._max:
                raise ActorError(f"{me.path} has {self._max} children, as many as it may (max_children)")
            child = self._children[spec.name] = _Child(spec)
            try:
                return await self._start(child)
            except BaseException:  # a cancelled start too: no half-started child may stay
                del self._children[spec.name]
                self._forget(child)
                raise

    async def stop_child(self, name: str) -> End:
        """End a child for good, even one that waits for its restart.

        Its spec remains, so that `restart_child` or a sibling's restart can start it again; a temporary child is
        forgotten.

        Raises:
            ActorError: there is no such child, or it is not running.
            DoesNotEnd: it has not ended within its time.
        """
        async with self._exclusively():
            child = self._known(name)
            actor = child.actor
            if actor is None:
                raise ActorError(f"child '{name}' is not running")
            child.unwanted = True  # if this call is cancelled, `_ended` completes it
            self._cancel_due({name})
            await end_incarnations([actor])
            if actor.pending_end is None:
                raise DoesNotEnd(f"{actor.path} does not end; its stack is in the events")
            self._forget(child)
        assert actor.end is not None
        return actor.end

    async def restart_child(self, name: str) -> Ref:
        """Start a child that has ended and whose spec is still known.

        Raises:
            ActorError: the supervisor is not running, has no such child, or the child is running already.
            ActorFailed: the child crashed before it was ready (`spec.wait`).
        """
        async with self._exclusively():
            self._running()
            child = self._known(name)
            if child.actor is not None:
                raise ActorError(f"child '{name}' is already running")
            try:
                return await self._start(child)
            except BaseException:  # a cancelled start too: no half-started child may stay
                self._forget(child)
                raise

    def child(self, name: str) -> Ref | None:
        """Return the ref of a child, also while it waits for its restart; None if it was ended for good.

        Raises:
            ActorError: no child of this name is known.
        """
        actor = self._known(name).actor
        return None if actor is None else actor.ref

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all known children, in start order, running or not."""
        return tuple(self._children)

    # --- restarts -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[None]:
        """Admit one operation at a time. A checkpoint only if it has to wait."""
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _running(self) -> Actor:
        if self._me is None or self._me.state not in ("running", "waiting"):
            raise ShuttingDown("this supervisor is not running")
        return self._me

    async def _next(self, me: Actor) -> Any:
        if not self._due:
            return await me.receive()
        with trio.move_on_at(min(self._due)[0]):
            return await me.receive()
        return None

    async def _start_due(self) -> None:
        if self._due and min(self._due)[0] <= trio.current_time():  # else the child was stopped in the meantime
            due = min(self._due)
            self._due.remove(due)
            await self._start_all(due[1])

    def _cancel_due(self, names: set[str]) -> None:
        """Cancel pending restarts of these children: they are being stopped, or started together with others."""
        rest = [(due, [name for name in waiting if name not in names]) for due, waiting in self._due]
        self._due = [(due, waiting) for due, waiting in rest if waiting]

    async def _ended(self, signal: IncarnationEnded) -> bool:
        """A child ended by itself. True if that ends me as well."""
        actor, end = signal.child, signal.end
        if actor.pending_end is not end:
            return False  # stopped on request, or started again with a sibling
        child = self._child_of(actor)
        if child is None:
            actor.end_for_good()  # its start was abandoned before it ended
            return False
        if child.held:
            return False  # stopped for a sibling's restart
        if child.unwanted:
            self._forget(child)
            return False
        # A supervisor that gave up has reported why. As with OTP's exit reason `shutdown`, that is not a crash.
        crashed = end.reason == "crashed" and not isinstance(end.error, TooManyRestarts)
        decision = verdict(child.spec.restart, crashed=crashed)
        if decision == "restart":
            await self._restart(child, end)
            return False
        self._forget(child)
        others = any(other.spec.significant and other.actor is not None for other in self._children.values())
        return child.spec.significant and (self._auto == "any_significant" or not others)

    async def _restart(self, child: _Child, end: End) -> None:
        assert self._me is not None
        now = trio.current_time()
        if not self._intensity.charge(now):
            cause = end.error
            raise TooManyRestarts(
                f"{self._me.path} gives up: more than {self._limits[0]} restarts within {self._limits[1]:g} s, "
                f"the last of '{child.spec.name}'" + (f" ({describe(cause)})" if cause else "")
            ) from cause
        child.attempts = child.attempts + 1 if len(self._intensity) > 1 else 1
        error = describe(end.error) if end.error is not None else end.reason
        assert child.actor is not None
        child.actor.emit(ActorRestarted(error=error, restarts=len(self._intensity)))
        names = concerned(self._strategy, self._children, child.spec.name)
        self._cancel_due(set(names))
        await self._stop_for_restart(names)
        wait = self._backoff.seconds(child.attempts, self._rand)
        if wait > 0:
            self._due.append((now + wait, names))
        else:
            await self._start_all(names)

    async def _stop_for_restart(self, names: list[str]) -> None:
        """Stop the affected siblings in reverse order. Temporary ones are not started again."""
        for name in reversed(names):
            child = self._children[name]
            if child.actor is None:
                continue
            child.held = True
            await end_incarnations([child.actor])
            if child.actor.pending_end is None:
                raise DoesNotEnd(f"{child.actor.path} does not end, so it can't be started again")
            if child.spec.restart == "temporary":
                self._forget(child)

    async def _start_all(self, names: list[str]) -> None:
        for name in names:
            child = self._children.get(name)
            if child is None or (child.actor is not None and child.actor.pending_end is None):
                continue
            try:
                await self._start(child)
            except ActorError:
                end = None if child.actor is None else child.actor.pending_end
                if end is None or verdict(child.spec.restart, crashed=end.reason == "crashed") == "restart":
                    return  # it crashed before it was ready: its `IncarnationEnded` follows, charged like any crash

    async def _start(self, child: _Child) -> Ref:
        me, spec = self._me, child.spec
        assert me is not None
        child.held = child.unwanted = False
        if child.actor is not None and child.actor.pending_end is not None:
            child.actor.reset()
        else:
            child.actor = me.adopt(
                spec.body,
                spec.args,
                name=spec.name,
                bond="supervised",
                stop_within=spec.stop_within,
                bound=spec.bound,
                static=child.static,
            )
        actor = child.actor
        actor.launch()
        if spec.wait:
            await actor.wait_started()
        return actor.ref

    def _forget(self, child: _Child) -> None:
        """End the child's actor for good. The spec of a temporary child is forgotten."""
        actor, child.actor = child.actor, None
        if actor is not None:
            actor.end_for_good()
        if child.spec.restart == "temporary" and self._children.get(child.spec.name) is child:
            del self._children[child.spec.name]

    def _child_of(self, actor: Actor) -> _Child | None:
        child = self._children.get(actor.name)
        if child is not None and child.actor is actor:
            return child
        # A stuck predecessor still had the name when this child started, so its actor has another name.
        return next((child for child in self._children.values() if child.actor is actor), None)

    def _known(self, name: str) -> _Child:
        child = self._children.get(name)
        if child is None:
            raise ActorError(f"no child '{name}'; there are: {', '.join(self._children) or 'none'}")
        return child

    def _check(self, spec: ChildSpec, names: Container[str]) -> None:
        if spec.name in names:
            raise ActorError(f"a child named '{spec.name}' exists already")
        if spec.significant and (spec.restart == "permanent" or self._auto == "never"):
            raise ActorError(
                f"child '{spec.name}' is significant: that needs auto_shutdown and restart 'transient' or 'temporary'"
            )
