"""The actor: one task, one cancel scope, one mailbox, one place in the tree, exactly one end.

An actor is an async function that is given its own `Actor` as first argument, by custom called `me`:

    async def ponger(me: Actor) -> None:
        async for message in me:
            me.reply(message.n)

Others hold its `ref`. `life` says how it starts and ends, docs/kernel.md what it may rely on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, final

import outcome
import trio

from ..protocol.kernel.errors import EndOfMail, NoReply, ShuttingDown
from ..protocol.kernel.events import EventData
from .alarms import Timer
from .life import STOP, STOP_WITHIN, Bond, Life
from .mailbox import BOUND, TURN
from .ref import Ref, Request
from .told import M, N, accepted, check

if TYPE_CHECKING:
    from ..protocol.kernel.questions import Answer, Question
    from .bus import Stream

T = TypeVar("T")
Args = TypeVarTuple("Args")


@final
class Actor(Life, Generic[M]):
    """An actor as its own body sees it, by custom called `me`; `Actor[Ping]` receives pings."""

    __slots__ = ()

    # --- who I am --------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        @property
        def ref(self) -> Ref[M]:
            """What others hold of me; see `Life.ref`."""

    @property
    def children(self) -> tuple[Ref, ...]:
        """My living children, in start order."""
        return tuple(child.ref for child in (self._children or {}).values())

    @property
    def child_count(self) -> int:
        """How many children I have."""
        return len(self._children or ())

    @property
    def below(self) -> tuple[Actor, ...]:
        """My living children themselves, for who looks after the tree (see `census`)."""
        return tuple((self._children or {}).values())

    def child(self, name: str) -> Actor | None:
        """My living child of this name."""
        return (self._children or {}).get(name)

    # --- mail ------------------------------------------------------------------------------------------------

    def receive(self) -> Coroutine[Any, Any, M]:
        """The next message: signals first, then mail in order.

        Parks when there is none; lets others run after 64 messages in a row, so it is a checkpoint at least that
        often. A message that was asked is answered by `reply` before the next `receive`, or taken with
        `take_request` to be answered later.

        Raises:
            EndOfMail: I was told to stop.
        """
        return self._take(EndOfMail)

    def __aiter__(self) -> Actor[M]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, M]:
        return self._take(StopAsyncIteration)

    async def _take(self, at_the_end: type[Exception]) -> Any:
        """`receive` and `async for`, which differ in what ends them, in one coroutine: it is the hottest there is."""
        if self._in_hand is not None:
            self._drop_in_hand(NoReply(f"{self.path} went on to its next message without a reply"))
        box = self.mailbox
        while True:
            if box.turn <= 0:
                box.new_turn(TURN)
                if self.state == "starting":  # its first turn is 0 messages long, see `Life._run`
                    self.started()
                else:
                    await trio.lowlevel.checkpoint()
            if box.signals:
                item = box.signals.popleft()
                if item is STOP:
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

    @property
    def has_mail(self) -> bool:
        """Whether mail waits that `take_mail` would give me."""
        return bool(self.mailbox.mail)

    def take_mail(self) -> M:
        """The oldest mail that waits, for a body that looks into its box now and then instead of receiving.

        One that was asked is answered by `reply`, as with `receive`. Only if `has_mail`.
        """
        box = self.mailbox
        mail = box.mail
        assert mail
        item = mail.popleft()
        box.earlier += 1
        if not mail and box.writers:
            box.let_in()
        if type(item) is Request:
            self._in_hand = item
            item = item.message
        message: M = item
        return message

    def reply(self, value: Any = None) -> None:
        """Answer the message in hand. Does nothing if it was told, not asked."""
        if self._in_hand is not None:
            request, self._in_hand = self._in_hand, None
            request.settle(outcome.Value(value))

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

    def tell_later(self, seconds: float, message: M) -> Timer:
        """Tell myself a message `seconds` from now; `timer.cancel()` takes it back.

        It comes behind the mail that waits by then, and finds room in a full mailbox. It is forgotten when this life
        of mine ends before its time; a restarted actor sets its timers anew.

        Raises:
            ValueError: `seconds` is negative or not a number.
            TypeError: the message is no frozen struct.
        """
        if type(message) not in accepted:
            check(message, self.path)
        if not seconds >= 0:
            raise ValueError(f"a timer needs seconds from now, 0 or more, not {seconds!r}")
        timer = Timer(self, message)
        if self.timers is None:
            self.timers = set()
        self.timers.add(timer)
        self.root.alarms.set(seconds, timer)
        return timer

    @contextlib.contextmanager
    def time_limit(self, scope: trio.CancelScope) -> Iterator[trio.CancelScope]:
        """Enter a scope whose limit the run's author has set: a run in which one counts is not at rest (`rest`)."""
        clocks, run = self.root.clocks, self.stream.run
        clocks[run] += 1
        try:
            with scope:
                yield scope
        finally:
            clocks[run] -= 1
            if not clocks[run]:
                del clocks[run]

    # --- children --------------------------------------------------------------------------------------------

    def spawn(
        self,
        body: Callable[[Actor[N], *Args], Awaitable[T]],
        *args: *Args,
        name: str | None = None,
        link: bool = True,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
    ) -> Ref[N, T]:
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

    async def start(self, body: Callable[[Actor[N], *Args], Awaitable[T]], *args: *Args, **options: Any) -> Ref[N, T]:
        """As `spawn`, but waits until the child is ready: it called `started`, or received, or returned.

        If it ends before, its crash is raised here (as `ActorFailed`) and nothing of it is left. If this call is
        cancelled, so is the child, and it is waited for.
        """
        ref = self.spawn(body, *args, **options)
        await ref._actor.wait_started()  # noqa: SLF001 - the kernel's own ref
        return ref

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
        child = Actor(self.root, self, body, args, label, bond, stop_within, bound, stream, static)
        self._children[label] = child
        return child

    def _free_name(self, label: str) -> str:
        assert self._children is not None
        while True:
            self._count += 1
            name = f"{label}#{self._count + 1}"
            if name not in self._children:
                return name

    # --- the world -------------------------------------------------------------------------------------------

    def cleanup(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        """For `finally` blocks that have to await: a shield, bounded by what is left of my time to end.

        finally:
            with me.cleanup():
                await connection.aclose()
        """
        now = trio.current_time()
        left = self._stop_at - now if self._stop_at else self.stop_within
        return self.root.shield(left)

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        """Publish an event about me on my run's stream."""
        stream = self.stream
        if stream.heard:
            stream.publish(self, data, id=id, corr=corr)

    async def ask_person(self, question: Question) -> Answer:
        """Put a question to my ancestors, then to a person (see `escalation`)."""
        return await self.root.questions.ask(self, question)
