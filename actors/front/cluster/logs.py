"""Logs in a cluster: a worker writes events and summaries of its runs into the database, and gateways read them."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control.resources import RunInfo
from ....protocol.decoding import decode_json, json_decoder
from ....protocol.errors import CallboardError, JournalError, ShuttingDown
from ....protocol.events import TERMINAL, LlmDelta, ToolDelta
from ....supervisors.cluster import queries
from ....supervisors.cluster.store import EVENT, INFO
from ....supervisors.journal.row import OVER
from ..control.logs.files import LoggedEvent, LogPage, logged
from ..control.logs.run_logs import RemoteLog, RunLogs
from ..control.logs.writer import Done, RunLog

if TYPE_CHECKING:
    from ....supervisors.cluster.queries import StoredRunState
    from ...work.journal.run_journal import JournaledRun, RowsOut
    from ..control.logs.files import LoggedEvent
    from .membership import ClusterMembership


class ClusterLogs(RunLogs):
    """Logs that read the events of cluster runs from the database, and other events from files.

    Args:
        seat: connection to the database.
        directory, options: see `RunLogs`.
    """

    def __init__(self, seat: ClusterMembership, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self.seat = seat

    def in_cluster(self, run: str) -> bool:
        """Return True if the run's events are in the database."""
        raise NotImplementedError

    async def page(self, run: str, offset: int, after: int, most: int = 1_000_000) -> LogPage:
        if not self.in_cluster(run):
            return await super().page(run, offset, after, most)
        lines = await self.seat.read(lambda db: queries.events_after(db, run, after))
        events = [event for line in lines if (event := logged(line)).seq > after]
        return LogPage(events[:most], offset)

    async def last(self, run: str) -> LoggedEvent | None:
        if not self.in_cluster(run):
            return await super().last(run)
        line = await self.seat.read(lambda db: queries.last_event(db, run))
        return None if line is None else logged(line)


LOOK_EVERY = 1.0
"""Seconds between two reads of a run's events without a notification."""

AGAIN_AFTER = 2.0
"""Seconds before a new attempt to subscribe at a worker."""

UNHEARD = 30.0
"""Seconds without a follower after which the subscription at the worker ends."""

MOST_LIVE = 2_000
"""Events of a run that are buffered for its followers."""

log = logging.getLogger("callboard.cluster")


class GatewayLogs(ClusterLogs):
    """Logs of a gateway.

    Attributes:
        cluster: ids of the known cluster runs.
        nursery: nursery for subscriptions at workers.
        follow: subscribes to a run at its worker.
    """

    nursery: trio.Nursery
    follow: Callable[[str, int, Callable[[msgspec.Raw], None]], Awaitable[None]]

    def __init__(self, seat: ClusterMembership, directory: Path, **options: Any) -> None:
        super().__init__(seat, directory, **options)
        self.cluster: set[str] = set()
        self._news: dict[str, trio.Event] = {}

    def in_cluster(self, run: str) -> bool:
        """Return True for a known run of the cluster."""
        return run in self.cluster

    def stands(self, info: RunInfo) -> None:
        """Store the newest summary of a cluster run in memory."""
        self.cluster.add(info.run)
        self.past[info.run] = info

    def forget(self, run: str) -> None:
        """Forget a deleted run, and wake the tasks that wait for its news."""
        self.cluster.discard(run)
        self.past.pop(run, None)
        self.wake(run)

    def wake(self, run: str) -> None:
        """Wake the tasks that wait for news of a run."""
        if (news := self._news.pop(run, None)) is not None:
            news.set()

    def wake_all(self) -> None:
        """Wake all tasks that wait for news."""
        for run in list(self._news):
            self.wake(run)

    async def news(self, run: str) -> None:
        """Wait for news of a run, at most `LOOK_EVERY` seconds."""
        with trio.move_on_after(LOOK_EVERY):
            await self._news.setdefault(run, trio.Event()).wait()

    def get(self, run: str, *, patient: bool = False) -> RunInfo | None:
        """Return a run, or None if it is unknown. A cluster run comes from memory; for others, see `RunLogs.get`."""
        return self.past.get(run) if run in self.cluster else super().get(run, patient=patient)

    async def is_over(self, run: str) -> bool:
        """Return True if the run has ended or was deleted."""
        if run not in self.cluster:
            return await super().is_over(run)
        return (info := self.past.get(run)) is None or info.over

    def remote_log(self, run: str) -> RemoteLog:
        """Return the shared reader of the run's events."""
        if run not in self.cluster:
            return super().remote_log(run)
        found = self._followed.get(run)
        if found is None:
            found = self._followed[run] = _Followed(self, run)
        return found

    async def rescan(self, ours: Collection[str]) -> None:
        """Update the index of local runs; `ClusterGateway` updates cluster runs."""
        await super().rescan({*ours, *self.cluster})


class _Followed(RemoteLog):
    """Shared reader of a cluster run: events from the database, and live ones from the worker if it can be reached."""

    def __init__(self, logs: GatewayLogs, run: str) -> None:
        super().__init__(logs, run)
        self._gateway = logs
        self._live: deque[LoggedEvent] = deque()
        self._from = 0
        self._listens = False
        self._again = trio.current_time()
        self._heard = trio.CancelScope()

    async def page(self, offset: int, after: int) -> LogPage:
        """Return the next events after a number; none once the run is over and all were read."""
        logs = self._gateway
        while True:
            self._heard.deadline = trio.current_time() + UNHEARD
            # `_live` has all events after `_from`, without gaps; an older reader must use the database.
            if after >= self._from and (live := [event for event in self._live if event.seq > after]):
                return LogPage(live, offset)
            over = await logs.is_over(self._run)  # before the read: events that are missing after the end never appear
            page = await logs.page(self._run, offset, after)
            if page.events or over:
                return page
            if not self._listens and trio.current_time() >= self._again:
                self._listens, self._from = True, after
                logs.nursery.start_soon(self._listen)
            await logs.news(self._run)

    async def _listen(self) -> None:
        """Receive events from the run's worker while followers exist."""
        try:
            with trio.CancelScope(deadline=trio.current_time() + UNHEARD) as self._heard:
                await self._gateway.follow(self._run, self._from, self._take)
        except CallboardError as error:
            log.debug("%s", error)
        finally:
            # Gaps may follow: readers continue from the database until a new subscription begins.
            self._live.clear()
            self._listens, self._again = False, trio.current_time() + AGAIN_AFTER

    def _take(self, line: msgspec.Raw) -> None:
        self._live.append(logged(bytes(line)))
        if len(self._live) > MOST_LIVE:
            self._from = self._live.popleft().seq
        self._gateway.wake(self._run)


PIECES = {LlmDelta.kind, ToolDelta.kind}
"""Kinds of events that are merged or dropped."""


class WorkerLogs(ClusterLogs):
    """Logs of the runs that this worker executes.

    Attributes:
        kept: durable runs of this process, by id (`Root.kept`).
        nursery: nursery for waits on the database.
        redact: removes secrets from JSON.
    """

    kept: dict[str, JournaledRun]
    nursery: trio.Nursery
    redact: Callable[[bytes], bytes]

    def __init__(self, seat: ClusterMembership, directory: Path, **options: Any) -> None:
        super().__init__(seat, directory, **options)
        self._overs: dict[str, Callable[[], None]] = {}
        self._ended: dict[str, RowsOut | None] = {}

    def in_cluster(self, run: str) -> bool:  # noqa: ARG002  - all runs of a worker are
        """Return True: a worker executes cluster runs only."""
        return True

    def begin(self, info: RunInfo, on_trouble: Done) -> RunLog:
        return ClusterLog(self, info.run, self.directory / info.run, on_trouble)

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """Record the callback that stores the end of a run; it is called after its last event is queued.

        See `RunCallbacks.holds`. The callback and the last event arrive in either order.
        """
        if run not in self._ended:
            self._overs[run] = over
            return
        rows = self._ended.pop(run)
        over()
        if rows is not None:
            rows.hurry()

    def rows(self, run: str) -> RowsOut | None:
        """Return the journal of a run, or None."""
        kept = self.kept.get(run)
        return None if kept is None else kept.rows

    def says_over(self, run: str, rows: RowsOut | None) -> None:
        """Store the end of a run, whose last event is queued: now, or when `holds` gets the callback for it."""
        over = self._overs.pop(run, None)
        if over is not None:
            over()
        else:
            self._ended[run] = rows  # a turn of a session, which ends once its messages are stored

    def forget_end(self, run: str) -> None:
        """Forget a run that has left this worker."""
        self._ended.pop(run, None)


class ClusterLog(RunLog):
    """Log of one cluster run, which this worker writes into the database."""

    def __init__(self, logs: WorkerLogs, run: str, directory: Path, on_trouble: Done) -> None:
        super().__init__(logs.writer, directory, on_trouble)
        self._logs = logs
        self._run = run
        self._rows: RowsOut | None = None
        self._last: LoggedEvent | None = None
        self._pieces: dict[tuple[str, str], tuple[bytes, list[str]]] = {}  # by actor and request

    @property
    def rows(self) -> RowsOut | None:
        """Journal of the run; None until it is known."""
        if self._rows is None:
            self._rows = self._logs.rows(self._run)
        return self._rows

    def append(self, line: bytes) -> None:
        """Queue an event for storage; pieces of a model's text are joined into one, pieces of tool output dropped.

        The terminal event is stored by `close`. Without a journal, events are dropped.
        """
        event = logged(line)
        if event.kind in PIECES:
            if event.kind == LlmDelta.kind:
                piece = _PIECE.decode(line)
                self._pieces.setdefault((piece.actor, piece.id), (line, []))[1].append(piece.data.text)
            return
        self._append_texts()
        if event.kind in TERMINAL:
            self._last = event
        elif (rows := self.rows) is not None:
            rows.store_data(EVENT, str(event.seq), line)

    def _append_texts(self) -> None:
        """Store the model texts since the last stored event."""
        pieces, self._pieces = self._pieces, {}
        if not pieces or (rows := self.rows) is None:
            return
        for first, texts in pieces.values():
            whole = decode_json(first, dict[str, Any])
            whole["data"] = {**whole["data"], "text": "".join(texts)}
            # Redact again: a secret may have been split between two deltas.
            line = self._logs.redact(msgspec.json.encode(whole))
            rows.store_data(EVENT, str(whole["seq"]), line)

    def summarise(self, info: RunInfo) -> None:
        self.stands(info)

    def stands(self, info: RunInfo) -> None:
        """Queue a changed summary; `close` stores the final one."""
        if not info.over and (rows := self.rows) is not None:
            rows.store_data(INFO, "", msgspec.json.encode(info))
            rows.hurry()

    def close(self, info: RunInfo, done: Done) -> None:
        """Queue the last event and the summary before or together with the end of the run, never after it.

        Otherwise, a worker that dies in between would leave a finished run without them. Until the end is stored,
        `info_of` ignores both.
        """
        if (rows := self.rows) is not None:
            if self._last is not None:
                rows.store_data(EVENT, str(self._last.seq), self._last.data)
            rows.store_data(INFO, "", msgspec.json.encode(info))
        self._logs.says_over(self._run, rows)
        if rows is not None:
            rows.hurry()
        self._logs.nursery.start_soon(partial(_closed, self.rows, done))


class _Text(msgspec.Struct, gc=False):
    text: str


class _Piece(msgspec.Struct, gc=False):
    data: _Text
    actor: str = ""
    id: str = ""


_PIECE = json_decoder(_Piece)


async def _closed(rows: RowsOut | None, done: Done) -> None:
    if rows is not None:
        with contextlib.suppress(JournalError, ShuttingDown):  # another worker has the run, or it will be resumed
            await rows.barrier()
    done()


def info_of(stored: StoredRunState) -> RunInfo | None:
    """Return the summary of a run from its database row; None if it has no summary yet.

    The row decides the status: a final summary is shown as running until the row records the end.
    """
    if not stored.info:
        return None
    info = decode_json(stored.info, RunInfo)
    # The worker stores the final summary before the end (`ClusterLog.close`): show the run as running until then.
    if info.over and info.status != "interrupted" and stored.state != OVER:
        info = msgspec.structs.replace(info, status="running", ended=None, error=None, exit_code=None, output="")
    if stored.state == OVER:
        if not info.over:  # the worker died between the last row and the last event
            info.status, info.open_questions = "lost", 0
    elif stored.parked:
        info.status, info.resumable, info.stuck = "interrupted", True, info.error is None
    elif not stored.is_taken:
        info.status = "queued"
    elif info.status == "queued":
        info.status = "running"
    info.life = max(1, stored.life)
    if stored.state != OVER:  # a finished run keeps the name of its last worker
        info.worker = stored.worker
    return info
