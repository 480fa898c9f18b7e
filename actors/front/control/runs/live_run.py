"""Live run of the hub: summary, newest events in memory, and tasks that wait for the next one.

Each event is encoded once, when it happens. The log, the ring in memory and all readers share those bytes. The ring is
bounded, however slow its readers are; older events are read from the log.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import trio

from .....protocol.control.resources import RunInfo
from .....protocol.events import SCHEMA_VERSION, TERMINAL, Event, decode, encode
from .....protocol.outcome import ErrorReport
from ....views.run_view import RunView
from ..logs.files import LoggedEvent
from ..logs.writer import RunLog
from .summary import CONCERNS, rfc3339, sum_up

log = logging.getLogger("callboard.control")


NEVER = ("cannot_go_on", "journal_damaged")
"""Error codes after which no process can resume a run."""


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the hub, and defaults of its runs.

    Attributes:
        ring_events, ring_bytes: size of the ring of each live run.
        max_runs: maximum number of runs under way; 0 for any number.
        questions: number of question changes that a reader may be behind.
        keep_runs: number of finished runs to retain on disk, newest first; 0 for all.
        keep_requests: record the model calls of runs unless the settings disable it, as at a terminal. If false, they
            are recorded only if the settings enable it.
        durable: whether runs are durable, so that another process can resume them; see `RunCallbacks`.
        by: kind of program that executes the runs, for lists.
    """

    ring_events: int = 1024
    ring_bytes: int = 1024 * 1024
    max_runs: int = 0
    questions: int = 10_000
    keep_runs: int = 1000
    keep_requests: bool = False
    durable: bool | None = False
    by: str = ""


@dataclass(eq=False, repr=False)
class LiveRun:
    """Run under way in this process, with its ring of events.

    Attributes:
        info: summary of the run, kept up to date.
        log: log on disk.
        on_disk: called when the run is over and its log is complete.
        options: size of the ring.
        redact: removes secrets from an encoded event.
        view: state derived from the events. The parts shown in the summary contain no secrets; other parts may.
        ring: newest events, without gaps.
        first: number of the first event in the ring.
        earlier: number of the last event in the log from earlier incarnations.
        begins: number of the first event of this incarnation.
        over: whether the run has ended or is dormant; no event is added from then on.
    """

    info: RunInfo
    log: RunLog
    on_disk: Callable[[], None]
    options: HubOptions
    redact: Callable[[bytes], bytes] | None = None
    view: RunView = field(default_factory=RunView)
    ring: deque[LoggedEvent] = field(default_factory=deque)
    first: int = 1
    begins: int = 1
    earlier: int = 0
    over: bool = False
    _goes_on: bool = False
    _bytes: int = 0
    _news: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    _ends: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    @property
    def seq(self) -> int:
        """Number of the newest event."""
        return self.info.seq

    def goes_on(self) -> None:
        """Mark the run as resumed: earlier incarnations have events in the log, with other numbers."""
        self._goes_on = True
        self.earlier = self.info.seq
        self.first = self.begins = self.info.seq + 1

    def has(self, seq: int) -> bool:
        """Return True if the event after this number is in the ring, or will be."""
        return seq + 1 >= self.first or (self.earlier <= seq and self.first == self.begins)

    def add(self, event: Event) -> None:
        """Add an event to the ring, the log and the summary; ignored once the run is over."""
        if self.over:
            return
        data = event.data
        line = _encoded(event)
        if self.redact is not None:
            line, told = self.redact(line), line
            if type(data) in CONCERNS and line != told:  # the summary must not contain the secret either
                event = decode(line) or event
        logged = LoggedEvent(event.seq, event.kind, line, event.actor)
        ring, options = self.ring, self.options
        if not ring and self._goes_on:
            self.first = self.begins = event.seq
        ring.append(logged)
        self._bytes += len(line)
        while len(ring) > options.ring_events or (self._bytes > options.ring_bytes and len(ring) > 1):
            self._bytes -= len(ring.popleft().data)
            self.first = ring[0].seq if ring else event.seq + 1
        self.info.seq = event.seq
        self.log.append(line)
        try:
            self.view.see(event)
            if type(data) in CONCERNS:
                sum_up(self.info, self.view, event)
                self.log.stands(self.info)
        except Exception:  # logged: a run must end for its readers even if its summary fails
            log.exception("the summary of %s can't be updated", event.run)
        if event.kind in TERMINAL:
            self._end()
        if self._news:
            self._news.unpark_all()

    def lose(self) -> None:
        """End a run that stopped without a terminal event; its status becomes `lost`."""
        if not self.over:
            self.info.status, self.info.ended, self.info.open_questions = "lost", rfc3339(datetime.now(UTC)), 0
            self._end()
            self._news.unpark_all()

    def stay(self, why: ErrorReport | None = None) -> None:
        """End the record of a run that does not resume here after all; `why` has the reason, if any."""
        if not self.over:
            self.info.status, self.info.error = "interrupted", why
            self.info.resumable = why is None or why.code not in NEVER
            self._end()
            self._news.unpark_all()

    @property
    def attended(self) -> bool:
        """True if a task waits for the run's next event or its end."""
        return bool(self._news or self._ends)

    def sleep(self) -> None:
        """End the record without changing the summary, because the run becomes dormant."""
        self._end()

    async def more_than(self, seq: int) -> None:
        """Wait for an event after this number, or for the end. A checkpoint only if it has to wait."""
        while self.seq <= seq and not self.over:
            await self._news.park()

    async def ended(self) -> None:
        """Wait for the end only, without a wake-up per event. A checkpoint only if it has to wait."""
        while not self.over:
            await self._ends.park()

    def after(self, seq: int) -> list[LoggedEvent]:
        """Return the events in the ring after this number, which must not precede the ring."""
        ring, skip = self.ring, max(0, seq + 1 - self.first)
        # A deque is slow to index in its middle, so iterate from the nearer end.
        if skip * 2 < len(ring):
            return [event for event in ring if event.seq > seq]
        newest: list[LoggedEvent] = []
        for event in reversed(ring):
            if event.seq <= seq:
                break
            newest.append(event)
        newest.reverse()
        return newest

    def _end(self) -> None:
        self.over = True
        self._ends.unpark_all()
        self.log.close(self.info, self.on_disk)


def _encoded(event: Event) -> bytes:
    try:
        return encode(event)
    except (TypeError, ValueError, RecursionError):  # mostly a lone surrogate in the output of a program
        log.warning("event %d of %s (%s) can't be encoded as JSON unchanged", event.seq, event.run, event.kind)
    told = {"schema_version": SCHEMA_VERSION, **{name: getattr(event, name) for name in event.__struct_fields__}}
    told["ts"] = rfc3339(event.ts)
    try:
        text = json.dumps({**told, "data": msgspec.structs.asdict(event.data)}, default=repr, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # keep the number: ring and log must have no gaps
        text = json.dumps({**told, "data": {}}, default=repr, ensure_ascii=False)
    return msgspec.json.encode(msgspec.json.decode(text.encode(errors="replace")))
