"""The mailbox: where messages wait for their actor.

Why not a trio memory channel? `receive()` of a channel is always a full trip through the scheduler, which caps it
near 0.1 million messages a second. Parking a task only when there is really nothing to do is ten times faster,
so that is what this module does, on `trio.lowlevel`. The price is that fairness is ours to keep: after `TURN`
messages taken without a pause, `take` lets the other tasks run (and lets a cancellation in).

Two lanes. *Mail* is bounded: a full lane makes `put` wait and `put_nowait` raise. *Signals* (told to stop, a
watched actor is down) are few, are never refused, and overtake all mail.

Order: first in, first out per lane, and per sender always. Senders that wait for room are let in when the lane has
run empty, oldest first, a few at a time: those few then fill the lane in one go, so that a thousand senders cost
far fewer switches than messages. While a sender waits, a lane that was full is closed to newcomers (`room` is 0) until
it has run empty, so that a fast sender can't keep the others waiting for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import outcome
import trio

from ..protocol.kernel.errors import ActorDead, MailboxFull

TURN = 64
"""Messages an actor may take in a row before others get their turn."""

BOUND = 1024
"""Default bound of the mail lane."""


class Mailbox:
    """Mail and signals of one actor. One task at a time takes; any number put.

    Lanes are created at first use: ten thousand idle actors should not hold twenty thousand empty deques.
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
    """Makes the mail lane; who wants to measure it has a mailbox with another one (see `Root.mailbox`)."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.room = bound
        """How long the lane may be for a newcomer: `bound`, or 0 while the lane drains for those who wait."""
        self.mail: deque[Any] | None = None
        self.signals: deque[Any] | None = None
        self.writers: deque[tuple[trio.lowlevel.Task, Any]] | None = None
        self.reader: trio.lowlevel.Task | None = None
        self.turn = TURN
        self.earlier = 0
        """What `received` counts, as of the last time that `turn` was set: so a message costs no counting. One that was
        handled for the actor while it slept is added here."""
        self.closed = False
        self.kind: type | None = None
        """Class of the last message told, while nothing but the room has to be looked at for another one of it: there
        is a lane, its reader does not sleep, and sent messages are not counted. See `Ref.tell`."""

    def put_nowait(self, item: Any) -> None:
        """Add to the mail, or raise `MailboxFull` (no room) or `ActorDead` (closed)."""
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
        """Add to the mail, waiting for room if need be. A checkpoint only when it has to wait."""
        if self.mail is not None and len(self.mail) >= self.room:
            await self._wait_for_room(item)
        else:
            self.put_nowait(item)

    def signal(self, item: Any) -> None:
        """Add to the signals. Never refused, except that a closed box drops it."""
        if self.closed:
            return
        if self.signals is None:
            self.signals = deque()
        self.signals.append(item)
        if self.reader is not None:
            self.wake()

    def put_own(self, item: Any) -> None:
        """Add a message of the actor's own timer to the mail, whether or not there is room. A closed box drops it."""
        if self.closed:
            return
        if self.mail is None:
            self.mail = self.lane()
        self.mail.append(item)
        if self.reader is not None:
            self.wake()

    def take_out(self, item: Any) -> bool:
        """Remove this very object from the mail; False if it is not there any more."""
        mail = self.mail
        for place, waiting in enumerate(mail or ()):
            if waiting is item:
                assert mail is not None
                del mail[place]
                if not mail and self.writers:
                    self.let_in()
                    if self.reader is not None:
                        self.wake()
                return True
        return False

    def let_in(self) -> None:
        """The mail has run empty: take the oldest waiting senders' messages, and let those senders run."""
        assert self.mail is not None
        assert self.writers is not None
        for _ in range(min(len(self.writers), self.bound // 16 + 1)):
            task, item = self.writers.popleft()
            self.mail.append(item)
            trio.lowlevel.reschedule(task)
        self.room = self.bound
        self.new_turn(0)

    def new_turn(self, turn: int) -> None:
        """So many messages may be taken in a row from now on."""
        self.earlier += turn - self.turn
        self.turn = turn

    @property
    def received(self) -> int:
        """Messages that the actor has taken so far, signals included."""
        return self.earlier + TURN - self.turn

    def park(self) -> Callable[[trio.lowlevel.RaiseCancelT], trio.lowlevel.Abort]:
        """Both lanes are empty: what to give to `wait_task_rescheduled`, so that the task sleeps until `wake`.

        Not a coroutine of its own: that would be one more object per idle actor and one more frame per message.
        """
        if self.reader is not None:
            raise trio.BusyResourceError("another task is already receiving from this mailbox")
        self.kind = None
        self.reader = trio.lowlevel.current_task()
        self.earlier += TURN - self.turn  # `new_turn`, inlined
        self.turn = TURN
        return self  # a bound method would be one more object per idle actor that the garbage collector visits

    def close(self) -> list[Any]:
        """Refuse everything from now on; returns the mail left unhandled.

        Senders that wait for room get `ActorDead`, and their messages are theirs to report.
        """
        self.closed = True
        self.kind = None
        left = list(self.mail or ())
        self.mail = self.signals = None
        for task, _ in self.writers or ():
            trio.lowlevel.reschedule(task, outcome.Error(ActorDead("the actor ended before it took the message")))
        self.writers = None
        return left

    def __len__(self) -> int:
        return len(self.mail or ()) + len(self.writers or ())

    def wake(self) -> None:
        """Let the actor run, which is parked."""
        task, self.reader = self.reader, None
        assert task is not None
        trio.lowlevel.reschedule(task)

    def __call__(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """The actor is interrupted while it sleeps: what `park` gives to trio."""
        self.reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _wait_for_room(self, item: Any) -> None:
        if self.writers is None:
            self.writers = deque()
        place = (trio.lowlevel.current_task(), item)
        self.writers.append(place)
        self.room = 0

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            assert self.writers is not None
            self.writers.remove(place)
            if not self.writers:
                self.room = self.bound
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
