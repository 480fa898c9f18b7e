"""Subscriptions: every event of a run after a number, first those in the log, then each as it happens.

A reader has no queue of its own. It keeps the number of its last event, and takes the next ones from the run's ring in
memory, or from the log if they have left that: so any number of readers cost next to nothing, and none of them can
make the run wait. A live reader that is too slow for the ring gets `Lagged`; when it has time again, it subscribes
anew after its last event, and reads from the log what it has missed.

Of a run in another process there is only the log, which is polled (`logs.elsewhere`).
"""

from __future__ import annotations

from collections import deque
from typing import Self

from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError
from .logs.reading import LoggedEvent
from .logs.runs import RunLogs
from .runs.live_run import LiveRun


class Lagged(CallboardError):
    """The reader was too slow. Subscribe again with `after`; nothing is lost.

    Attributes:
        after: number of the event it was given last.
        seq: number of the newest one.
    """

    code = "lagged"

    def __init__(self, after: int, seq: int) -> None:
        super().__init__(f"the reader is {seq - after} events behind; subscribe again after {after}")
        self.after = after
        self.seq = seq


class Subscription:
    """See the module.

        with hub.subscribe(caller, run, after=0) as events:
            async for event in events:
                ...

    Attributes:
        run: id of the run.
        seq: number of the event that was given last.
        lost: first and last number of events that can't be had any more, if the log could not be written.
    """

    def __init__(self, logs: RunLogs, info: RunInfo, record: LiveRun | None, after: int) -> None:
        self.run = info.run
        self.seq = after
        self._info = info
        logs.readers.add(self)
        self.lost: tuple[int, int] | None = None
        self._logs = logs
        self._record = record
        self._elsewhere = logs.elsewhere(info.run) if record is None and not info.over else None
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
        """As iterating, but all that are at hand; none at the end. The caller moves `seq` on.

        Raises:
            Lagged: see the module.
        """
        record = self._record
        if record is None:
            return await self._written()
        if record.has(self.seq):
            self._live = True
            await record.more_than(self.seq)
        if record.has(self.seq):
            return record.after(self.seq)
        if self._live:
            raise Lagged(self.seq, record.seq)
        return await self._from_log(record)

    async def _written(self) -> list[LoggedEvent]:
        """The next events of a run that is not under way here; what another process still writes is waited for."""
        if self._elsewhere is not None:
            page = await self._elsewhere.page(self._offset, self.seq)
        else:
            page = await self._logs.page(self.run, self._offset, self.seq)
        self._offset = page.offset
        if not page.events:
            self._miss(self.info.seq)
        return page.events

    @property
    def info(self) -> RunInfo:
        """The run, as far as it is known; also when all that was kept of it has been removed."""
        return self._info if self._record is not None else self._logs.past.get(self.run, self._info)

    @property
    def reads_log(self) -> bool:
        """Whether the next events come from the log of this process, so that they are ours alone and take room."""
        if self._record is None:
            return self._elsewhere is None
        return not self._live and not self._record.has(self.seq)

    def _miss(self, last: int) -> None:
        """What comes up to this number can't be had any more."""
        if self.seq < last:
            self.lost = (self.seq + 1, last)
            self.seq = last

    async def _from_log(self, record: LiveRun) -> list[LoggedEvent]:
        """The next events that have left the ring. What is not in the log is lost, and the ring goes on after it."""
        page = await self._logs.page(self.run, self._offset, self.seq)
        if not page.events:
            await self._logs.flush()
            page = await self._logs.page(self.run, self._offset, self.seq)
        self._offset = page.offset
        if page.events:
            return page.events
        self._miss(record.first - 1)
        return record.after(self.seq)
