"""Subscriptions to events of a run and to open questions; a reader that is too slow gets an error and starts again.

Events: stored ones first, then each new one. A reader has no queue of its own. It stores the number of its last event,
and fetches the next ones from the run's ring in memory. Events that have left the ring come from the log. So readers
cost almost no memory, and no reader can block the run. A live reader that is too slow for the ring gets `Lagged`. It
then subscribes again after its last event and reads the missed ones from the log. The events of a run in another
process are only in its log, which `logs.run_logs.RemoteLog` polls.

Questions: `OpenQuestions` is the front end of the root's question registry (`supervisors.escalation`). Questions of
dormant runs are held: their actors have ended, but clients must still see them as open. A question leaves the held set
when its run asks it again, or when `release` closes it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Self, TypeAlias, final

import msgspec
import trio

from ....protocol.control.resources import QuestionAsked, QuestionClosed, RunInfo
from ....protocol.errors import CallboardError
from ....protocol.kernel.questions import Question
from .logs.files import LoggedEvent
from .logs.run_logs import RunLogs
from .runs.live_run import LiveRun


class Lagged(CallboardError):
    """Error for a reader that was too slow. Subscribe again with `after`; no event is lost.

    Attributes:
        after: number of the last event that the reader received.
        seq: number of the newest event.
    """

    code = "lagged"

    def __init__(self, after: int, seq: int) -> None:
        super().__init__(f"the subscriber is {seq - after} events behind; subscribe again with `after` {after}")
        self.after = after
        self.seq = seq


class Subscription:
    """Iterator over the events of a run.

        with hub.subscribe(caller, run, after=0) as events:
            async for event in events:
                ...

    Attributes:
        run: id of the run.
        seq: number of the last event returned.
        lost: first and last number of events that are gone because the log could not be written.
    """

    def __init__(self, logs: RunLogs, info: RunInfo, record: LiveRun | None, after: int) -> None:
        self.run = info.run
        self.seq = after
        self._info = info
        # Weakly: a reader that is dropped without leaving its block no longer protects the log from `prune`.
        logs.readers.add(self)
        self.lost: tuple[int, int] | None = None
        self._logs = logs
        self._record = record
        self._remote_log = logs.remote_log(info.run) if record is None and not info.over else None
        self._offset = 0
        self._live = False
        self._batch: deque[LoggedEvent] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._record = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> LoggedEvent:
        if not self._batch:
            self._batch.extend(await self.batch())
            if not self._batch:
                raise StopAsyncIteration
        event = self._batch.popleft()
        self.seq = event.seq
        return event

    async def batch(self) -> list[LoggedEvent]:
        """Return all events at hand, or wait for the next; an empty list at the end. The caller must update `seq`.

        Raises:
            Lagged: a live reader fell behind the ring.
        """
        record = self._record
        if record is None:
            return await self._written()
        if record.has(self.seq):
            self._live = True
            await record.more_than(self.seq)
        if record.has(self.seq):
            return record.after(self.seq)
        # Only a reader that has been live is too slow. One that still reads the log continues there.
        if self._live:
            raise Lagged(self.seq, record.seq)
        return await self._from_log(record)

    async def _written(self) -> list[LoggedEvent]:
        """Return the next events of a run without a live record here; waits for another process to write them."""
        if self._remote_log is not None:
            page = await self._remote_log.page(self._offset, self.seq)
        else:
            page = await self._logs.page(self.run, self._offset, self.seq)
        self._offset = page.offset
        if not page.events:
            self._miss(self.info.seq)
        return page.events

    @property
    def info(self) -> RunInfo:
        """Summary of the run, as far as known, even after all its stored data was removed."""
        return self._info if self._record is not None else self._logs.past.get(self.run, self._info)

    @property
    def reads_log(self) -> bool:
        """True if the next events come from this process's log, so they are not shared and need memory of their own."""
        if self._record is None:
            return self._remote_log is None
        return not self._live and not self._record.has(self.seq)

    def _miss(self, last: int) -> None:
        """Record the events up to `last` as lost."""
        if self.seq < last:
            self.lost = (self.seq + 1, last)
            self.seq = last

    async def _from_log(self, record: LiveRun) -> list[LoggedEvent]:
        """Return the next events that have left the ring; events missing in the log are lost, and the ring follows."""
        page = await self._logs.page(self.run, self._offset, self.seq)
        if not page.events:
            # The writer may still hold them in its queue.
            await self._logs.flush()
            page = await self._logs.page(self.run, self._offset, self.seq)
        self._offset = page.offset
        if page.events:
            return page.events
        self._miss(record.first - 1)
        return record.after(self.seq)


Concerns: TypeAlias = Callable[[Question], bool]
Change: TypeAlias = QuestionAsked | QuestionClosed


class FeedLagged(CallboardError):
    """Error for a reader that was too slow, which ends its feed. A new feed begins with the questions open by then."""

    code = "lagged"


@final
class QuestionFeed:
    """Asynchronous iterator over question changes; a reader more than `bound` changes behind gets `FeedLagged`.

    Args:
        first: initial changes, not counted by `bound`, so that a reader can always subscribe again.
    """

    def __init__(self, bound: int, first: Iterable[Change] = ()) -> None:
        self._items: deque[Change] = deque(first)
        self._bound = bound + len(self._items)
        self._cut = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, item: Change) -> None:
        """Add a change without waiting; beyond the bound, drop all and end the feed."""
        if len(self._items) >= self._bound:
            # The reader cannot catch up without a gap, so its queued changes are useless: free them now.
            self._cut = True
            self._items.clear()
        if not self._cut:
            self._items.append(item)
        self._lot.unpark()

    def __aiter__(self) -> QuestionFeed:
        return self

    async def __anext__(self) -> Change:
        while not self._items:
            if self._cut:
                raise FeedLagged("the subscriber was too slow; subscribe again")
            await self._lot.park()
        return self._items.popleft()


class OpenQuestions:
    """Open questions of all runs.

    Attributes:
        open: open questions by id, oldest first, including the questions of dormant runs.
        held: ids of dormant runs' questions. These stay open, whatever the registry reports, until their run asks
            them again.
    """

    name = "control"

    def __init__(self, bound: int) -> None:
        self.open: dict[str, Question] = {}
        self.held: set[str] = set()
        self._let_go = trio.lowlevel.ParkingLot()
        self._bound = bound
        self._feeds: dict[QuestionFeed, Concerns] = {}

    @contextlib.contextmanager
    def watch(self, concerns: Concerns) -> Iterator[QuestionFeed]:
        """Yield a feed of the open questions of interest, then each change."""
        asked = [_asked(question) for question in self.open.values() if concerns(question)]
        feed = QuestionFeed(self._bound, asked)
        self._feeds[feed] = concerns
        try:
            yield feed
        finally:
            del self._feeds[feed]

    def asked(self, question: Question) -> None:
        """Add a question that was just asked. A question held for a dormant run is already announced, and is not
        announced again.
        """
        # The run of a held question has woken and asks again with the same id.
        known, self.open[question.id] = question.id in self.held, question
        if known:
            self._lets_go(question.id)
        if self._feeds and not known:
            self._notify(question, _asked(question))

    def closed(self, question_id: str, by: str) -> None:
        """Remove a question that the registry closes, unless it is held."""
        question = None if question_id in self.held else self.open.pop(question_id, None)
        if question is not None:
            self._notify(question, QuestionClosed(question_id, by))

    def hold(self, questions: Iterable[Question]) -> None:
        """Hold the questions of a run that is dormant or becoming so, and announce those that were not open."""
        for question in questions:
            self.held.add(question.id)
            if question.id not in self.open:
                self.open[question.id] = question
                self._notify(question, _asked(question))

    def release(self, questions: Iterable[str], by: str) -> None:
        """Close the given questions if they are still held."""
        for id in questions:
            if id in self.held:
                self._lets_go(id)
                self.closed(id, by)

    async def none_held(self, questions: Iterable[str]) -> None:
        """Wait until none of these questions is held any more."""
        while not self.held.isdisjoint(questions):
            await self._let_go.park()

    def _lets_go(self, id: str) -> None:
        self.held.discard(id)
        self._let_go.unpark_all()

    def _notify(self, question: Question, change: Change) -> None:
        for feed, concerns in self._feeds.items():
            if concerns(question):
                feed.put(change)


def _asked(question: Question) -> QuestionAsked:
    return QuestionAsked(msgspec.to_builtins(question))
