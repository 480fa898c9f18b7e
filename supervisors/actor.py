"""The actor: one task, one cancel scope, one mailbox, one place in the tree, exactly one end.

An actor is an async function that is given its own `Actor` as first argument, by custom called `me`:

    async def ponger(me: Actor) -> None:
        async for message in me:
            me.reply(message.n)

**One nursery, many scopes.** All actors of a root are tasks of one nursery, which sits behind a shield, and the tree
is kept here, not by trio. Two things trio does not give make that necessary: a nursery cancels all its children
at the first error, and it cancels everybody at once; OTP's rules ask for neither. So each actor has a cancel scope
of its own, a crash is caught in the task it happened in, and stopping is a walk down the tree: an actor's body ends
first, then its children are ended (see `_end_children`), then its own end is told. Nothing but the root touches a
scope that it does not own, so no scope is ever exited from another task. It is cheap as well: an actor costs a
task, a scope and 450 bytes, with children or without.

**Time to end.** Whoever ends a child waits for it for a bounded time: the child's `stop_within` seconds, and for a
child with children theirs plus half a second. What does not end in that time is reported as stuck, with its stack, and
no longer waited for; the root's deadline disposes of it.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, final

import outcome
import trio

from ..protocol.errors import (
    ActorCancelled,
    ActorDead,
    ActorError,
    ActorFailed,
    CallboardError,
    NoReply,
    ShuttingDown,
)
from ..protocol.events import (
    ActorFailed as ActorFailedEvent,
)
from ..protocol.events import (
    ActorSpawned,
    ActorStopped,
    ActorStuck,
    DeadLetter,
    EventData,
)
from .mailbox import BOUND, TURN, Mailbox
from .ref import End, Reason, Ref, Request, State, describe

if TYPE_CHECKING:
    from ..protocol.questions import Answer, Question
    from .bus import Stream
    from .escalation import Policy
    from .root import Root

P = ParamSpec("P")
T = TypeVar("T")
Body = Callable[Concatenate["Actor", P], Awaitable[T]]
Bond = Literal["linked", "watched", "supervised"]

log = logging.getLogger("callboard.actor")

STOP_WITHIN = 1.0
"""Default seconds that an actor has for its clean-up."""

MARGIN = 0.5
"""What an actor with children gets on top of their time."""


A_MOMENT = 0.02
"""What a child gets to unwind when its time is up, before it counts as stuck."""


class EndOfMail(ActorError):
    """Raised by `receive` when the actor has been told to stop. Letting it escape is a normal end."""

    code = "end_of_mail"


class ChildEnded:
    """Signal to a supervisor: one of its children ended by itself."""

    __slots__ = ("child", "end")

    def __init__(self, child: Actor, end: End) -> None:
        self.child = child
        self.end = end


_STOP = object()


@final
class Actor:
    """An actor as its own body sees it. Others hold its `ref`."""

    __slots__ = (
        "_args",
        "_body",
        "_bond",
        "_callbacks",
        "_children",
        "_context",
        "_count",
        "_crash",
        "_in_hand",
        "_over",
        "_ready",
        "_reason",
        "_ref",
        "_scope",
        "_stop_at",
        "asks",
        "dormant",
        "end",
        "lent",
        "mailbox",
        "name",
        "parent",
        "policy",
        "root",
        "state",
        "static",
        "stop_within",
        "stream",
    )

    def __init__(
        self,
        root: Root,
        parent: Actor | None,
        body: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        *,
        name: str,
        bond: Bond,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
        static: int = 0,
    ) -> None:
        self.root = root
        self.parent = parent
        self.name = name
        self.mailbox = Mailbox(bound)
        self._ref: Ref[Any] | None = None
        self.state: State = "starting"
        self.end: End | None = None
        self.dormant: End | None = None
        """How my last life ended, while my supervisor has not yet decided whether there is another."""
        self.stream: Stream = stream or (root.bus.kernel if parent is None else parent.stream)
        """The event stream I report to: my run's."""
        self.stop_within = stop_within
        self.static = static
        """My place in my supervisor's list, from 1 (stopped one by one in reverse); 0: stopped with the others."""
        self.asks: Actor | None = None
        """Whom its task is asking at the moment (see `refuse_circle`)."""
        self.policy: Policy | None = None
        """Answers questions that pass on their way to the root (see `escalation`)."""
        self._body = body
        self._args = args
        self._bond: Bond = bond
        self._children: dict[str, Actor] | None = None
        self._count = 0
        self._callbacks: list[Callable[[End], None]] | None = None
        self._scope = trio.CancelScope()
        self._reason: Reason = "normal"
        self._stop_at = 0.0
        self._crash: BaseException | None = None
        self._in_hand: Request | None = None
        self.lent: set[Request] | None = None
        """Requests taken to be answered later."""
        self._ready: list[Callable[[outcome.Outcome[Any]], None]] | None = None
        self._over: list[trio.lowlevel.Task] | None = None
        self._context: contextvars.Context | None = None

    def __repr__(self) -> str:
        return f"<Actor {self.path} {self.state}>"

    # --- who I am -----------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """`/` for the root, else the parent's path and my name."""
        if self.parent is None:
            return "/"
        above = self.parent.path
        return f"/{self.name}" if above == "/" else f"{above}/{self.name}"

    @property
    def ref(self) -> Ref[Any]:
        """What others hold of me; one and the same object as long as I live."""
        ref = self._ref
        if ref is None:
            ref = Ref(self)
            if self.end is None:
                self._ref = ref
        return ref

    @property
    def children(self) -> tuple[Ref[Any], ...]:
        """My living children, in start order."""
        return tuple(child.ref for child in (self._children or {}).values())

    @property
    def child_count(self) -> int:
        """How many children I have."""
        return len(self._children or ())

    @property
    def stopping(self) -> bool:
        """Whether I was told to stop or am being interrupted."""
        return self._reason != "normal" or self._crash is not None

    # --- mail ---------------------------------------------------------------------------------------------

    def receive(self) -> Coroutine[Any, Any, Any]:
        """The next message: signals first, then mail in order.

        Parks when there is none; lets others run after 64 messages in a row, so it is a checkpoint at least that
        often. A message that was asked is answered by `reply` before the next `receive`, or taken with
        `take_request` to be answered later.

        Raises:
            EndOfMail: I was told to stop.
        """
        return self._take(EndOfMail)

    def __aiter__(self) -> Actor:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._take(StopAsyncIteration)

    async def _take(self, at_the_end: type[Exception]) -> Any:
        """`receive` and `async for`, which differ in what ends them, in one coroutine: it is the hottest there is."""
        if self._in_hand is not None:
            self._drop_in_hand(NoReply(f"{self.path} went on to its next message without a reply"))
        if self.state == "starting":
            self.started()
        box = self.mailbox
        while True:
            if box.turn <= 0:
                box.turn = TURN
                await trio.lowlevel.checkpoint()
            if box.signals:
                item = box.signals.popleft()
                if item is _STOP:
                    raise at_the_end("told to stop")
            elif mail := box.mail:
                item = mail.popleft()
                if not mail and box.writers:
                    box.let_in()
            else:
                await trio.lowlevel.wait_task_rescheduled(box.park())
                continue
            box.turn -= 1
            if type(item) is Request:
                self._in_hand = item
                return item.message
            return item

    def reply(self, value: Any = None) -> None:
        """Answer the message in hand. Does nothing if it was told, not asked."""
        if self._in_hand is not None:
            request, self._in_hand = self._in_hand, None
            request.reply(value)

    def refuse(self, error: BaseException) -> None:
        """Answer the message in hand with an error, which is raised in the asker."""
        if self._in_hand is not None:
            request, self._in_hand = self._in_hand, None
            request.fail(error)

    def take_request(self) -> Request:
        """The request in hand, to be answered whenever I please (it fails if I end before).

        Raises:
            RuntimeError: the message in hand was told, not asked.
        """
        request, self._in_hand = self._in_hand, None
        if request is None:
            raise RuntimeError("the message in hand was told, not asked: there is nothing to answer")
        if self.lent is None:
            self.lent = set()
        self.lent.add(request)
        return request

    def dead_letter(self, message: Any, reason: str) -> None:
        """Report a message that was meant for me and reached nobody."""
        stream = self.stream
        if stream.heard:
            if isinstance(message, Request):
                message = message.message
            stream.publish(self, DeadLetter(to=self.path, message=repr(message)[:200], reason=reason))

    # --- children -----------------------------------------------------------------------------------------

    def spawn(
        self,
        body: Callable[..., Awaitable[T]],
        *args: Any,
        name: str | None = None,
        link: bool = True,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
    ) -> Ref[T]:
        """Start a child and return its ref at once.

        Args:
            body: an async function, called as `body(child, *args)`.
            name: last part of its path (by default the function's name), made unique by `#2`, `#3`, ...
            link: a crash of the child is a crash of mine. With False only those who hold its ref learn of it.
            stop_within: seconds it gets for its clean-up when it is ended.
            bound: how much mail it may have waiting.
            stream: an event stream of its own, for it and all below it.

        Raises:
            ShuttingDown: the root stops, or I have ended.
        """
        child = self.adopt(
            body,
            args,
            name=name,
            bond="linked" if link else "watched",
            stop_within=stop_within,
            bound=bound,
            stream=stream,
        )
        child.launch()
        return child.ref

    async def start(self, body: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> Ref[T]:
        """As `spawn`, but waits until the child is ready: it called `started`, or received, or returned.

        If it ends before, its crash is raised here (as `ActorFailed`) and nothing of it is left. If this call is
        cancelled, so is the child, and it is waited for.
        """
        ref = self.spawn(body, *args, **options)
        await ref._actor.wait_started()  # noqa: SLF001 - the kernel's own ref
        return ref

    def started(self, value: Any = None) -> None:
        """Tell whoever started me that I am ready (`value` is what it gets)."""
        if self.state == "starting":
            self.state = "running"
            ready, self._ready = self._ready, None
            for callback in ready or ():
                callback(outcome.Value(value))

    # --- ending -------------------------------------------------------------------------------------------

    def cleanup(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        """For `finally` blocks that have to await: a shield, bounded by what is left of my time to end.

        finally:
            with me.cleanup():
                await connection.aclose()
        """
        now = trio.current_time()
        left = self._stop_at - now if self._stop_at else self.stop_within
        return self.root.shield(left)

    def request_stop(self) -> None:
        """Polite: the body sees the end of its mail at the next `receive`, ahead of all mail."""
        if self.dormant is None and self.end is None and self._reason == "normal":
            self._reason = "stopped"
            self.mailbox.signal(_STOP)

    def interrupt(self) -> None:
        """Now: the body sees `trio.Cancelled` at its next checkpoint."""
        if self.dormant is None and self.end is None and self._reason != "cancelled":
            self._reason = "cancelled"
            if self._stop_at == 0.0:
                self._stop_at = trio.current_time() + self.stop_within
            self._scope.cancel()

    def crash(self, error: BaseException) -> None:
        """End me as if my body had raised `error` (a linked child did)."""
        if self.end is None and self._crash is None and not self.stopping:
            self._crash = error
            if self._stop_at == 0.0:
                self._stop_at = trio.current_time() + self.stop_within
            self._scope.cancel()

    def on_end(self, callback: Callable[[End], None]) -> None:
        """Call back once with the end; at once if it has happened."""
        if self.end is not None:
            callback(self.end)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def not_on_end(self, callback: Callable[[End], None]) -> None:
        """Take a callback back."""
        if self._callbacks and callback in self._callbacks:
            self._callbacks.remove(callback)

    # --- the world ----------------------------------------------------------------------------------------

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        """Publish an event about me on my run's stream."""
        stream = self.stream
        if stream.heard:
            stream.publish(self, data, id=id, corr=corr)

    async def ask_person(self, question: Question) -> Answer:
        """Put a question to whoever is above me, up to a person (see `escalation`)."""
        return await self.root.questions.ask(self, question)

    # --- the kernel's side --------------------------------------------------------------------------------

    def adopt(
        self,
        body: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        *,
        name: str | None,
        bond: Bond,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
        static: int = 0,
    ) -> Actor:
        """A new child with its place in the tree, not yet running."""
        if self.root.stopping or self.state in ("stopping", "done", "failed"):
            raise ShuttingDown(f"{self.path} admits no new work: it is stopping")
        if self._children is None:
            self._children = {}
        label: str = name or str(getattr(body, "__name__", type(body).__name__))
        if label in self._children:
            label = self._free_name(label)
        child = Actor(
            self.root,
            self,
            body,
            args,
            name=label,
            bond=bond,
            stop_within=stop_within,
            bound=bound,
            stream=stream,
            static=static,
        )
        self._children[label] = child
        return child

    def launch(self) -> None:
        """Run my body in a task of the root's nursery."""
        stream = self.stream
        if stream.heard:
            stream.publish(self, ActorSpawned())
        nursery = self.root.nursery
        if self._bond == "supervised":
            # A restart runs in the context of the first start, not in that of whatever crashed.
            if self._context is None:
                self._context = contextvars.copy_context()
            self._context.copy().run(nursery.start_soon, self._run)
        else:
            nursery.start_soon(self._run, name=self.name)

    def revive(self) -> None:
        """After a supervised life: back to `starting`, with the same place, ref and mail."""
        self.dormant = None
        self.state = "starting"
        self._scope = trio.CancelScope()
        self._reason = "normal"
        self._stop_at = 0.0
        self._crash = None
        self.policy = None
        signals = self.mailbox.signals
        if signals and _STOP in signals:
            signals.remove(_STOP)  # it was meant for the life that is over

    def bury(self) -> None:
        """After a supervised life: there is no other."""
        end, self.dormant = self.dormant, None
        if end is not None:
            self._farewell(end)

    async def wait_started(self) -> Any:
        """Wait for `started` and return its value; raise `ActorFailed`/`ActorCancelled` if I end before."""
        if self.state != "starting":
            await trio.lowlevel.checkpoint()
            return None
        task = trio.lowlevel.current_task()

        def wake(result: outcome.Outcome[Any]) -> None:
            trio.lowlevel.reschedule(task, result)

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            if self._ready is not None:
                self._ready.remove(wake)
            return trio.lowlevel.Abort.SUCCEEDED

        self._ready = [*(self._ready or ()), wake]
        try:
            return await trio.lowlevel.wait_task_rescheduled(abort)
        except trio.Cancelled:
            self.interrupt()
            with self.root.shield(self.time_to_end()):
                await self.wait_over()
            raise

    async def wait_over(self) -> End:
        """Wait until this life of mine is over, whether or not there is another. A checkpoint only if it is not."""
        ended = self.end or self.dormant
        if ended is None:
            task = trio.lowlevel.current_task()

            def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
                if self._over is not None:
                    self._over.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            self._over = [*(self._over or ()), task]
            ended = await trio.lowlevel.wait_task_rescheduled(abort)
        assert ended is not None
        return ended

    def time_to_end(self) -> float:
        """Upper bound in seconds for ending me and all below me."""
        if not self._children:
            return self.stop_within
        static = sum(child.time_to_end() for child in self._children.values() if child.static)
        together = max((child.time_to_end() for child in self._children.values() if not child.static), default=0.0)
        return self.stop_within + static + together + MARGIN

    def report_stuck(self, seconds: float) -> None:
        """Tell that I do not end, and where I stand."""
        self.emit(ActorStuck(seconds=seconds, stack=self.root.stack_of(self)))

    async def _run(self) -> None:
        root = self.root
        task = trio.lowlevel.current_task()
        root.tasks[task] = self
        if self._ready is None:
            self.state = "running"  # nobody waits for `started`
        value: Any = None
        error: BaseException | None = None
        reason: Reason = "stopped"
        try:
            try:
                with self._scope:
                    value = await self._body(self, *self._args)
                    reason = "normal"
            except EndOfMail:
                pass
            except Exception as crashed:  # noqa: BLE001 - a crash is data here: it becomes the actor's end
                error = _without(EndOfMail, crashed)
            if self._children:
                await self._end_children()
        except BaseException as fatal:
            # KeyboardInterrupt, SystemExit, or the root's hard deadline: record the end, let it through.
            deadline = _without(trio.Cancelled, _without(Exception, fatal)) is None
            error = error or (_without(trio.Cancelled, fatal) if deadline else fatal)
            self._finish("crashed" if error else "cancelled", None, error, final=True)
            if not deadline or not isinstance(fatal, BaseExceptionGroup):
                raise
            raise _without(Exception, fatal) or fatal from None
        finally:
            del root.tasks[task]
        error = error or self._crash
        if error is not None:
            reason = "crashed"
        elif reason != "normal" and self._scope.cancelled_caught:
            reason = "cancelled"
        self._finish(reason, value, error)

    def _finish(self, reason: Reason, value: Any, error: BaseException | None, *, final: bool = False) -> None:
        """A life is over: settle what hung on it, and leave the rest to the supervisor, if there is one."""
        end = End(reason=reason, value=value, error=error)
        if self._in_hand is not None:
            self._drop_in_hand(_failure(self, end))
        lent, self.lent = self.lent, None
        for request in lent or ():
            request.fail(_failure(self, end))
        somebody_starts_me = self._ready is not None
        self._start_over(end)
        parent = self.parent
        if parent is None or parent.state in ("stopping", "done", "failed"):
            final = True
        if final:
            for child in list((self._children or {}).values()):
                child.bury()  # one that ended while nobody was left to decide about it
        if self._bond == "supervised" and parent is not None and not final:
            self.dormant = end
            self.state = "stopping"
            parent.mailbox.signal(ChildEnded(self, end))
        else:
            self._farewell(end)
            if error is not None and self._bond == "linked" and parent is not None and not somebody_starts_me:
                parent.crash(_failure(self, end))
        over, self._over = self._over, None
        for task in over or ():
            trio.lowlevel.reschedule(task, outcome.Value(end))

    def _farewell(self, end: End) -> None:
        """The one place where an actor ends: leave the tree and tell everybody, once."""
        self.end = end
        self.state = end.state
        self._ref = None  # else each dead actor would be a circle, left to the garbage collector
        self._args = ()
        siblings = None if self.parent is None else self.parent._children  # noqa: SLF001 - the same class
        if siblings is not None and siblings.get(self.name) is self:
            del siblings[self.name]
        for item in self.mailbox.close():
            if isinstance(item, Request):
                item.fail(ActorDead(f"{self.path} ended before it came to this message"))
            self.dead_letter(item, "the actor ended before it came to it")
        stream = self.stream
        if stream.heard:
            if end.error is not None:
                code = end.error.code if isinstance(end.error, CallboardError) else "error"
                stream.publish(self, ActorFailedEvent(error=describe(end.error), code=code))
            else:
                stream.publish(self, ActorStopped(reason=end.reason))
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(end)
            except Exception:
                log.exception("a callback on the end of %s raised", self.path)

    def _start_over(self, end: End) -> None:
        """Tell who waits for my start, if it is not done: a body that simply returned was ready enough."""
        ready, self._ready = self._ready, None
        for callback in ready or ():
            if end.reason == "normal":
                callback(outcome.Value(None))
            elif end.error is not None:
                callback(outcome.Error(_failure(self, end)))
            else:
                callback(outcome.Error(ActorCancelled(f"{self.path} was {end.reason} before it was ready")))

    def _drop_in_hand(self, error: ActorError) -> None:
        request, self._in_hand = self._in_hand, None
        if request is not None and not request.answered and not request.abandoned:
            request.fail(error)

    async def _end_children(self) -> None:
        """End the children that were started freely all together, then the listed ones in reverse start order."""
        self.state = "stopping"  # from here on `adopt` refuses
        children = list((self._children or {}).values())
        await end_together([child for child in children if not child.static])
        for child in sorted((child for child in children if child.static), key=lambda child: -child.static):
            await end_together([child])

    def _free_name(self, label: str) -> str:
        assert self._children is not None
        while True:
            self._count += 1
            name = f"{label}#{self._count + 1}"
            if name not in self._children:
                return name


async def end_lives(actors: list[Actor]) -> None:
    """Interrupt these and wait until none runs, under one deadline; report those that still do."""
    running = [actor for actor in actors if actor.end is None and actor.dormant is None]
    if not running:
        return
    for actor in running:
        actor.interrupt()
    time = max(actor.time_to_end() for actor in running)
    with trio.move_on_after(time + A_MOMENT) as limit:
        for actor in running:
            await actor.wait_over()
    if limit.cancelled_caught:
        for actor in running:
            if actor.end is None and actor.dormant is None:
                actor.report_stuck(time)


async def end_together(actors: list[Actor]) -> None:
    """As `end_lives`, for good: a supervised one is not left for its supervisor to decide."""
    await end_lives(actors)
    for actor in actors:
        actor.bury()


def _without(kind: type[BaseException], error: BaseException | None) -> BaseException | None:
    """What is left of an error, or of a group of them, without those of `kind`."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1]
    return None if isinstance(error, kind) else error


def _failure(actor: Actor, end: End) -> ActorError:
    if end.error is not None:
        failed = ActorFailed(f"{actor.path} crashed: {describe(end.error)}")
        failed.__cause__ = end.error
        return failed
    return ActorDead(f"{actor.path} ended ({end.reason}) without a reply")
