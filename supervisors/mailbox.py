"""The mailbox of an actor: a bounded mail lane, a signal lane, and the check of what may be sent.

Why not a trio memory channel? `receive()` of a channel always passes through trio's scheduler, which limits it to about
0.1 million messages a second. A task that is parked only when no message is waiting is ten times faster, so this module
parks tasks itself, on `trio.lowlevel`. The price is fairness: trio no longer switches tasks at each message. After
`TURN` messages in a row the receiver therefore runs a checkpoint, which also lets a cancellation in.

**Two lanes.** *Mail* is bounded: when the lane is full, `put` waits and `put_nowait` raises `MailboxFull`. *Signals*
(a request to stop, the end of a watched actor) are few. They are never refused, and the receiver takes them before any
mail.

**Order.** Each lane is first in, first out, and so are the messages of one sender, always. Senders that wait for room
are admitted when the lane has run empty, oldest first, `bound // 16 + 1` at a time. They refill the lane in one go, so
1,000 waiting senders cost far fewer task switches than messages. While a sender waits, `room` is 0 and the lane refuses
newcomers until it is empty: otherwise a fast sender could keep the waiting ones out for ever.

**Messages** are frozen msgspec structs, since sender and receiver hold the same object and the kernel never copies it.
`check_message` refuses everything else. Type checkers see `Actor[M]`, an actor that accepts messages of the class (or
union) `M`, and `Ref[M, T]`, a reference to it, where `T` is the type that its body returns. Both default to `Any`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import outcome
import trio

from ..protocol.kernel.errors import ActorDead, MailboxFull

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", bound=msgspec.Struct, default=Any)
    N = TypeVar("N", bound=msgspec.Struct, default=Any)
    M_contra = TypeVar("M_contra", bound=msgspec.Struct, default=Any, contravariant=True)
    T_co = TypeVar("T_co", default=Any, covariant=True)
else:  # Defaults of type variables need Python 3.13 at run time; only type checkers read them.
    from typing import TypeVar

    M, N = TypeVar("M"), TypeVar("N")
    M_contra, T_co = TypeVar("M_contra", contravariant=True), TypeVar("T_co", covariant=True)

TURN = 64
"""Messages that an actor receives in a row before other tasks run."""

BOUND = 1024
"""Default bound of the mail lane, in messages."""

MAX_CHECKED_TYPES = 4096
"""Size at which `checked_types` is emptied: a program may create classes without end."""

checked_types: set[type] = set()
"""Classes that passed `check_message`. The look-up in this set is the whole cost of the check for most messages."""


def check_message(message: object, to: str) -> None:
    """Refuse a message that is not a frozen struct.

    Args:
        to: path of the receiving actor, for the error.

    Raises:
        TypeError: the message has a wrong type; the text explains how to declare a good one.
    """
    kind = type(message)
    if isinstance(message, msgspec.Struct) and message.__struct_config__.frozen:
        if len(checked_types) >= MAX_CHECKED_TYPES:
            checked_types.clear()
        checked_types.add(kind)
        return
    if isinstance(message, type):
        raise TypeError(f"{to} was told the class {message.__name__} itself: tell an instance of it")
    if isinstance(message, msgspec.Struct):
        raise TypeError(
            f"{to} was told a {kind.__name__}, which is not frozen. Sender and receiver hold the same object, so"
            f" neither may change it: declare `class {kind.__name__}(Message, frozen=True)`"
        )
    raise TypeError(
        f"{to} was told {kind.__name__} {message!r:.80}, but a message is a frozen struct. Declare one with what is to"
        " be said, `class Note(Message, frozen=True): text: str`, and tell an instance of it"
    )


class Mailbox:
    """Mail and signals of one actor. One task receives at a time; any number send.

    Lanes are created at first use: 10,000 idle actors should not hold 20,000 empty deques.
    """

    __slots__ = (
        "bound",
        "closed",
        "earlier",
        "kind",
        "mail",
        "reader",
        "room",
        "signals",
        "turn",
        "writers",
    )

    lane: Callable[[], deque[Any]] = deque
    """Creates the mail lane. A subclass replaces it to measure waiting times (see `Root.mailbox`)."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bound: int = bound
        self.room: int = bound
        """Length at which the lane refuses newcomers: `bound`, or 0 while earlier senders wait for room."""
        self.mail: deque[Any] | None = None
        self.signals: deque[Any] | None = None
        self.writers: deque[tuple[trio.lowlevel.Task, Any]] | None = None
        self.reader: trio.lowlevel.Task | None = None
        self.turn: int = TURN
        self.earlier: int = 0
        """`received` as of the last time that `turn` was set, so receiving a message counts nothing. A message that was
        handled for the actor while its task was parked is added here."""
        self.closed: bool = False
        self.kind: type | None = None
        """Message class for which `Ref.tell` may append without further checks, as long as there is room. It is set
        only while the lane exists, the reader is not parked, and sent messages are not counted."""

    def put_nowait(self, item: Any) -> None:
        """Append to the mail; raise `MailboxFull` if there is no room and `ActorDead` if the mailbox is closed."""
        if self.closed:
            raise ActorDead("the actor has ended")
        mail = self.mail
        if mail is None:
            mail = self.mail = self.lane()
        if len(mail) >= self.room:
            raise MailboxFull(
                f"{len(self)} messages are waiting (the bound is {self.bound}); use `await tell` to wait for room"
            )
        mail.append(item)
        if self.reader is not None:
            self.wake()

    async def put(self, item: Any) -> None:
        """Append to the mail, waiting for room if necessary. A checkpoint only if it waits.

        Raises:
            ActorDead: the mailbox is closed, or was closed during the wait.
        """
        if self.mail is None or len(self.mail) < self.room:
            self.put_nowait(item)
            return
        if self.writers is None:
            self.writers = deque()
        entry = (trio.lowlevel.current_task(), item)
        self.writers.append(entry)
        self.room = 0

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            assert self.writers is not None
            self.writers.remove(entry)
            if not self.writers:
                self.room = self.bound
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def signal(self, item: Any) -> None:
        """Append to the signals. Never refused; a closed mailbox drops the item."""
        if self.closed:
            return
        if self.signals is None:
            self.signals = deque()
        self.signals.append(item)
        if self.reader is not None:
            self.wake()

    def put_own(self, item: Any) -> None:
        """Append a message of the actor's own (a timer's, say) to the mail, even beyond the bound.

        A closed mailbox drops it.
        """
        if self.closed:
            return
        if self.mail is None:
            self.mail = self.lane()
        self.mail.append(item)
        if self.reader is not None:
            self.wake()

    def take_out(self, item: Any) -> bool:
        """Remove this very object from the mail; return False if it is no longer waiting."""
        mail = self.mail
        for position, waiting in enumerate(mail or ()):
            if waiting is item:
                assert mail is not None
                del mail[position]
                if not mail and self.writers:
                    self.admit_writers()
                    if self.reader is not None:
                        self.wake()
                return True
        return False

    def admit_writers(self) -> None:
        """Append the messages of the oldest waiting senders and resume those senders. The mail has just run empty."""
        assert self.mail is not None
        assert self.writers is not None
        for _ in range(min(len(self.writers), self.bound // 16 + 1)):
            task, item = self.writers.popleft()
            self.mail.append(item)
            trio.lowlevel.reschedule(task)
        self.room = self.bound
        self.new_turn(0)

    def new_turn(self, turn: int) -> None:
        """Set the number of messages that may be received before the next checkpoint."""
        self.earlier += turn - self.turn
        self.turn = turn

    @property
    def received(self) -> int:
        """Messages that the actor has received so far, signals included."""
        return self.earlier + TURN - self.turn

    def park(self) -> Callable[[trio.lowlevel.RaiseCancelT], trio.lowlevel.Abort]:
        """Mark the current task as the parked reader; return the argument for `wait_task_rescheduled`.

        Called when both lanes are empty. It is not a coroutine: that would add one object per idle actor and one frame
        per message.

        Raises:
            trio.BusyResourceError: another task is parked already.
        """
        if self.reader is not None:
            raise trio.BusyResourceError("another task is already receiving from this mailbox")
        self.kind = None
        self.reader = trio.lowlevel.current_task()
        self.earlier += TURN - self.turn  # `new_turn`, inlined
        self.turn = TURN
        return self  # A bound method would be one more object per idle actor for the garbage collector to visit.

    def close(self) -> Sequence[Any]:
        """Refuse everything from now on; return the unhandled mail.

        Senders that wait for room get `ActorDead` and report their own messages.
        """
        self.closed = True
        self.kind = None
        unhandled, self.mail, self.signals = self.mail or (), None, None
        writers, self.writers = self.writers, None
        for task, _ in writers or ():
            trio.lowlevel.reschedule(task, outcome.Error(ActorDead("the actor ended before it took the message")))
        return unhandled

    def __len__(self) -> int:
        return len(self.mail or ()) + len(self.writers or ())

    def wake(self) -> None:
        """Resume the parked reader."""
        task, self.reader = self.reader, None
        assert task is not None
        trio.lowlevel.reschedule(task)

    def __call__(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Abort function of a parked reader; `park` returns the mailbox itself as this callable."""
        self.reader = None
        return trio.lowlevel.Abort.SUCCEEDED
