"""Order of a replay: external results are returned one by one, in the order of the rows.

Problem: trio runs its tasks in no defined order, and threads finish at any time. If results were returned when they
are asked for, two runs of the same replay would differ.

Solution: the next result is only returned when the whole process is quiescent, which means that every task waits and
no thread works. All consequences of one result are therefore complete before the next. The clock (`RowClock`) only
advances when it is set, and it is set to the time of the row at that same moment. Work that begins waits for its turn
in the same way, in the order of its numbers. A conversation continues when it has received the external messages that
it had received then.

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

from .....protocol.journal import Answered, AnyRow, MessageRow
from .....protocol.messages import ChildEnded, FromBelow, PersonSays, ServersRestarted, ToolDone, WorkDone, WorkFailed
from ....work.journal.fork_prefix import work_path
from .journal_index import JournalIndex, failure_of

if TYPE_CHECKING:
    from .....protocol.messages import Message
    from .....supervisors import Actor, OpenQuestions

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


class Sequencer:
    """Scheduler of a replay; see the module. It also answers questions from their rows.

    Args:
        index: the rows.
        clock: clock of the event loop.
        questions: questions of the root.
        threads: tasks of the event loop that wait for a thread.

    Attributes:
        open: ids of open questions, with the paths that asked them.
        senders: functions that send a decider messages of its descendants, by path.
        actors: actors by path of their work or of their deciders; `ReplayedScopes` fills it.
        top: actor of the run.
        ended_early: True if the rows ended before the run.
    """

    def __init__(self, index: JournalIndex, clock: RowClock, questions: OpenQuestions, threads: Threads) -> None:
        self._index = index
        self._clock = clock
        self._questions = questions
        self._threads = threads
        self._line: list[tuple[_Order, str, trio.Event]] = []
        self._waiting: dict[int, trio.Event] = {}
        self._held: dict[int, Message] = {}
        self._pending_conditions: dict[Callable[[], bool], trio.Event] = {}
        self.open: dict[str, str] = {}
        self.senders: dict[str, Callable[[FromBelow], None]] = {}
        self.actors: dict[str, Actor] = {}
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
            self._pending_conditions[met] = woken = trio.Event()
            try:
                await woken.wait()
            finally:
                del self._pending_conditions[met]

    def holds(self, path: str, message: Message) -> bool:
        """Return whether a message to the decider of this path must wait, because others precede it in the rows.

        A message that waits is delivered when its row is next. A message that the process did not receive before it
        was killed is never delivered.
        """
        index = self._index
        place = index.place_of(path, message)
        if place is None:
            return index.was_killed and index.next is not None
        if index.is_first(path, place):
            return False
        self._held[place] = message
        return True

    async def serve(self) -> None:
        """Return results, start work and perform external actions until cancelled, or until the rows end."""
        while True:
            await self._at_rest()
            # Before any result: the tasks that wait here need mail that has arrived by now.
            if found := [woken for met, woken in self._pending_conditions.items() if met()]:
                for woken in found:
                    woken.set()
                # The woken tasks run first; the next result waits until the process is quiescent again.
                continue
            place, first = self._index.next, self._first_in_line
            if first is None and place is None and self._line:
                # The rows are used up and record no order for the remaining work: begin it in the order of its numbers.
                first = 0
            if first is not None:
                self._line.pop(first)[2].set()
                continue
            # No row is left and nothing can begin: the original process ended here.
            if place is None:
                self.ended_early = True
                self.top.interrupt()
                return
            if not self._return_next(place):
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
        return next((first for first, (_, path, _) in enumerate(self._line) if self._index.may_begin(path)), None)

    def _return_next(self, next: int) -> bool:
        """Return the first awaited result, unless a row before it is still missing.

        The return value is True if a result, an answer or a message was delivered.
        """
        if (held := self._held.pop(next, None)) is not None:
            self._clock.set(self._index.row(next).at / 1000)
            self._advance(self._index.path(next), held)
            return True
        answers = [place for place in map(self._index.answer_to, self.open) if place is not None]
        first = min([*self._waiting, *answers], default=None)
        if first is None or first > next:
            return False
        row = self._index.row(first)
        if isinstance(row, Answered):
            self._questions.answer(row.answer.question, row.answer.value, by=row.answer.by)
        else:
            self._waiting.pop(first).set()
        # The woken task runs after this method, so it sees the new time.
        self._clock.set(row.at / 1000)
        return True

    async def _bring_about(self, place: int) -> None:
        """Perform the external cause of this row: advance the clock to its time, then act for the user."""
        index, row = self._index, self._index.row(place)
        self._clock.set(row.at / 1000)
        await self._at_rest()
        # Advancing the clock is enough for a timeout. Only if no task continued, a user was the cause.
        if self._has_advanced(place):
            return
        self._act(index.path(place), row)
        await self._at_rest()
        if not self._has_advanced(place):
            index.missed(place)

    def _has_advanced(self, place: int) -> bool:
        """Return whether the replay has advanced since this row was next and had no cause."""
        return (
            self._first_in_line is not None or self._index.next != place or any(each <= place for each in self._waiting)
        )

    def _advance(self, path: str, message: Message) -> None:
        if isinstance(message, FromBelow):
            self.senders[path](message)
        elif path in self.actors:
            self.actors[path].ref.tell_nowait(message)

    def _act(self, path: str, row: AnyRow) -> None:
        message: Any = row.message if isinstance(row, MessageRow) else None
        if isinstance(message, PersonSays) or (isinstance(message, ServersRestarted) and path in self.senders):
            self._advance(path, message)
        elif isinstance(message, ChildEnded):
            if (child := f"{path}/{message.record.id}".lstrip("/")) in self.actors:
                self.actors[child].interrupt()
        elif isinstance(message, WorkDone):
            work = work_path(path, message.key)
            asked = [id for id, whose in self.open.items() if whose == work or whose.startswith(f"{work}/")]
            # A question that is still open is taken as the reason why the work ended. Once it is closed, the work ends
            # by itself.
            if asked:
                for id in asked:
                    self._close(id, message)
            # Without a question, only an interruption from outside remains as the cause of the failure.
            elif isinstance(message, WorkFailed) and work in self.actors:
                self.actors[work].interrupt()

    def _close(self, id: str, message: WorkDone) -> None:
        """Close a question without an answer, for the reason that the failure of its work records."""
        if _says(message, "QuestionTimeout", "timed out"):
            self._questions.expire(id, 0.0)
        else:
            self._questions.leave_to_nobody(id)


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


NEVER = 86_400.0
"""Seconds that trio may sleep: setting the clock wakes it."""


class RowClock(trio.abc.Clock):
    """Clock for `trio.run(..., clock=...)`, which starts at `now` seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._runs_since: float | None = None

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        """Return the seconds since the beginning of the run."""
        if self._runs_since is None:
            return self._now
        return self._now + time.perf_counter() - self._runs_since

    def deadline_to_sleep_time(self, deadline: float) -> float:
        left = deadline - self.current_time()
        if left <= 0:
            return 0.0
        return NEVER if self._runs_since is None else left

    def set(self, seconds: float) -> None:
        """Set the time; it never goes back."""
        self._now = max(self._now, seconds)

    def run_on(self) -> None:
        """Advance like a real clock from now on, so that time limits end tasks that hang at the end."""
        if self._runs_since is None:
            self._runs_since = time.perf_counter()
