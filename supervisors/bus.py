"""Events: one gapless stream per run, and a bus that sees them all.

An actor publishes on its run's `Stream`, which calls its listeners at once, in the publisher's task: a callback
must be quick and must not await. A reader that may be slow (a websocket, a file on a network disk) takes a
`Feed` instead: a bounded queue of its own, so it stalls no publisher. What a full feed does is the reader's choice:
drop the oldest event (and count it), or end the feed.

Without listeners an event costs one attribute look-up: publishers ask `stream.heard` first.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, final

import trio

from ..protocol.kernel.errors import ShuttingDown
from ..protocol.kernel.events import Event, EventData
from .user_code import failure_of

if TYPE_CHECKING:
    from .life import Life

Listener = Callable[[Event], None]
Overflow = Literal["drop_oldest", "end"]

RESOLUTION = 0.0001
"""Seconds within which events have the same time. Their numbers say which was first."""

log = logging.getLogger("callboard.bus")


@final
class Feed:
    """A bounded queue of events for one slow reader: `async for event in feed`.

    Attributes:
        dropped: events lost because the reader was too slow (`drop_oldest`).
        cut: whether the feed ended for that reason (`end`).
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
        """Take one event; never waits."""
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
        """No more events: the reader gets what is left, then the end."""
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


class _Heard:
    """What listeners listen to."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()

    @contextlib.contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Call `listener` for every event, of this run or of every run, while the block lasts."""
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
        self.listeners = tuple(kept for kept in self.listeners if kept is not listener)
        self.retune()

    def retune(self) -> None:
        """Find out again who listens."""
        raise NotImplementedError


@final
class Stream(_Heard):
    """The events of one run, numbered from 1 without gaps.

    Attributes:
        run: id of the run.
        heard: whether it has listeners. Ask before building an event.
    """

    __slots__ = ("_behind", "_bus", "_hearers", "_seq", "_telling", "heard", "run")

    def __init__(self, bus: Bus, run: str, after: int = 0) -> None:
        super().__init__()
        self.run = run
        self._bus = bus
        self._behind: list[Event] = []
        self._telling = False
        self._seq = after
        self._hearers: tuple[tuple[Listener, Callable[[Listener], None]], ...]
        self.heard: bool
        self.retune()

    def publish(self, actor: Life, data: EventData, *, id: str = "", corr: str = "") -> None:
        """Number an event about `actor` and hand it to all listeners."""
        if self._bus.rewrite is not None:
            data = self._bus.rewrite(data)
        self._seq += 1
        parent = actor.parent
        event = Event(
            seq=self._seq,
            ts=self._bus.now(),
            run=self.run,
            actor=actor.path,
            parent="" if parent is None else parent.path,
            kind=data.kind,
            id=id,
            corr=corr,
            data=data,
        )
        if self._telling:  # a listener's own doing: it comes after this event for all
            self._behind.append(event)
            return
        self._telling = True
        try:
            while True:
                for listener, drop in self._hearers:
                    try:
                        listener(event)
                    except BaseException as error:  # reported; it must not break who publishes
                        failure_of(error)
                        drop(listener)
                        log.exception("an event listener raised on %s and is no longer called", event.kind)
                if not self._behind:
                    break
                event = self._behind.pop(0)
        finally:
            self._telling = False

    def retune(self) -> None:
        """See `_Heard`."""
        mine = [(listener, self.drop) for listener in self.listeners]
        self._hearers = (*mine, *((listener, self._bus.drop) for listener in self._bus.listeners))
        self.heard = bool(self._hearers)


class _Clock:
    """The time of day. What happens within `RESOLUTION` has the same: a `datetime` costs as much as an event."""

    def __init__(self) -> None:
        self._read = 0.0
        self._now = datetime.fromtimestamp(0, UTC)

    def __call__(self) -> datetime:
        seconds = time.time()
        if not 0 <= seconds - self._read < RESOLUTION:
            self._read, self._now = seconds, datetime.fromtimestamp(seconds, UTC)
        return self._now


@final
class Bus(_Heard):
    """Everything that happens under one root: all runs' streams, and the kernel's own (`run` = "").

    `listen` is for any thread; listeners are called in the root's loop. A `feed` is read there.

    Args:
        in_loop: calls a function in the loop of the root; see `Root.in_loop`.

    Attributes:
        rewrite: what becomes of an event's data before anybody hears it; None for nothing. It must be quick.
        now: the clock by which events are dated.
    """

    def __init__(self, in_loop: Callable[[Callable[[Listener], None], Listener], None] | None = None) -> None:
        super().__init__()
        self._in_loop = in_loop
        self.rewrite: Callable[[EventData], EventData] | None = None
        self.now: Callable[[], datetime] = _Clock()
        self._streams: dict[str, Stream] = {}
        self.kernel = self.open("")

    def add(self, listener: Listener) -> None:
        """See `_Heard`. From any thread."""
        if self._in_loop is None:
            super().add(listener)
        else:
            self._in_loop(super().add, listener)

    def drop(self, listener: Listener) -> None:
        """See `_Heard`. From any thread; it does nothing once the root has ended."""
        if self._in_loop is None:
            super().drop(listener)
        else:
            with contextlib.suppress(ShuttingDown):
                self._in_loop(super().drop, listener)

    def open(self, run: str, *, after: int = 0) -> Stream:
        """A new stream for run `run`, whose first event has the number after this one."""
        stream = self._streams[run] = Stream(self, run, after)
        return stream

    def is_open(self, run: str) -> bool:
        """Whether there is a stream of this run."""
        return run in self._streams

    def close(self, stream: Stream) -> None:
        """The run is over; its stream is no longer looked after."""
        self._streams.pop(stream.run, None)

    @contextlib.contextmanager
    def feed(self, bound: int = 10_000, overflow: Overflow = "drop_oldest") -> Iterator[Feed]:
        """A queue of all events for a reader that may be slow."""
        feed = Feed(bound, overflow)
        with self.listen(feed.put):
            try:
                yield feed
            finally:
                feed.close()

    def retune(self) -> None:
        """See `_Heard`."""
        for stream in self._streams.values():
            stream.retune()
