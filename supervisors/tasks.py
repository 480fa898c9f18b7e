"""The tasks that actors run in. Each runs one actor after another, as long as there is a next one soon enough.

Making a task and ending it costs trio as much as all else that happens in the life of a short actor, and a cancel scope
half of that. So a task whose actor has ended waits for the next one, up to `MOST_IDLE` of them per root, and it runs
them in one scope until one of them is interrupted: then it leaves that scope and opens another. A scope belongs to one
actor at a time (`Life.enter`, `Life.leave`), so an interruption can't reach the actor before or after.

Waking a task costs a turn of trio's loop, which is a quarter of what a short actor costs. So actors that are launched
in a row (`run_soon`: the nodes of a graph, the calls of a reply) wait in a queue. A task whose actor has ended takes
the next of them at once, without that turn, up to `IN_A_ROW` times. An actor that waits for something holds its task.
So a task that is about to run an actor first calls another one to the rest of the queue; it calls two if the task that
called it is held. A thousand actors that all wait have a task each after ten turns of the loop, and a thousand that do
not wait need a dozen tasks.

What an actor may rely on is the same as in a task of its own: its context variables are those of its start.
"""

from __future__ import annotations

import contextvars
from collections import deque
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

import outcome
import trio

from ..protocol.kernel.errors import EndOfMail

if TYPE_CHECKING:
    from .life import Life
    from .ref import Reason
    from .root import Root

MOST_IDLE = 64
"""Tasks without an actor that a root keeps."""

IN_A_ROW = 16
"""Actors that tasks run one after another before other tasks get their turn."""


class Workers:
    """The tasks of one root."""

    def __init__(self, root: Root) -> None:
        self.idle: list[trio.lowlevel.Task] = []
        self._root = root
        self._waiting: deque[tuple[Life, contextvars.Context]] = deque()
        self._coming = 0  # tasks that are awake and look at `_waiting` before they do anything else
        self._left = IN_A_ROW
        self._caller: Life | None = None  # what the last task that called another was about to run

    def run(self, actor: Life, context: contextvars.Context | None) -> None:
        """Run the actor's body in a task of its own; by default `context` is the caller's."""
        if self.idle:
            self._wake(context or contextvars.copy_context(), actor)
        elif context is None:
            self._root.nursery.start_soon(self._work, actor, name=actor.name)
        else:
            context.run(partial(self._root.nursery.start_soon, self._work, actor, name=actor.name))

    def run_soon(self, actor: Life, context: contextvars.Context) -> None:
        """Run the actor's body in the next task that is free."""
        self._waiting.append((actor, context))
        if not self._coming:
            self._call()

    def _call(self) -> None:
        """Have one more task look at the queue."""
        self._coming += 1
        context = self._waiting[0][1].copy()
        if self.idle:
            self._wake(context, None)
        else:
            context.run(partial(self._root.nursery.start_soon, self._work, None, name="worker"))

    def _wake(self, context: contextvars.Context, actor: Life | None) -> None:
        task = self.idle.pop()
        task.context = context
        trio.lowlevel.reschedule(task, outcome.Value(actor))

    async def _work(self, actor: Life | None) -> None:
        """Body of such a task, which begins with this actor, or with the next one of the queue."""
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
                            if actor.stopping:  # the scope may be cancelled
                                break
                            actor.leave()
                            if actor.has_children:
                                await actor.end_children()
                            del running[task]
                            self._coming += 1
                            actor.finish("normal", value, None)
                            reason, value = "stopped", None
                            actor = None  # an idle task keeps nothing alive
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
            except BaseException as fatal:  # KeyboardInterrupt, SystemExit, or the root's hard deadline: goes on below
                if actor is None or task not in running:
                    raise  # it was idle
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

    async def _take(self, task: trio.lowlevel.Task, *, called: bool = False) -> Life | None:
        """The next actor, waiting for it if need be; None if enough tasks wait already."""
        waiting = self._waiting
        while True:
            if called:
                self._left = IN_A_ROW
            if waiting:
                actor, context = waiting.popleft()  # it is this task's, whatever the next turn of the loop brings
                self._coming -= 1
                at_once = self._left and _same(context, task.context)
                self._left = self._left - 1 if at_once else IN_A_ROW
                if waiting and (called or not self._coming):
                    self._call_for_the_rest(actor)
                if not at_once:
                    task.context = context.copy()
                    await trio.lowlevel.cancel_shielded_checkpoint()
                task.name = actor.name
                return actor
            self._coming -= 1
            self._caller = None
            if len(self.idle) >= MOST_IDLE:
                return None
            self.idle.append(task)
            # An empty context keeps no variables of the last actor alive. Each task has one of its own: a context can
            # be entered once, and two roots in two threads may wake their idle tasks at the same moment.
            task.context = contextvars.Context()
            mine: Life | None = await trio.lowlevel.wait_task_rescheduled(partial(self._let_go, task))
            if mine is not None:
                task.name = mine.name
                return mine
            called = True

    def _call_for_the_rest(self, actor: Life) -> None:
        caller, self._caller = self._caller, actor
        wanted = 2 if caller is not None and caller.end is None else 1
        for _ in range(min(wanted, len(self._waiting))):
            self._call()

    def _let_go(self, task: trio.lowlevel.Task, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self.idle.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED


def _same(one: contextvars.Context, other: contextvars.Context) -> bool:
    """Whether they hold the same variables with the very same values (`==` would ask the values)."""
    return len(one) == len(other) and all(map(is_, one, other)) and all(map(is_, one.values(), other.values()))


def _without(kind: type[BaseException], error: BaseException | None) -> BaseException | None:
    """What is left of an error, or of a group of them, without those of `kind`."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1]
    return None if isinstance(error, kind) else error
