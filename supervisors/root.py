"""The root: the first actor of a supervision tree, the nursery of all others, and the order in which the tree ends.

    async with Root() as root:
        ref = root.spawn(ponger)
        print(await ref.ask(Ping(n=1)))

**Two nested scopes.** The *outer* nursery belongs to the caller: cancelling it, or leaving the block, makes the root
begin to stop. Inside it, `_run_tree` opens the *tree's* nursery behind a shield, where all actors run. No cancellation
from outside reaches it, so the tree can be ended in order: admit nothing new, interrupt, wait, end the subprocesses.

A shield without a deadline would be a hang. `begin_stop` sets one deadline for everything: the shield of the tree and
every shield of a clean-up (`shield`) end by then. With `signals=True` the second Ctrl-C shortens it (see `signals`).
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, final

import trio

from ..protocol.kernel.questions import Question
from .actor import Actor
from .bus import Bus
from .escalation import OpenQuestions
from .event_loops import Loop
from .mailbox import Mailbox, N
from .ref import Ref
from .scheduler import Alarms, TaskPool
from .signals import SignalHandlers

if TYPE_CHECKING:
    from .guardian_link import Processes
    from .introspection import Pauses, SentCounts

T = TypeVar("T")
Args = TypeVarTuple("Args")

UP_WITHIN = 10.0
"""Seconds for the tree's nursery to open. It needs one step of the event loop, so only a hanging loop takes longer."""


@final
class Root:
    """Root of a supervision tree.

    Args:
        stop_within: seconds from the beginning of the stop to its end, whatever the actors do.
        signals: handle SIGINT, SIGTERM and SIGHUP while the block lasts (main thread only; see `signals`).
        patient: questions wait for a front end that is not attached yet (see `escalation.OpenQuestions`).
        on_signal: called with the signal's number and the number of signals so far; must be quick.
        on_hangup: called at SIGHUP instead of stopping (a server reloads).
        hangup_ends: called at each SIGHUP; True makes it stop the root all the same, as SIGTERM does (the terminal is
            gone). It runs in the signal handler and must be quick.
        on_drain: called at the first SIGINT or SIGTERM instead of stopping (a server lets its work end, and then calls
            `begin_stop`). The second signal then stops, the third counts as a second. See `draining` as well.
        drain_within: seconds from that first signal to `begin_stop`; a process that takes longer is ended as one whose
            stop takes too long.

    Attributes:
        bus: all events (see `bus`).
        questions: the open questions (see `escalation`).
        mailbox: class of the mailboxes of future actors.
        pauses: the paused actors; None if there are none (see `introspection`).
        sent: number of messages that each actor has sent, while that is counted (see `introspection.count_sent`).
        clocks: number of time limits that count at the moment, by run (see `Actor.time_limit`).
        tasks: the actor that each task runs at the moment.
        workers: the tasks that run the actors (see `scheduler`).
        loop: the event loop of the tree, for other threads; None before the block is entered.
        hurry: set by the second Ctrl-C. Grace periods end when it is set.
        signal: the first signal that made the root stop, or None.
    """

    def __init__(
        self,
        *,
        stop_within: float = 3.0,
        signals: bool = False,
        patient: bool = False,
        on_signal: Callable[[int, int], None] | None = None,
        on_hangup: Callable[[], None] | None = None,
        hangup_ends: Callable[[], bool] | None = None,
        on_drain: Callable[[], None] | None = None,
        drain_within: float = float("inf"),
    ) -> None:
        self.stop_within = stop_within
        self.drain_within = drain_within
        self.stopping: bool = False
        self.deadline: float = float("inf")
        self.hurry: trio.Event = trio.Event()
        self.signal: int | None = None
        self.loop: Loop | None = None
        self.bus: Bus = Bus(self.in_loop)
        self.mailbox = Mailbox
        self.alarms: Alarms = Alarms(self)
        self.questions: OpenQuestions = OpenQuestions(self, patient=patient)
        self.pauses: Pauses | None = None
        self.sent: SentCounts | None = None
        self.clocks: Counter[str] = Counter[str]()
        self.tasks: dict[trio.lowlevel.Task, Actor] = {}
        self.workers: TaskPool = TaskPool(self)
        self.nursery: trio.Nursery
        self.actor: Actor[Any] = Actor(self, None, _answer_questions, (), name="", bond="watched", stop_within=0.0)
        self.own_signals = signals
        self._handlers = SignalHandlers(
            self,
            on_signal=on_signal,
            on_hangup=on_hangup,
            hangup_ends=hangup_ends,
            on_drain=on_drain,
        )
        self._shields: set[trio.CancelScope] = set()
        self._tree_scope = trio.CancelScope(shield=True)  # `begin_stop` sets its deadline
        self._processes: Processes | None = None
        self._block: contextlib.AbstractAsyncContextManager[Root] | None = None

    async def __aenter__(self) -> Root:
        self._block = self._live()
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return await self._block.__aexit__(kind, error, trace)

    # --- actors, processes, threads -------------------------------------------------------------------------

    def spawn(self, body: Callable[[Actor[N], *Args], Awaitable[T]], *args: *Args, **options: Any) -> Ref[N, T]:
        """Start an actor at the top of the tree; see `Actor.spawn`. A linked one's crash ends the root."""
        return self.actor.spawn(body, *args, **options)

    async def start(self, body: Callable[[Actor[N], *Args], Awaitable[T]], *args: *Args, **options: Any) -> Ref[N, T]:
        """Start an actor at the top of the tree and wait until it is ready; see `Actor.start`."""
        return await self.actor.start(body, *args, **options)

    @property
    def processes(self) -> Processes:
        """The subprocesses of this tree, created at first use (see `process`)."""
        if self._processes is None:
            from .guardian_link import Processes

            self._processes = Processes(self)
        return self._processes

    def pid_of(self, path: str) -> int:
        """Return the pid of the subprocess that the actor with this path runs; 0 if it runs none."""
        return self._processes.pids.get(path, 0) if self._processes is not None else 0

    def in_loop(self, call: Callable[[*Args], T], *args: *Args) -> T:
        """Return `call(*args)`, called in the tree's event loop. From any thread (see `event_loops.Loop.wait_for`)."""
        if self.loop is None or self.loop.thread == threading.get_ident():
            return call(*args)
        return self.loop.wait_for(call, *args)

    def stack_of(self, actor: Actor) -> str:
        """Return the stack of the actor's task, innermost call last; empty if it has no task."""
        for task, owner in self.tasks.items():
            if owner is actor:
                frames = [(frame, line) for frame, line in task.iter_await_frames()]
                return "".join(traceback.StackSummary.extract(iter(frames)).format())
        return ""

    # --- the end --------------------------------------------------------------------------------------------

    def begin_stop(self) -> None:
        """Admit no new work and interrupt the tree; returns at once. From any thread."""
        if self.loop is not None and self.loop.thread != threading.get_ident():
            self.loop.post(self.begin_stop)
        elif not self.stopping:
            self.stopping = True
            if self.signal is not None:
                self._handlers.limit_stop()
            self.tighten(trio.current_time() + self.stop_within)
            self.actor.interrupt()

    async def stop(self) -> None:
        """Stop, and wait until the tree has ended or the deadline has passed.

        For an actor of the tree this call does not return, because the call also waits for the end of that actor.
        """
        self.begin_stop()
        if trio.lowlevel.current_task() in self.tasks:
            await trio.sleep_forever()  # it is being interrupted
        with self.shield(self.stop_within):
            await self.actor.wait_over()

    def tighten(self, deadline: float) -> None:
        """End the tree, and every shield in it, at `deadline` if that is earlier than before."""
        self.deadline = min(self.deadline, deadline)
        self._tree_scope.deadline = self.deadline
        for shield in self._shields:
            shield.deadline = min(shield.deadline, self.deadline)

    def shield(self, seconds: float) -> contextlib.AbstractContextManager[trio.CancelScope]:
        """Return a shield for a clean-up that has to await, bounded by `seconds`, the root's deadline, and hurry."""
        return _Shield(self, self._shields, seconds)

    def draining(self, on_drain: Callable[[], None], within: float) -> contextlib.AbstractContextManager[None]:
        """Call `on_drain` at the first signal that would stop the root, while the block lasts.

        Args:
            on_drain: as the root's own.
            within: seconds, as `drain_within`.
        """
        return self._handlers.draining(on_drain, within)

    # --- the block ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncIterator[Root]:
        self.loop = Loop()
        error: BaseException | None = None
        # Around the outer nursery: a Ctrl-C while the tree ends must still be counted.
        with self._handlers.installed() if self.own_signals else contextlib.nullcontext():
            try:
                async with trio.open_nursery() as outer:
                    try:
                        # Shielded: in a scope that is cancelled already, `start` would cancel the tree and wait for its
                        # end. It waits for one step of the loop only.
                        with trio.move_on_after(UP_WITHIN, shield=True):
                            await outer.start(self._run_tree, outer)
                        yield self
                    finally:
                        await self.stop()
                        await self.loop.close()
            except BaseExceptionGroup as group:
                if len(group.exceptions) > 1:
                    raise
                error = group.exceptions[0]
        if error is not None:
            raise error  # outside of the `except` block, which would rewrite its cause
        end = self.actor.end
        if end is not None and end.error is not None:
            raise end.error

    async def _run_tree(self, outer: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._tree_scope:
                async with trio.open_nursery() as self.nursery:
                    self.actor.launch()
                    task_status.started()
                    await self.actor.wait_over()
                    # After the actors: their clean-up may still talk to their processes.
                    if self._processes is not None:
                        with self.shield(self.stop_within):
                            await self._processes.close()
                    self.nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            single: BaseException = group
            while isinstance(single, BaseExceptionGroup) and len(single.exceptions) == 1:
                single = single.exceptions[0]
            raise single from None
        if self._processes is not None:
            self._processes.abandon()  # no effect after `close`; the reapers end what `close` did not get to
        if self.actor.end is not None and self.actor.end.error is not None:
            outer.cancel_scope.cancel()  # as a nursery does when a child crashes
        elif self.signal is not None:
            outer.cancel_scope.deadline = self.deadline  # the block has the remaining time to report what happened


class _Shield:
    """Shield of `Root.shield`. A class: a generator would cost twice as much, and 10,000 may clean up at once."""

    __slots__ = ("_all", "_root", "_scope", "_seconds")

    def __init__(self, root: Root, all: set[trio.CancelScope], seconds: float) -> None:
        self._root = root
        self._all = all
        self._seconds = seconds
        self._scope: trio.CancelScope

    def __enter__(self) -> trio.CancelScope:
        deadline = min(trio.current_time() + self._seconds, self._root.deadline)
        scope = self._scope = trio.CancelScope(shield=True, deadline=deadline)
        self._all.add(scope)
        return scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._all.discard(self._scope)
        return self._scope.__exit__(kind, error, trace)


async def _answer_questions(me: Actor) -> None:
    """Body of the root's own actor, until it is interrupted: its mail is the questions of all actors (`escalation`)."""
    me.started()
    async for message in me:
        if isinstance(message, Question):
            me.root.questions.decide(me.take_request())
        else:
            me.dead_letter(message, "the root actor accepts only questions")
