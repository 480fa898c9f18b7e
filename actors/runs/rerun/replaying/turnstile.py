"""Keeps the order of a replay: what comes from outside is handed out one by one, in the order of the rows.

The next is handed out when the whole process has come to rest: every task waits, and no thread is at work. So what
follows from one thing is over before the next, whatever order trio runs its tasks in. The clock is set to the time of
the row with it. Work that is begun waits for its turn in the same way, in the order of its numbers; and a conversation
goes on when it has been told by others what it was told then.

Where nothing is left to be handed out and a row is still to come, what led to it was the clock (a timeout: it is set
on) or a person from outside, who has cancelled, written, or was not there to be asked: that is done in their place.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio
from trio.testing import wait_all_tasks_blocked

from .....protocol.journal import Answered, AnyRow, Told
from .....protocol.messages import ChildEnded, FromBelow, PersonSays, ServersAnew, ToolDone, WorkDone, WorkFailed
from ....work.journal.prefix import work_path
from .book import Book, failure_of
from .clock import RowClock

if TYPE_CHECKING:
    from .....protocol.messages import Message
    from .....supervisors import Actor, Desk
    from .rows import ReplayedScopes

FOR_THREADS = 0.001
"""Seconds of real time from one look at working threads to the next."""


_Order: TypeAlias = list[tuple[tuple[int, ...], str]]


class Threads(trio.abc.Instrument):
    """Knows which tasks wait for a thread. For `trio.run(..., instruments=...)`."""

    def __init__(self) -> None:
        self.tasks: set[trio.lowlevel.Task] = set()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        if any(frame.f_code.co_name == "to_thread_run_sync" for frame, _ in task.iter_await_frames()):
            self.tasks.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        self.tasks.discard(task)


class Turnstile:
    """See the module. Questions are answered as their rows say.

    Args:
        clock: what the event loop goes by.
        threads: which of its tasks wait for one.

    Attributes:
        open: ids of questions that are open, and whose they are.
        tells: tell deciders what happens below, by their paths.
        scopes: those of the run; they come with it.
        top: the actor of the run.
        ended_early: the rows had an end before the run.
    """

    def __init__(self, book: Book, clock: RowClock, desk: Desk, threads: Threads) -> None:
        self._book = book
        self._clock = clock
        self._desk = desk
        self._threads = threads
        self._line: list[tuple[_Order, str, trio.Event]] = []
        self._waiting: dict[int, trio.Event] = {}
        self._held: dict[int, Message] = {}
        self._looking: dict[Callable[[], bool], trio.Event] = {}
        self.open: dict[str, str] = {}
        self.tells: dict[str, Callable[[FromBelow], None]] = {}
        self.scopes: ReplayedScopes
        self.top: Actor
        self.ended_early = False

    async def line_up(self, path: str) -> None:
        """Wait until work of this path may begin."""
        turn = trio.Event()
        insort(self._line, (_order(path), path, turn))
        await turn.wait()

    async def take(self, place: int | None) -> None:
        """Wait until it is the turn of the row at this place; for one that is not there, for ever."""
        if place is None:
            await trio.sleep_forever()
        else:
            turn = self._waiting[place] = trio.Event()
            try:
                await turn.wait()
            finally:
                self._waiting.pop(place, None)

    async def wait_for(self, met: Callable[[], bool]) -> None:
        """Wait until this is so."""
        while not met():
            self._looking[met] = looks = trio.Event()
            try:
                await looks.wait()
            finally:
                del self._looking[met]

    def holds(self, path: str, message: Message) -> bool:
        """Whether the decider of this path, whom others tell this, was told other things first; it is told then.

        What it was never told, as the process was killed just then, it is not told.
        """
        book = self._book
        place = book.place_of(path, message)
        if place is None:
            return book.was_killed and book.next is not None
        if book.is_first(path, place):
            return False
        self._held[place] = message
        return True

    async def serve(self) -> None:
        """Hand out all there is; until cancelled."""
        while True:
            await self._at_rest()
            if found := [looks for met, looks in self._looking.items() if met()]:
                for looks in found:
                    looks.set()
                continue
            place, first = self._book.next, self._first_in_line
            if first is None and place is None and self._line:
                first = 0
            if first is not None:
                self._line.pop(first)[2].set()
                continue
            if place is None:
                self.ended_early = True
                self.top.interrupt()
                return
            if not self._hand_out(place):
                await self._bring_about(place)

    async def _at_rest(self) -> None:
        """Wait until every other task waits for something else than a thread."""
        while True:
            await wait_all_tasks_blocked()
            if not self._threads.tasks:
                return
            # What a thread has done is told to the loop when it is done, and nobody can wait for another's.
            await trio.to_thread.run_sync(time.sleep, FOR_THREADS)

    @property
    def _first_in_line(self) -> int | None:
        """The first in line that may begin now."""
        return next((first for first, (_, path, _) in enumerate(self._line) if self._book.may_begin(path)), None)

    def _hand_out(self, next: int) -> bool:
        """Hand out what comes first of what is waited for, if no other row comes before it."""
        if (held := self._held.pop(next, None)) is not None:
            self._clock.set(self._book.row(next).at / 1000)
            self._tell(self._book.path(next), held)
            return True
        answers = [place for place in map(self._book.answer_to, self.open) if place is not None]
        first = min([*self._waiting, *answers], default=None)
        if first is None or first > next:
            return False
        row = self._book.row(first)
        if isinstance(row, Answered):
            self._desk.answer(row.answer.question, row.answer.value, by=row.answer.by)
        else:
            self._waiting.pop(first).set()
        self._clock.set(row.at / 1000)
        return True

    async def _bring_about(self, place: int) -> None:
        """Nothing is left that leads to this row: the time does, or somebody from outside did."""
        book, row = self._book, self._book.row(place)
        self._clock.set(row.at / 1000)
        await self._at_rest()
        if self._goes_on(place):
            return
        self._act(book.path(place), row)
        await self._at_rest()
        if not self._goes_on(place):
            book.missed(place)

    def _goes_on(self, place: int) -> bool:
        """Whether the replay goes on from where this row was the next, and nothing led to it."""
        return (
            self._first_in_line is not None or self._book.next != place or any(each <= place for each in self._waiting)
        )

    def _tell(self, path: str, message: Message) -> None:
        if isinstance(message, FromBelow):
            self.tells[path](message)
        elif path in self.scopes.actors:
            self.scopes.actors[path].ref.tell_nowait(message)

    def _act(self, path: str, row: AnyRow) -> None:
        message: Any = row.message if isinstance(row, Told) else None
        if isinstance(message, PersonSays) or (isinstance(message, ServersAnew) and path in self.tells):
            self._tell(path, message)
        elif isinstance(message, ChildEnded):
            if (child := f"{path}/{message.record.id}".lstrip("/")) in self.scopes.actors:
                self.scopes.actors[child].interrupt()
        elif isinstance(message, WorkDone):
            work = work_path(path, message.key)
            asked = [id for id, whose in self.open.items() if whose == work or whose.startswith(f"{work}/")]
            if asked:
                for id in asked:
                    self._close(id, message)
            elif isinstance(message, WorkFailed) and work in self.scopes.actors:
                self.scopes.actors[work].interrupt()

    def _close(self, id: str, message: WorkDone) -> None:
        """A question had no answer, and what asked has ended so."""
        if _says(message, "QuestionTimeout", "timed out"):
            self._desk.expire(id, 0.0)
        else:
            self._desk.leave_to_nobody(id)


def _says(message: WorkDone, kind: str, words: str) -> bool:
    if isinstance(message, ToolDone):
        return words in str(message.content)
    failure = failure_of(message)
    return failure is not None and kind in failure.kinds


def _order(path: str) -> _Order:
    """Paths in the order of their numbers; children of agents, which have names, before those."""
    return [_of_part(part) for part in path.split("/")]


def _of_part(part: str) -> tuple[tuple[int, ...], str]:
    numbers = part.replace(":", ".").split(".")
    return (tuple(map(int, numbers)), "") if all(map(str.isdigit, numbers)) else ((), part)
