"""The tasks that actors run in. Each runs one actor after another, as long as there is a next one soon enough.

Making a task and ending it costs trio as much as all else that happens in the life of a short actor, and a cancel scope
half of that. So a task whose actor has ended waits for the next one, up to `MOST_IDLE` of them per root, and it runs
them in one scope until one of them is interrupted: then it leaves that scope and opens another. A scope belongs to one
actor at a time (`Life.enter`, `Life.leave`), so an interruption can't reach the actor before or after.

What an actor may rely on is the same as in a task of its own: its context variables are those of its start.
"""

from __future__ import annotations

import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any

import outcome
import trio

from ..protocol.kernel.errors import EndOfMail

if TYPE_CHECKING:
    from .life import Life
    from .ref import Reason

MOST_IDLE = 64
"""Tasks without an actor that a root keeps."""


def run(actor: Life, context: contextvars.Context | None) -> None:
    """Run the actor's body in a task of the root's nursery; by default `context` is the caller's."""
    idle = actor.root.idle
    if idle:
        task = idle.pop()
        task.context = context or contextvars.copy_context()
        task.name = actor.name
        trio.lowlevel.reschedule(task, outcome.Value(actor))
    elif context is None:
        actor.root.nursery.start_soon(_work, actor, name=actor.name)
    else:
        context.run(partial(actor.root.nursery.start_soon, _work, actor, name=actor.name))


async def _work(actor: Life) -> None:
    """Body of such a task."""
    root = actor.root
    running, idle, task = root.tasks, root.idle, trio.lowlevel.current_task()
    while True:
        value: Any = None
        error: BaseException | None = None
        reason: Reason = "stopped"
        scope = trio.CancelScope()
        try:
            try:
                with scope:
                    while True:
                        running[task] = actor
                        value = await actor.enter(scope)
                        reason = "normal"
                        if scope.cancel_called:
                            break
                        actor.leave()
                        if actor.has_children:
                            await actor.end_children()
                        del running[task]
                        actor.finish("normal", value, None)
                        if len(idle) >= MOST_IDLE:
                            return
                        reason, value = "stopped", None
                        del actor  # an idle task keeps nothing alive
                        actor = await _next(idle, task)
            except EndOfMail:
                pass
            except Exception as crashed:  # noqa: BLE001 - a crash is data here: it becomes the actor's end
                error = _without(EndOfMail, crashed)
            actor.leave()
            if actor.has_children:
                await actor.end_children()
        except BaseException as fatal:
            if task not in running:
                raise  # it was idle
            del running[task]
            # KeyboardInterrupt, SystemExit, or the root's hard deadline: record the end, let it through.
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
        actor.finish(reason, value, error)
        if len(idle) >= MOST_IDLE:
            return
        del actor, value, error
        actor = await _next(idle, task)


async def _next(idle: list[trio.lowlevel.Task], task: trio.lowlevel.Task) -> Life:
    """Wait for the next actor."""
    idle.append(task)
    # An empty context keeps no variables of the last actor alive. Each task has one of its own: a context can be
    # entered once, and two roots in two threads may wake their idle tasks at the same moment.
    task.context = contextvars.Context()

    def let_go(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        idle.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED

    actor: Life = await trio.lowlevel.wait_task_rescheduled(let_go)
    return actor


def _without(kind: type[BaseException], error: BaseException | None) -> BaseException | None:
    """What is left of an error, or of a group of them, without those of `kind`."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1]
    return None if isinstance(error, kind) else error
