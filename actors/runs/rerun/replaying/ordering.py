"""Order of a replay: external results are returned one by one, in the order of the rows.

Problem: trio runs its tasks in no defined order, and threads finish at any time. If results were returned when they
are asked for, two runs of the same replay would differ.

Solution: the next result is only returned when the whole process is quiescent, which means that every task waits and
no thread works. All consequences of one result are therefore complete before the next. The clock is set to the time
of the row at the same moment. Work that begins waits for its turn in the same way, in the order of its numbers. A
conversation continues when it has received the external messages that it had received then.

If no result remains to be returned and rows still follow, the cause was outside of the run. Either time passed (a
timeout: the clock is advanced), or a user cancelled, wrote, or was not available. `_bring_about` performs that
action.
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
from ....work.journal.fork_prefix import work_path
from .book import ReplayBook, failure_of
from .clock import RowClock

if TYPE_CHECKING:
    from .....protocol.messages import Message
    from .....supervisors import Actor, Desk
    from .rows import ReplayedScopes

FOR_THREADS = 0.001
"""Seconds of real time between two checks of working threads."""


_Order: TypeAlias = list[tuple[tuple[int, ...], str]]


class Threads(trio.abc.Instrument):
    """Instrument that tracks tasks waiting for a thread, for `trio.run(..., instruments=...)`."""

    def __init__(self) -> None:
        self.tasks: set[trio.lowlevel.Task] = set()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        # trio does not report which tasks wait for a thread. Their frames show it: this is the name of trio's own
        # function.
        if any(frame.f_code.co_name == "to_thread_run_sync" for frame, _ in task.iter_await_frames()):
            self.tasks.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.tasks.discard(task)


class ReplayOrder:
    """Scheduler of a replay; see the module. It also answers questions from their rows.

    Args:
        book: the rows.
        clock: clock of the event loop.
        desk: questions of the root.
        threads: tasks of the event loop that wait for a thread.

    Attributes:
        open: ids of open questions, with the paths that asked them.
        tells: functions that send a decider messages of its descendants, by path.
        scopes: scopes of the run; set when the run begins.
        top: actor of the run.
        ended_early: True if the rows ended before the run.
    """

    def __init__(self, book: ReplayBook, clock: RowClock, desk: Desk, threads: Threads) -> None:
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
        """Wait until the row at this index is next; forever if it is None."""
        if place is None:
            # No row has the result, so the work never ended in the original run. It waits until it is cancelled.
            await trio.sleep_forever()
        else:
            turn = self._waiting[place] = trio.Event()
            try:
                await turn.wait()
            finally:
                self._waiting.pop(place, None)

    async def wait_for(self, met: Callable[[], bool]) -> None:
        """Wait until the condition is met; it is tested whenever the process is quiescent."""
        while not met():
            self._looking[met] = looks = trio.Event()
            try:
                await looks.wait()
            finally:
                del self._looking[met]

    def holds(self, path: str, message: Message) -> bool:
        """Return whether a message to the decider of this path must wait, because others precede it in the rows.

        A message that waits is delivered when its row is next. A message that the process did not receive before it
        was killed is never delivered.
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
        """Return results, start work and perform external actions until cancelled, or until the rows end."""
        while True:
            await self._at_rest()
            if found := [looks for met, looks in self._looking.items() if met()]:
                for looks in found:
                    looks.set()
                # The woken tasks run first; the next result waits until the process is quiescent again.
                continue
            place, first = self._book.next, self._first_in_line
            if first is None and place is None and self._line:
                # The rows are used up and record no order for the remaining work: begin it in the order of its numbers.
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
        """Wait until every other task waits, and none of them waits for a thread."""
        while True:
            await wait_all_tasks_blocked()
            if not self._threads.tasks:
                return
            # A thread reports its result to the loop, and no other task can wait for that: poll.
            await trio.to_thread.run_sync(time.sleep, FOR_THREADS)

    @property
    def _first_in_line(self) -> int | None:
        """The position of the first waiting work that may begin now."""
        return next((first for first, (_, path, _) in enumerate(self._line) if self._book.may_begin(path)), None)

    def _hand_out(self, next: int) -> bool:
        """Return the first awaited result, unless a row before it is still missing.

        The return value is True if a result, an answer or a message was delivered.
        """
        if (held := self._held.pop(next, None)) is not None:
            self._clock.set(self._book.row(next).at / 1000)
            self._advance(self._book.path(next), held)
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
        # The woken task runs after this method, so it sees the new time.
        self._clock.set(row.at / 1000)
        return True

    async def _bring_about(self, place: int) -> None:
        """Perform the external cause of this row: advance the clock to its time, then act for the user."""
        book, row = self._book, self._book.row(place)
        self._clock.set(row.at / 1000)
        await self._at_rest()
        # Advancing the clock is enough for a timeout. Only if no task continued, a user was the cause.
        if self._goes_on(place):
            return
        self._act(book.path(place), row)
        await self._at_rest()
        if not self._goes_on(place):
            book.missed(place)

    def _goes_on(self, place: int) -> bool:
        """Return whether the replay has advanced since this row was next and had no cause."""
        return (
            self._first_in_line is not None or self._book.next != place or any(each <= place for each in self._waiting)
        )

    def _advance(self, path: str, message: Message) -> None:
        if isinstance(message, FromBelow):
            self.tells[path](message)
        elif path in self.scopes.actors:
            self.scopes.actors[path].ref.tell_nowait(message)

    def _act(self, path: str, row: AnyRow) -> None:
        message: Any = row.message if isinstance(row, Told) else None
        if isinstance(message, PersonSays) or (isinstance(message, ServersAnew) and path in self.tells):
            self._advance(path, message)
        elif isinstance(message, ChildEnded):
            if (child := f"{path}/{message.record.id}".lstrip("/")) in self.scopes.actors:
                self.scopes.actors[child].interrupt()
        elif isinstance(message, WorkDone):
            work = work_path(path, message.key)
            asked = [id for id, whose in self.open.items() if whose == work or whose.startswith(f"{work}/")]
            # A question that is still open is taken as the reason why the work ended. Once it is closed, the work ends
            # by itself.
            if asked:
                for id in asked:
                    self._close(id, message)
            # Without a question, only an interruption from outside remains as the cause of the failure.
            elif isinstance(message, WorkFailed) and work in self.scopes.actors:
                self.scopes.actors[work].interrupt()

    def _close(self, id: str, message: WorkDone) -> None:
        """Close a question without an answer, for the reason that the failure of its work records."""
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
    """Return a sort key: numbers of work in their order, after children of agents, which have names."""
    return [_of_part(part) for part in path.split("/")]


def _of_part(part: str) -> tuple[tuple[int, ...], str]:
    numbers = part.replace(":", ".").split(".")
    return (tuple(map(int, numbers)), "") if all(map(str.isdigit, numbers)) else ((), part)
