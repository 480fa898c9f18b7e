"""Bounds what clients may take: requests per minute, requests and connections at a time, the life of a connection."""

from __future__ import annotations

import contextlib
import logging
import math
import resource
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import trio

from ....protocol.errors import Saturated
from ....protocol.settings.api import ApiSettings
from .origins import is_loopback, is_within, network_of

log = logging.getLogger("callboard.server")

WINDOW = 60.0
MARGIN = 0.01
"""Seconds added to a retry time, so that it is never too short."""

MOST = 100_000
"""Subjects whose rate is known; beyond it the one that asked longest ago is forgotten."""

PATIENCE = 1.0
"""Seconds that a request waits until it may begin."""

SPARE_FILES = 256
"""File descriptors that connections leave to everything else: files, model connections, processes."""

ALL = "all"
"""The key under which all connections are counted, beside their addresses."""

SAID_EVERY = 60.0
"""Seconds between two log lines about refused connections."""


@dataclass(slots=True)
class _Window:
    """One subject's two buckets. `minute` says which minute `now` counts."""

    minute: int
    burst: float
    seen: float
    before: float = 0.0
    now: float = 0.0


@final
class RateLimiter:
    """Limits how often a subject may ask: a sliding window of two one-minute buckets.

    What counts is the number in this minute, and of the one before as much as the window of sixty seconds still covers.
    Beyond the limit a subject has a burst, which comes back within a minute in which it keeps to the limit. Time is
    trio's, which no jump of the wall clock moves.

    Args:
        limit: requests of one subject in a minute; 0 for any number.
        burst: how many beyond that.
        clock: seconds that only ever grow.
    """

    def __init__(self, limit: int, burst: int = 0, *, clock: Callable[[], float] = trio.current_time) -> None:
        self.limit = limit
        self.burst = burst
        self._clock = clock
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def charge(self, subject: str, cost: float = 1) -> float:
        """Count a request, or a part of one.

        Returns:
            0 if it may go on; else it is not counted, and may come again after so many seconds.
        """
        if not self.limit:
            return 0.0
        now = self._clock()
        window = self._window(subject, now)
        wait = self._wait(window, now)
        if wait:
            if window.burst < cost:
                return wait
            window.burst -= cost
        window.now += cost
        return 0.0

    def wait(self, subject: str) -> float:
        """How many seconds until the subject may ask; counts nothing, and no burst."""
        if not self.limit or subject not in self._windows:
            return 0.0
        now = self._clock()
        return self._wait(self._window(subject, now), now)

    def current(self) -> Iterator[tuple[str, float]]:
        """What counts of each subject now: the requests of the last minute."""
        now = self._clock() / WINDOW
        minute = math.floor(now)
        for subject, window in self._windows.items():
            if window.minute == minute:
                yield subject, window.before * (1 - (now - minute)) + window.now
            elif window.minute == minute - 1:
                yield subject, window.now * (1 - (now - minute))

    def _window(self, subject: str, now: float) -> _Window:
        """The subject's window with its buckets as they are now, as the latest that asked."""
        minute = math.floor(now / WINDOW)
        window = self._windows.get(subject)
        if window is None:
            self._forget(minute)
            window = self._windows[subject] = _Window(minute, float(self.burst), now)
        if window.minute != minute:
            window.before = window.now if minute == window.minute + 1 else 0
            window.now = 0
            window.minute = minute
        if window.burst < self.burst and not self._wait(window, now):
            window.burst = min(self.burst, window.burst + (now - window.seen) * self.burst / WINDOW)
        window.seen = now
        self._windows.move_to_end(subject)
        return window

    def _wait(self, window: _Window, now: float) -> float:
        gone = now / WINDOW - window.minute
        if window.before * (1 - gone) + window.now < self.limit:
            return 0.0
        if window.now < self.limit:  # this minute will do, once enough of the one before is out of sight
            share = 1 - (self.limit - window.now) / window.before
            return (share - gone) * WINDOW + MARGIN
        share = 1 - self.limit / window.now  # only in the next minute, and then as much of this one as counts
        return (1 - gone + share) * WINDOW + MARGIN

    def _forget(self, minute: int) -> None:
        """Drop subjects without a request for two minutes, and the oldest beyond the bound."""
        while self._windows:
            oldest = next(iter(self._windows))
            if len(self._windows) < MOST and self._windows[oldest].minute >= minute - 1:
                break
            del self._windows[oldest]


@final
class ConcurrencyLimiter:
    """Limits the requests under way: of one subject, and of all.

    A request beyond the limit waits a little and is then refused, so that a burst is smoothed and a flood is not kept
    in memory. The subject's own limit comes first: a request that waits for that takes nothing from the others.

    Args:
        each: of one subject; `of_all` of all together.
    """

    def __init__(self, each: int, of_all: int) -> None:
        self._each = each
        self._all = trio.CapacityLimiter(of_all)
        self._of: dict[str, trio.CapacityLimiter] = {}

    @property
    def of_all(self) -> int:
        """How many may be under way."""
        return int(self._all.total_tokens)

    @property
    def taken(self) -> int:
        """How many are under way."""
        return self._all.borrowed_tokens

    @property
    def free_share(self) -> float:
        """Which part of the limit of all is free, from 0 to 1."""
        return max(0, self.of_all - self.taken) / self.of_all

    def resize(self, each: int, of_all: int) -> None:
        """Other limits, for requests from now on."""
        self._each = each
        self._all.total_tokens = of_all
        for own in self._of.values():
            own.total_tokens = each

    @contextlib.asynccontextmanager
    async def slot(self, subject: str | None) -> AsyncIterator[None]:
        """A request while the block lasts; without a `subject` only the limit of all counts.

        Raises:
            Saturated: it would have to wait for too long.
        """
        request = object()
        with contextlib.ExitStack() as stack:
            with trio.move_on_after(PATIENCE) as waiting:
                if subject is not None:
                    own = self._of.setdefault(subject, trio.CapacityLimiter(self._each))
                    stack.callback(self._forget_idle, subject)
                    await own.acquire_on_behalf_of(request)
                    stack.callback(own.release_on_behalf_of, request)
                await self._all.acquire_on_behalf_of(request)
                stack.callback(self._all.release_on_behalf_of, request)
            if waiting.cancelled_caught:
                whose = f"{self.of_all} requests are" if self.taken >= self.of_all else f"{self._each} of yours are"
                raise Saturated(f"{whose} under way already, which is the most; try again in a second")
            yield

    def _forget_idle(self, subject: str) -> None:
        own = self._of.get(subject)
        if own is not None and not own.borrowed_tokens and not own.statistics().tasks_waiting:
            del self._of[subject]


@contextmanager
def counted(counts: Counter[str], key: str) -> Iterator[None]:
    """A block that counts; what counts nothing is forgotten."""
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


@final
class ConnectionLimiter:
    """Limits the open connections, before their callers are known.

    A connection costs a file descriptor and a task, and one that says nothing may be kept for a while. One address has
    only a part of them, unless it is this machine's or that of a proxy that speaks for many.

    Args:
        settings: gives those that hold now.
    """

    def __init__(self, settings: Callable[[], ApiSettings]) -> None:
        self._settings = settings
        self._from: Counter[str] = Counter()
        self._said = -SAID_EVERY

    @property
    def open(self) -> int:
        """How many are open."""
        return self._from[ALL]

    @contextmanager
    def entering(self, peer: str) -> Iterator[bool]:
        """A connection from there, for as long as the block lasts; whether there is room for it."""
        where = network_of(peer)
        if self._has_room(peer, where):
            with counted(self._from, ALL), counted(self._from, where):
                yield True
            return
        now = trio.current_time()
        if now - self._said >= SAID_EVERY:
            self._said = now
            log.warning("%d connections are open; one more from %s was closed (api.limits)", self.open, where)
        yield False

    def _has_room(self, peer: str, where: str) -> bool:
        settings = self._settings()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # However few files we may have open, there is always room for some connections.
        files = math.inf if soft == resource.RLIM_INFINITY else max(soft, 2 * SPARE_FILES) - SPARE_FILES
        if self.open >= min(settings.limits.max_connections, files):
            return False
        free = is_loopback(peer) or is_within(peer, settings.trusted_proxies)
        return free or self._from[where] < settings.limits.connections_per_address
