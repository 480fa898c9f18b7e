"""Subscriptions to the events of a run: stored events first, then each new one.

A reader has no queue of its own. It stores the number of its last event, and fetches the next ones from the run's ring
in memory. Events that have left the ring come from the log. So readers cost almost no memory, and no reader can block
the run.

A live reader that is too slow for the ring gets `Lagged`. It then subscribes again after its last event and reads the
missed ones from the log.

The events of a run in another process are only in its log, which `logs.remote_log` polls.
"""

from __future__ import annotations

from collections import deque
from typing import Self

from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError
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
        super().__init__(f"the reader is {seq - after} events behind; subscribe again after {after}")
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
