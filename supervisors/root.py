"""The root: the tree's first actor, the nursery all others run in, the signals, and the order of dying.

    async with Root() as root:
        ref = root.spawn(ponger)
        print(await ref.ask(Ping(n=1)))

Two scopes hold it up. The *outer* nursery is the caller's: cancel it, or leave the block, and the root begins to
stop. The *house* inside it is a nursery behind a shield, where all actors run; nothing from outside reaches into it,
so that the tree can be taken down in order. The house always comes down: `begin_stop` sets one deadline for all.

Signals (`signals=True`, main thread only) are caught by handlers of our own, not by trio's receiver, since those
run even while some task keeps the event loop busy:

    first    stop admitting work, interrupt the tree, give every actor its time to clean up
    second   skip what is left of those times (`root.hurry`)
    third    end the process at once; so does the deadline, should the loop itself hang (see `hang_guard`)

Whatever happens, reapers (see `guardian`) end the subprocesses that we can't.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, final

import trio

from ..protocol.kernel.errors import ActorError
from ..protocol.kernel.questions import Question
from .actor import Actor
from .alarms import Alarms
from .bus import Bus
from .escalation import Desk
from .event_loops import Loop
from .hang_guard import HangGuard
from .life import Life
from .mailbox import Mailbox
from .ref import Ref
from .tasks import Workers
from .told import N
from .user_code import failure_of

if TYPE_CHECKING:
    from .census import Pauses, Sent
    from .process import Processes

log = logging.getLogger("callboard.root")
T = TypeVar("T")
Args = TypeVarTuple("Args")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HURRY_WITHIN = 0.3
"""Seconds that remain after the second Ctrl-C: enough to kill and to reap."""
UP_WITHIN = 10.0
"""Seconds for the house to take its first step; it needs none unless the loop itself hangs."""
LOOP_HANGS = 1.0
"""Seconds beyond the deadline after which a signalled process that still runs is ended by the `HangGuard`."""


@final
class Root:
    """One supervision tree.

    Args:
        stop_within: seconds from the beginning of the stop to its end, whatever the tree does.
        signals: own SIGINT, SIGTERM and SIGHUP while the block lasts.
        patient: questions wait for a front end that is not there yet (see `escalation.Desk`).
        on_signal: called with the signal's number and how many there were; must be quick.
        on_hangup: what SIGHUP does instead of stopping (a server reloads).
        hangup_ends: asked at each SIGHUP whether it stops all the same, as SIGTERM does (the terminal is gone); must
            be quick. It runs in the signal handler.
        on_drain: what the first SIGINT or SIGTERM does instead of stopping (a server lets its work end, and then calls
            `begin_stop`); the second one stops, the third is a second. See `draining` as well.
        drain_within: seconds from that first signal to `begin_stop`; a process that takes longer is ended as one whose
            stop takes too long.

    Attributes:
        bus: all events (see `bus`).
        questions: the open questions (see `escalation`).
        mailbox: what actors get as a mailbox from now on.
        pauses: the paused actors, if any (see `census`).
        sent: how many messages each actor has sent, while that is counted (see `census.count_sent`).
        clocks: how many time limits count, by run (see `Actor.time_limit`).
        loop: the event loop that the tree lives in, for other threads; None before the block is entered.
        hurry: set by the second Ctrl-C. Graces end where it is set.
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
        self.stopping = False
        self.deadline = float("inf")
        self.hurry = trio.Event()
        self.signal: int | None = None
        self.loop: Loop | None = None
        self.bus = Bus(self.in_loop)
        self.mailbox = Mailbox
        self.alarms = Alarms(self)
        self.questions = Desk(self, patient=patient)
        self.pauses: Pauses | None = None
        self.sent: Sent | None = None
        self.clocks = Counter[str]()
        self.tasks: dict[trio.lowlevel.Task, Life] = {}
        self.workers = Workers(self)
        self.nursery: trio.Nursery
        self.actor = Actor(self, None, _keep, (), name="", bond="watched", stop_within=0.0)
        self.own_signals = signals
        self._on_signal = on_signal
        self._on_hangup = on_hangup
        self._hangup_ends = hangup_ends
        self._on_drain = on_drain
        self._count = self._drained = 0
        self._shields: set[trio.CancelScope] = set()
        self._shell = trio.CancelScope(shield=True)  # deadline: set by begin_stop
        self._guard = HangGuard()
        self._stop_limit = self._drain_limit = float("inf")  # computed before the handlers are there: see `hang_guard`
        self._token: trio.lowlevel.TrioToken | None = None
        self._processes: Processes | None = None
        self._frame: contextlib.AbstractAsyncContextManager[Root] | None = None

    async def __aenter__(self) -> Root:
        self._frame = self._live()
        return await self._frame.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._frame is not None
        return await self._frame.__aexit__(kind, error, trace)

    # --- work ---------------------------------------------------------------------------------------------

    def spawn(self, body: Callable[[Actor[N], *Args], Awaitable[T]], *args: *Args, **options: Any) -> Ref[N, T]:
        """Start an actor at the top of the tree; see `Actor.spawn`. A linked one's crash ends the root."""
        return self.actor.spawn(body, *args, **options)

    async def start(self, body: Callable[[Actor[N], *Args], Awaitable[T]], *args: *Args, **options: Any) -> Ref[N, T]:
        """As `spawn`, but waits until it is ready; see `Actor.start`."""
        return await self.actor.start(body, *args, **options)

    def pid_of(self, path: str) -> int:
        """Pid of the process that the actor with this path has; 0 if it has none."""
        return self._processes.pids.get(path, 0) if self._processes is not None else 0

    @property
    def processes(self) -> Processes:
        """The subprocesses of this tree, made at first use (see `process`)."""
        if self._processes is None:
            from .process import Processes

            self._processes = Processes(self)
        return self._processes

    def in_loop(self, call: Callable[[*Args], T], *args: *Args) -> T:
        """Return `call(*args)`, called in the tree's event loop. From any thread (see `event_loops.Loop.wait_for`)."""
        if self.loop is None or self.loop.thread == threading.get_ident():
            return call(*args)
        return self.loop.wait_for(call, *args)

    # --- the end ------------------------------------------------------------------------------------------

    def begin_stop(self) -> None:
        """Admit no new work and interrupt the tree; returns at once. From any thread."""
        if self.loop is not None and self.loop.thread != threading.get_ident():
            self.loop.post(self.begin_stop)
        elif not self.stopping:
            self.stopping = True
            if self.signal is not None:
                self._end_if_it_hangs()
            self._tighten(trio.current_time() + self.stop_within)
            self.actor.interrupt()

    async def stop(self) -> None:
        """Stop, and wait until nothing is left or the deadline has passed.

        An actor of the tree that calls this does not come back: its own end is part of what is waited for.
        """
        self.begin_stop()
        if trio.lowlevel.current_task() in self.tasks:
            await trio.sleep_forever()  # it is being interrupted
        with self.shield(self.stop_within):
            await self.actor.wait_over()

    def shield(self, seconds: float) -> contextlib.AbstractContextManager[trio.CancelScope]:
        """A shield for clean-up that has to await: bounded by `seconds`, the root's deadline, and hurry."""
        return _Shield(self, self._shields, seconds)

    @contextlib.contextmanager
    def draining(self, on_drain: Callable[[], None], within: float) -> Iterator[None]:
        """Have the first signal that would stop call this instead, while the block lasts.

        Args:
            on_drain: as that of the root.
            within: seconds, as `drain_within`.
        """
        before = self._on_drain, self._drain_limit
        self._drain_limit = within + self._stop_limit
        self._on_drain = on_drain
        try:
            yield
        finally:
            self._on_drain, self._drain_limit = before

    # --- looking ------------------------------------------------------------------------------------------

    def stack_of(self, actor: Life) -> str:
        """Where the actor's task stands, innermost call last."""
        for task, owner in self.tasks.items():
            if owner is actor:
                frames = [(frame, line) for frame, line in task.iter_await_frames()]
                return "".join(traceback.StackSummary.extract(iter(frames)).format())
        return ""

    # --- inside -------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncIterator[Root]:
        self._token = trio.lowlevel.current_trio_token()
        self.loop = Loop()
        error: BaseException | None = None
        with self._signal_handlers():
            try:
                async with trio.open_nursery() as outer:
                    try:
                        # In a scope that is cancelled already, `start` would wait for the house's end. It waits for
                        # nothing else: the house is up after its first step.
                        with trio.move_on_after(UP_WITHIN, shield=True):
                            await outer.start(self._house, outer)
                        yield self
                    finally:
                        await self.stop()
                        await self.loop.close()
            except BaseExceptionGroup as group:
                if len(group.exceptions) > 1:
                    raise
                error = group.exceptions[0]
        if error is not None:
            raise error  # not inside the handler, which would rewrite its cause
        end = self.actor.end
        if end is not None and end.error is not None:
            raise end.error

    async def _house(self, outer: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._shell:
                async with trio.open_nursery() as self.nursery:
                    self.actor.launch()
                    task_status.started()
                    await self.actor.wait_over()
                    if self._processes is not None:
                        with self.shield(self.stop_within):
                            await self._processes.close()
                    self.nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only(group) from None
        if self._processes is not None:
            self._processes.abandon()  # harmless after `close`; what that did not get to is the reapers' now
        if self.actor.end is not None and self.actor.end.error is not None:
            outer.cancel_scope.cancel()  # as a nursery does when a child crashes
        elif self.signal is not None:
            outer.cancel_scope.deadline = self.deadline  # the block gets what is left to tell its story

    def _tighten(self, deadline: float) -> None:
        self.deadline = min(self.deadline, deadline)
        self._shell.deadline = self.deadline
        for shield in self._shields:
            shield.deadline = min(shield.deadline, self.deadline)

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        if not self.own_signals:
            yield
            return
        if threading.current_thread() is not threading.main_thread():
            raise ActorError("Root(signals=True) works in the main thread only, where Python delivers signals")
        # Who started us with SIGHUP ignored (nohup) wants us to outlive the terminal; a reload does no harm to that.
        deaf = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and self._on_hangup is None
        self._stop_limit = self.stop_within + LOOP_HANGS
        self._drain_limit = self.drain_within + self._stop_limit
        self._guard.start()
        before = {
            number: signal.signal(number, self._caught) for number in SIGNALS if not (number == signal.SIGHUP and deaf)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._guard.stop()

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        """Runs in the main thread between two bytecodes, wherever the program is, perhaps without any memory left.

        So the guard comes before everything that may fail.
        """
        if number == signal.SIGHUP == self.signal:
            return  # a terminal that is closed sends it more than once: by the kernel, and by its shell
        ends = self._hangup_ends
        if number == signal.SIGHUP and self._on_hangup is not None and not (ends is not None and ends()):
            self._soon(_call_back, self._on_hangup)
            return
        if self._on_drain is not None and self.signal is None:
            self.signal = number
            self._guard.end_within(self._drain_limit, 128 + number)
            self._drained = 1
            self._soon(self._drain, self._on_drain, number)
            return
        self._count += 1
        if self.signal is None:
            self.signal = number
        self._end_if_it_hangs()
        if self._count >= 3:
            os._exit(128 + self.signal)
        self._soon(self._react, number, self._count)

    def _drain(self, call: Callable[[], None], number: int) -> None:
        if self._on_signal is not None:
            _call_back(self._on_signal, number, 1)
        _call_back(call)

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        """Have the event loop call this; without memory for that, it is the guard that ends the process."""
        assert self._token is not None
        with contextlib.suppress(trio.RunFinishedError, MemoryError):
            self._token.run_sync_soon(call, *args)

    def _react(self, number: int, count: int) -> None:
        if self._on_signal is not None:
            _call_back(self._on_signal, number, self._drained + count)
        self.begin_stop()
        if count > 1:
            self.hurry.set()
            self._tighten(trio.current_time() + HURRY_WITHIN)

    def _end_if_it_hangs(self) -> None:
        """A signal has asked for the stop: from now on it has its time, and no more."""
        assert self.signal is not None
        self._guard.end_within(self._stop_limit, 128 + self.signal)


class _Shield:
    """See `Root.shield`. A class, since a generator would double its price, and ten thousand may clean up at once."""

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


def _call_back(call: Callable[..., object], *args: object) -> None:
    """Call back the owner of a root in the event loop, which an exception would end without stopping anything."""
    try:
        call(*args)
    except BaseException as error:  # reported; the signal has its effect all the same
        failure_of(error)
        log.exception("a callback of the root raised")


async def _keep(me: Actor) -> None:
    """Body of `/`, until it is interrupted: its mail are the questions of all actors (see `escalation`)."""
    me.started()
    async for message in me:
        if isinstance(message, Question):
            me.root.questions.decide(me.take_request())
        else:
            me.dead_letter(message, "the root takes questions only")


def _only(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
