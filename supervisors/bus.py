"""Event bus: one gapless event stream per run, and a bus that carries the streams of all runs.

An actor publishes on its run's `Stream`, which calls the listeners at once, in the publisher's task. A listener must be
quick and must not await. A reader that may be slow (a websocket, a file on a network disk) uses a `Feed` instead, a
bounded queue of its own, so that it stalls no publisher. A full feed drops the oldest event and counts it, or ends; the
reader chooses.

Without listeners an event costs one attribute look-up: publishers check `stream.heard` first.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Literal, Protocol, final

import trio

from ..protocol.kernel.errors import ShuttingDown
from ..protocol.kernel.events import Event, EventData
from .user_code import failure_of

Listener = Callable[[Event], None]
Overflow = Literal["drop_oldest", "end"]

RESOLUTION = 0.0001
"""Seconds within which events get the same time. Their sequence numbers give the order."""

log = logging.getLogger("callboard.bus")


class EventSource(Protocol):
    """An actor, as far as an event names it."""

    @property
    def path(self) -> str: ...
    @property
    def parent(self) -> EventSource | None: ...


@final
class Feed:
    """A bounded queue of events for one slow reader: `async for event in feed`.

    Attributes:
        dropped: number of events lost because the reader was too slow (`drop_oldest`).
        cut: True if the feed ended because the reader was too slow (`end`).
    """

    def __init__(self, bound: int, overflow: Overflow) -> None:
        self.dropped = 0
        self.cut = False
        self._overflow: Overflow = overflow
        self._bound = bound
        self._events: deque[Event] = deque()
        self._closed = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, event: Event) -> None:
        """Append one event; never waits. If the queue is full, drop the oldest event or close the feed (`overflow`)."""
        if self._closed:
            return
        if len(self._events) >= self._bound:
            if self._overflow == "end":
                self.cut = True
                self.close()
                return
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._lot.unpark()

    def close(self) -> None:
        """Accept no more events. The reader receives the remaining ones, then the end."""
        self._closed = True
        self._lot.unpark_all()

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._lot.park()
        return self._events.popleft()


class _Listeners:
    """The listeners of a stream or of the bus."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()

    @contextlib.contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Call `listener` for every event of this run (bus: of every run) while the block lasts."""
        self.add(listener)
        try:
            yield
        finally:
            self.drop(listener)

    def add(self, listener: Listener) -> None:
        """Call `listener` for every event from now on."""
        self.listeners = (*self.listeners, listener)
        self.retune()

    def drop(self, listener: Listener) -> None:
        """Stop calling `listener`."""
        self.listeners = tuple(each for each in self.listeners if each is not listener)
        self.retune()

    def retune(self) -> None:
        """Update the cached listeners after a change."""
        raise NotImplementedError


@final
class Stream(_Listeners):
    """The events of one run, numbered from 1 without gaps.

    Attributes:
        run: id of the run.
        heard: True if it has listeners. Check it before building an event.
    """

    __slots__ = ("_bus", "_deferred", "_publishing", "_receivers", "_seq", "heard", "run")

    def __init__(self, bus: Bus, run: str, after: int = 0) -> None:
        super().__init__()
        self.run: str = run
        self._bus = bus
        self._deferred: list[Event] = []
        self._publishing = False
        self._seq = after
        self._receivers: tuple[Listener, ...]
        self.heard: bool
        self.retune()

    def publish(self, actor: EventSource, data: EventData, *, id: str = "", corr: str = "") -> None:
        """Number an event about `actor` and call all listeners with it.

        A listener that raises is logged and dropped. An event that a listener publishes is delivered after the current
        one.
        """
        bus = self._bus
        if bus.rewrite is not None:
            data = bus.rewrite(data)
        self._seq += 1
        parent = actor.parent
        # Inline: a call for the time of each event took a tenth of the CPU of a graph's node.
        if bus.now is not None:
            ts = bus.now()
        elif 0 <= (seconds := time.time()) - bus.read_at < RESOLUTION:
            ts = bus.time
        else:
            bus.read_at = seconds
            ts = bus.time = datetime.fromtimestamp(seconds, UTC)
        # By position: keywords would take a third longer.
        path, above = actor.path, "" if parent is None else parent.path
        event = Event(self._seq, ts, self.run, path, data.kind, data, above, id, corr)
        if self._publishing:  # a listener publishes: every listener must see the current event first
            self._deferred.append(event)
            return
        self._publishing = True
        try:
            for listener in self._receivers:
                try:
                    listener(event)
                except BaseException as error:  # noqa: BLE001 - logged; a broken listener must not fail the publisher
                    self._drop_broken(listener, event, error)
            while self._deferred:
                event = self._deferred.pop(0)
                for listener in self._receivers:
                    try:
                        listener(event)
                    except BaseException as error:  # noqa: BLE001 - as above
                        self._drop_broken(listener, event, error)
        finally:
            self._publishing = False

    def _drop_broken(self, listener: Listener, event: Event, error: BaseException) -> None:
        failure_of(error)
        if any(each is listener for each in self.listeners):
            self.drop(listener)
        else:
            self._bus.drop(listener)
        log.error("an event listener raised on %s and is no longer called", event.kind, exc_info=error)

    def retune(self) -> None:
        """Combine the listeners of this run with those of the bus."""
        self._receivers = (*self.listeners, *self._bus.listeners)
        self.heard = bool(self._receivers)


@final
class Bus(_Listeners):
    """All events of one root: the streams of its runs, and the kernel's own (`run` = "").

    `listen` may be called from any thread; listeners are called in the root's loop, and a `feed` is read there.

    Args:
        in_loop: calls a function in the loop of the root; see `Root.in_loop`.

    Attributes:
        rewrite: replaces an event's data before any listener sees it (redaction); None for no change. It must be quick.
        now: the clock that dates events; None for the time of day, which is read again after `RESOLUTION`, because
            building a `datetime` costs as much as the rest of an event.
        read_at, time: when the time of day was last read, in seconds since 1970 and as a `datetime`.
    """

    def __init__(self, in_loop: Callable[[Callable[[Listener], None], Listener], None] | None = None) -> None:
        super().__init__()
        self._in_loop = in_loop
        self.rewrite: Callable[[EventData], EventData] | None = None
        self.now: Callable[[], datetime] | None = None
        self.read_at: float = 0.0
        self.time: datetime = datetime.fromtimestamp(0, UTC)
        self._streams: dict[str, Stream] = {}
        self.kernel: Stream = self.open("")

    def add(self, listener: Listener) -> None:
        """Call `listener` for every event from now on. From any thread."""
        if self._in_loop is None:
            super().add(listener)
        else:
            self._in_loop(super().add, listener)

    def drop(self, listener: Listener) -> None:
        """Stop calling `listener`. From any thread; no effect once the root has ended."""
        if self._in_loop is None:
            super().drop(listener)
        else:
            with contextlib.suppress(ShuttingDown):
                self._in_loop(super().drop, listener)

    def open(self, run: str, *, after: int = 0) -> Stream:
        """Open a stream for run `run`; its first event has the number `after + 1`."""
        stream = self._streams[run] = Stream(self, run, after)
        return stream

    def is_open(self, run: str) -> bool:
        """Return whether this run has an open stream."""
        return run in self._streams

    def close(self, stream: Stream) -> None:
        """Forget the stream of a run that has ended."""
        self._streams.pop(stream.run, None)

    @contextlib.contextmanager
    def feed(self, bound: int = 10_000, overflow: Overflow = "drop_oldest") -> Iterator[Feed]:
        """Open a bounded queue of all events while the block lasts, for a reader that may be slow.

        Args:
            bound: most events that wait.
            overflow: reaction to one more: `drop_oldest` drops the oldest and counts it, `end` closes the feed.
        """
        feed = Feed(bound, overflow)
        with self.listen(feed.put):
            try:
                yield feed
            finally:
                feed.close()

    def retune(self) -> None:
        """Update all streams after a listener was added or dropped."""
        for stream in self._streams.values():
            stream.retune()
