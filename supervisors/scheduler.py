"""Shared tasks for actors, and one timer queue for their deadlines.

trio's own tools cost as much as the work of a short actor: a task per actor, a cancel scope per request. This module
replaces both by one pool of tasks and one sleeping task per root.

**Tasks** (`TaskPool`). Starting and ending a task costs trio as much as everything else in the life of a short actor,
and a cancel scope costs half of that. So a task whose actor has ended waits for the next actor, up to `MAX_IDLE` tasks
per root. It runs actors in one scope until one of them is interrupted; then it leaves that scope and opens another. A
scope belongs to one actor at a time (`Actor.enter`, `Actor.leave`), so an interruption cannot reach the actor before or
after.

Waking a task costs a turn of trio's loop, a quarter of the cost of a short actor. So actors that are launched in a row
(`run_soon`: the nodes of a graph, the tool calls of a reply) wait in a queue, and a task whose actor has ended takes
the next one at once, up to `IN_A_ROW` times. An actor that waits for something blocks its task. So a task that is about
to run an actor first wakes another task for the rest of the queue, and two if the task that woke it is itself blocked.
1,000 actors that all wait have a task each after ten turns of the loop; 1,000 that never wait need a dozen tasks.

Invariant: an actor sees the context variables of its own start, as in a task of its own.

**Deadlines** (`Alarms`). A cancel scope costs about as much as the request that it limits, and nearly all requests are
answered long before. So a limit is an entry in a heap, and one task sleeps until the first entry is due. Entries of
answered requests and cancelled timers stay in the heap until they are due, or until there are so many that removing
them costs little per entry.
"""

from __future__ import annotations

import contextvars
import copy
import heapq
import itertools
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

import outcome
import trio

from ..protocol.kernel.errors import EndOfMail

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .mailbox import Mailbox

Reason = Literal["normal", "stopped", "cancelled", "crashed"]
"""Reason why an actor's body ended; see `ref.End`."""

MAX_IDLE = 64
"""Tasks without an actor that a root keeps."""

IN_A_ROW = 16
"""Actors that pooled tasks run one after another before other tasks get a turn."""

COMPACT_AT = 1_000
"""Entries of the timer queue below which entries of answered requests are never removed early."""


class Runnable(Protocol):
    """An actor as the task pool sees it; `Actor` documents each method."""

    name: str
    crashed_with: BaseException | None

    @property
    def end(self) -> object | None: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def has_children(self) -> bool: ...
    def enter(self, scope: trio.CancelScope) -> Awaitable[Any]: ...
    def leave(self) -> bool: ...
    async def end_children(self) -> None: ...
    def finish(self, reason: Reason, value: Any, error: BaseException | None, *, final: bool = False) -> None: ...


class TaskOwner(Protocol):
    """A root as this module sees it.

    Attributes:
        nursery: runs the pooled tasks and the task that sleeps for the timer queue.
        tasks: the actor that each task runs at the moment.
    """

    nursery: trio.Nursery
    tasks: dict[trio.lowlevel.Task, Any]


class TaskPool:
    """The tasks that run the actors of one root."""

    def __init__(self, root: TaskOwner) -> None:
        self.idle: list[trio.lowlevel.Task] = []
        self._root = root
        self._queue: deque[tuple[Runnable, contextvars.Context]] = deque()
        self._coming = 0  # tasks that are awake and look at `_queue` before they do anything else
        self._left = IN_A_ROW
        self._waker: Runnable | None = None  # the actor that the last task which woke another was about to run

    def run(self, actor: Runnable, context: contextvars.Context | None) -> None:
        """Run the actor's body in a task that it need not wait for; `context` defaults to the caller's."""
        if self.idle:
            self._wake(context or contextvars.copy_context(), actor)
        elif context is None:
            self._root.nursery.start_soon(self._work, actor, name=actor.name)
        else:
            context.run(partial(self._root.nursery.start_soon, self._work, actor, name=actor.name))

    def run_soon(self, actor: Runnable, context: contextvars.Context) -> None:
        """Queue the actor; the next free task runs its body."""
        self._queue.append((actor, context))
        if not self._coming:
            self._call()

    def _call(self) -> None:
        """Make one more task look at the queue."""
        self._coming += 1
        context = self._queue[0][1].copy()
        if self.idle:
            self._wake(context, None)
        else:
            context.run(partial(self._root.nursery.start_soon, self._work, None, name="worker"))

    def _wake(self, context: contextvars.Context, actor: Runnable | None) -> None:
        task = self.idle.pop()
        task.context = context
        trio.lowlevel.reschedule(task, outcome.Value(actor))

    async def _work(self, actor: Runnable | None) -> None:
        """Body of a pooled task: run `actor` first, or without one the next of the queue."""
        running, task = self._root.tasks, trio.lowlevel.current_task()
        if actor is None:
            actor = await self._take(task, called=True)
        while actor is not None:
            value: Any = None
            error: BaseException | None = None
            reason: Reason = "stopped"
            scope = trio.CancelScope()
            try:
                try:
                    with scope:
                        while actor is not None:
                            running[task] = actor
                            value = await actor.enter(scope)
                            reason = "normal"
                            if not actor.leave():
                                if actor.stopping:  # the scope may be cancelled: the next actor must not enter it
                                    break
                                await actor.end_children()
                            del running[task]
                            self._coming += 1
                            actor.finish("normal", value, None)
                            reason, value = "stopped", None
                            actor = self._take_at_once(task)  # None: an idle task keeps no actor alive
                            if actor is None:
                                actor = await self._take(task)
                except EndOfMail:
                    pass
                except Exception as crashed:  # noqa: BLE001 - a crash is data here: it becomes the actor's end
                    error = _without(EndOfMail, crashed)
                if actor is None:
                    return
                actor.leave()
                if actor.has_children:
                    await actor.end_children()
            except BaseException as fatal:  # KeyboardInterrupt, SystemExit, or the root's hard deadline: raised again
                if actor is None or task not in running:
                    raise  # the task was idle
                del running[task]
                deadline = _without(trio.Cancelled, _without(Exception, fatal)) is None
                error = error or (_without(trio.Cancelled, fatal) if deadline else fatal)
                actor.finish("crashed" if error else "cancelled", None, error, final=True)
                if not deadline or not isinstance(fatal, BaseExceptionGroup):
                    raise
                raise _without(Exception, fatal) or fatal from None
            del running[task]
            error = error or actor.crashed_with
            if error is not None:
                reason = "crashed"
            elif reason != "normal" and scope.cancelled_caught:
                reason = "cancelled"
            self._coming += 1
            actor.finish(reason, value, error)
            actor = value = error = None
            actor = await self._take(task)

    def _take_at_once(self, task: trio.lowlevel.Task) -> Runnable | None:
        """Return the next actor of the queue if this task may run it without a turn of the loop, else None.

        It is the first case of `_take` without the cost of a coroutine.
        """
        queue = self._queue
        if not (queue and self._left and _same_variables(queue[0][1], task.context)):
            return None
        actor, _ = queue.popleft()
        self._coming -= 1
        self._left -= 1
        if queue and not self._coming:
            self._call_for_queue(actor)
        task.name = actor.name
        return actor

    async def _take(self, task: trio.lowlevel.Task, *, called: bool = False) -> Runnable | None:
        """Return the next actor, waiting for it if necessary; None if enough idle tasks wait already."""
        queue = self._queue
        while True:
            if called:
                self._left = IN_A_ROW
            if queue:
                actor, context = queue.popleft()  # this task's, whatever the next turn of the loop brings
                self._coming -= 1
                at_once = self._left and _same_variables(context, task.context)
                self._left = self._left - 1 if at_once else IN_A_ROW
                if queue and (called or not self._coming):
                    self._call_for_queue(actor)
                if not at_once:
                    task.context = context.copy()
                    await trio.lowlevel.cancel_shielded_checkpoint()
                task.name = actor.name
                return actor
            self._coming -= 1
            self._waker = None
            if len(self.idle) >= MAX_IDLE:
                return None
            self.idle.append(task)
            # An empty context keeps no variables of the last actor alive. Each task needs one of its own: a context can
            # be entered once, and two roots in two threads may wake their idle tasks at the same moment.
            task.context = contextvars.Context()
            mine: Runnable | None = await trio.lowlevel.wait_task_rescheduled(partial(self._abort_idle, task))
            if mine is not None:
                task.name = mine.name
                return mine
            called = True

    def _call_for_queue(self, actor: Runnable) -> None:
        waker, self._waker = self._waker, actor
        wanted = 2 if waker is not None and waker.end is None else 1
        for _ in range(min(wanted, len(self._queue))):
            self._call()

    def _abort_idle(self, task: trio.lowlevel.Task, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self.idle.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED


def _same_variables(one: contextvars.Context, other: contextvars.Context) -> bool:
    """Return whether both hold the same variables with identical values. `==` would call the values' own `__eq__`."""
    try:
        for (mine, value), (theirs, other_value) in zip(one.items(), other.items(), strict=True):
            if mine is not theirs or value is not other_value:
                return False
    except ValueError:  # one holds more than the other
        return False
    return True


def _without(kind: type[BaseException], error: BaseException | None) -> BaseException | None:
    """Return an error, or a group of errors, without the members of class `kind`; None if none remains."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1]
    return None if isinstance(error, kind) else error


class Expiring(Protocol):
    """An entry of the timer queue: a pending request (`Request`) or a `Timer`."""

    @property
    def waits(self) -> bool:
        """True while its expiry would still have an effect."""

    def expire(self, seconds: float) -> None:
        """Handle that the time, which was `seconds`, is up."""


class TimerOwner(Protocol):
    """An actor as its timers see it."""

    mailbox: Mailbox
    timers: set[Timer] | None


@final
class Timer:
    """A message that an actor has scheduled for itself with `tell_later`."""

    __slots__ = ("_actor", "_message", "_put")

    def __init__(self, actor: TimerOwner, message: Any) -> None:
        self._actor: TimerOwner | None = actor
        self._message = message
        self._put = False

    @property
    def waits(self) -> bool:
        """True until the message is in the mailbox or the timer is cancelled."""
        return self._actor is not None and not self._put

    def expire(self, _: float) -> None:
        """Append the message to the actor's mail, even beyond the bound."""
        actor = self._actor
        if actor is not None and not self._put:
            self._put = True
            self._forget(actor)
            # A copy, so that `cancel` can find it by identity: the same object may also be in the actor's mail.
            self._message = copy.copy(self._message)
            actor.mailbox.put_own(self._message)

    def cancel(self) -> bool:
        """Withdraw the message, even from the mailbox. Return False if it was received or withdrawn already."""
        actor, self._actor = self._actor, None
        if actor is None:
            return False
        message, self._message = self._message, None
        if self._put:
            return actor.mailbox.take_out(message)
        self._forget(actor)
        return True

    def _forget(self, actor: TimerOwner) -> None:
        if actor.timers is not None:
            actor.timers.discard(self)


@final
class Alarms:
    """The timer queue of one root: expires requests, and delivers the messages of timers."""

    def __init__(self, root: TaskOwner) -> None:
        self._root = root
        self._entries: list[tuple[float, int, float, Expiring]] = []
        self._numbers = itertools.count()
        self._compact_at = COMPACT_AT
        self._sleep: trio.CancelScope | None = None
        self._watched = False

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, seconds: float, entry: Expiring) -> None:
        """Expire `entry` in `seconds` if it still waits then."""
        entries = self._entries
        if len(entries) >= self._compact_at:
            entries[:] = [each for each in entries if each[3].waits]
            heapq.heapify(entries)
            self._compact_at = 2 * len(entries) + COMPACT_AT
        when = trio.current_time() + seconds
        heapq.heappush(entries, (when, next(self._numbers), seconds, entry))
        if not self._watched:
            self._watched = True
            self._root.nursery.start_soon(self._watch, name="alarms")
        elif entries[0][3] is entry and self._sleep is not None:
            self._sleep.deadline = when

    async def _watch(self) -> None:
        entries = self._entries
        while True:
            with trio.CancelScope(deadline=entries[0][0] if entries else float("inf")) as self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            while entries and entries[0][0] <= now:
                _, _, seconds, entry = heapq.heappop(entries)
                entry.expire(seconds)
