"""A run under way, as the hub has it: its summary, its newest events in memory, and who waits for the next one.

Each event is encoded once, when it happens; the log, the ring in memory and all who watch share those bytes. The ring
is bounded, however slow its readers; what has fallen out of it is read back from the log.
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

from .....protocol.control.things import RunInfo
from .....protocol.events import SCHEMA_VERSION, TERMINAL, Event, encode
from .....protocol.events.decode import decode
from .....protocol.outcome import ErrorReport
from ....views.run_view import RunView
from ..logs.reading import LoggedEvent
from ..logs.writer import RunLog
from .summary import CONCERNS, rfc3339, sum_up

log = logging.getLogger("callboard.control")


NEVER = ("cannot_go_on", "journal_damaged")
"""Codes of errors for which a run can't go on, whoever tries."""


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How much the hub holds.

    Attributes:
        ring_events, ring_bytes: of each run that is under way, kept in memory.
        max_runs: how many may be under way at a time; 0 for any number.
        questions: how many changes of questions a reader may be behind.
        keep_runs: how many runs that are over are kept on disk, the newest; 0 for all.
        keep_requests: what the models of its runs see and say is kept beside their logs, unless the settings say no; so
            it is at a terminal. Without it, it is kept if the settings say yes.
        durable: whether its runs are kept so that another process can go on with them; see `Hooks`.
        by: what plays them, for lists of those.
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
    """See the module.

    Attributes:
        info: the run's summary, which is kept up to date.
        log: where it is written down.
        on_disk: called when it is over and the log is complete.
        options: how much of it stays in memory.
        redact: takes secrets out of an encoded event.
        view: what its events come to; in what the summary tells there are no secrets, in the rest as they are.
        ring: its newest events, without gaps.
        first: number of the first event in the ring.
        earlier: number of the last event that the log has of earlier processes; its own begin at `begins`.
        over: whether it has ended, or is dormant: nothing will be added.
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
        """Its log has events of a process that has played it before; its own have other numbers."""
        self._goes_on = True
        self.earlier = self.info.seq
        self.first = self.begins = self.info.seq + 1

    def has(self, seq: int) -> bool:
        """Whether what comes after this number is in the ring, or will be."""
        return seq + 1 >= self.first or (self.earlier <= seq and self.first == self.begins)

    def add(self, event: Event) -> None:
        """An event has happened; after the run's last one there is none."""
        if self.over:
            return
        data = event.data
        line = _encoded(event)
        if self.redact is not None:
            line, told = self.redact(line), line
            if type(data) in CONCERNS and line != told:  # the summary is shown as well
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
        except Exception:  # reported; a run must come to its end here even if we can't sum it up
            log.exception("%s can't be summed up", event.run)
        if event.kind in TERMINAL:
            self._end()
        if self._news:
            self._news.unpark_all()

    def lose(self) -> None:
        """No end was told, and none will be: it is over all the same."""
        if not self.over:
            self.info.status, self.info.ended, self.info.open_questions = "lost", rfc3339(datetime.now(UTC)), 0
            self._end()
            self._news.unpark_all()

    def stay(self, why: ErrorReport | None = None) -> None:
        """It does not go on here after all; `why` it can't."""
        if not self.over:
            self.info.status, self.info.error = "interrupted", why
            self.info.resumable = why is None or why.code not in NEVER
            self._end()
            self._news.unpark_all()

    @property
    def attended(self) -> bool:
        """Whether somebody waits for its next event, or its end."""
        return bool(self._news or self._ends)

    def sleep(self) -> None:
        """It waits for people alone, and is played no more until an answer comes: it stays as it is now."""
        self._end()

    async def more_than(self, seq: int) -> None:
        """Wait for an event after this number, or the end. A checkpoint only if it has to wait."""
        while self.seq <= seq and not self.over:
            await self._news.park()

    async def ended(self) -> None:
        """Wait for the end alone, which costs nothing per event. A checkpoint only if it has to wait."""
        while not self.over:
            await self._ends.park()

    def after(self, seq: int) -> list[LoggedEvent]:
        """The events in the ring after this number, which must not be before the ring."""
        ring, skip = self.ring, max(0, seq + 1 - self.first)
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
    except (TypeError, ValueError, RecursionError):  # half a surrogate pair in what a program printed, mostly
        log.warning("event %d of %s (%s) is no JSON as it is", event.seq, event.run, event.kind)
    told = {"schema_version": SCHEMA_VERSION, **{name: getattr(event, name) for name in event.__struct_fields__}}
    told["ts"] = rfc3339(event.ts)
    try:
        text = json.dumps({**told, "data": msgspec.structs.asdict(event.data)}, default=repr, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # numbered it is in any case: a gap would be the end of the log
        text = json.dumps({**told, "data": {}}, default=repr, ensure_ascii=False)
    return msgspec.json.encode(msgspec.json.decode(text.encode(errors="replace")))
