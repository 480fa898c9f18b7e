"""Load limits: requests per minute, concurrent requests, and open connections."""

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
"""Maximum number of tracked subjects; beyond it the least recent one is forgotten."""

PATIENCE = 1.0
"""Seconds that a request waits for a slot."""

SPARE_FILES = 256
"""File descriptors reserved for everything but connections: files, model connections, processes."""

ALL = "all"
"""Key under which all connections are counted, in addition to their addresses."""

SAID_EVERY = 60.0
"""Seconds between two log lines about refused connections."""


@dataclass(slots=True)
class _Window:
    """Two buckets of a subject. `minute` is the minute of `now`."""

    minute: int
    burst: float
    seen: float
    before: float = 0.0
    now: float = 0.0


@final
class RateLimiter:
    """Rate limiter: a sliding window of two one-minute buckets per subject.

    The count is that of this minute, plus the previous minute's in proportion to the overlap with the last sixty
    seconds. Beyond the limit a subject has a burst, which recovers within a minute below the limit. Time is trio's,
    which jumps of the wall clock do not affect.

    Args:
        limit: requests per subject and minute; 0 for no limit.
        burst: further requests.
        clock: monotonic seconds.
    """

    def __init__(self, limit: int, burst: int = 0, *, clock: Callable[[], float] = trio.current_time) -> None:
        self.limit = limit
        self.burst = burst
        self._clock = clock
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def charge(self, subject: str, cost: float = 1) -> float:
        """Count a request, or a fraction of one.

        Returns:
            0 if it may proceed; otherwise it is not counted, and may be retried after that many seconds.
        """
        if not self.limit:
            return 0.0
        now = self._clock()
        window = self._window(subject, now)
        wait = self._wait(window, now)
        if wait:
            # Not counted: a client that keeps sending is admitted as soon as its window has room.
            if window.burst < cost:
                return wait
            window.burst -= cost
        window.now += cost
        return 0.0

    def wait(self, subject: str) -> float:
        """Return the seconds until the subject may send a request; counts nothing and ignores the burst."""
        if not self.limit or subject not in self._windows:
            return 0.0
        now = self._clock()
        return self._wait(self._window(subject, now), now)

    def current(self) -> Iterator[tuple[str, float]]:
        """Yield the current count of each subject: the requests of the last minute."""
        now = self._clock() / WINDOW
        minute = math.floor(now)
        for subject, window in self._windows.items():
            if window.minute == minute:
                yield subject, window.before * (1 - (now - minute)) + window.now
            # No request in this minute yet, so `now` is still the bucket of the previous one.
            elif window.minute == minute - 1:
                yield subject, window.now * (1 - (now - minute))

    def _window(self, subject: str, now: float) -> _Window:
        """Return the subject's window with current buckets, and mark the subject as most recent."""
        minute = math.floor(now / WINDOW)
        window = self._windows.get(subject)
        if window is None:
            self._forget(minute)
            window = self._windows[subject] = _Window(minute, float(self.burst), now)
        if window.minute != minute:
            # After a silence of more than a minute, neither bucket counts.
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
        if window.now < self.limit:  # in this minute, once enough of the previous one has left the window
            share = 1 - (self.limit - window.now) / window.before
            return (share - gone) * WINDOW + MARGIN
        share = 1 - self.limit / window.now  # in the next minute, depending on the share of this one
        return (1 - gone + share) * WINDOW + MARGIN

    def _forget(self, minute: int) -> None:
        """Drop subjects without a request for two minutes, and the oldest beyond the limit."""
        while self._windows:
            # `_window` moves each subject to the end, so the first one was idle for the longest time.
            oldest = next(iter(self._windows))
            if len(self._windows) < MOST and self._windows[oldest].minute >= minute - 1:
                break
            del self._windows[oldest]


@final
class ConcurrencyLimiter:
    """Limiter of concurrent requests: per subject, and in total.

    A request beyond the limit waits briefly and is then refused, so that bursts are smoothed and floods are not held in
    memory. The subject's own limit comes first: a request that waits for it takes no slot of others.

    Args:
        each: limit per subject; `of_all` in total.
    """

    def __init__(self, each: int, of_all: int) -> None:
        self._each = each
        self._all = trio.CapacityLimiter(of_all)
        self._of: dict[str, trio.CapacityLimiter] = {}

    @property
    def of_all(self) -> int:
        """Maximum number of concurrent requests of all subjects together."""
        return int(self._all.total_tokens)

    @property
    def taken(self) -> int:
        """Number of active requests."""
        return self._all.borrowed_tokens

    @property
    def free_share(self) -> float:
        """Free share of the total limit, from 0 to 1."""
        return max(0, self.of_all - self.taken) / self.of_all

    def resize(self, each: int, of_all: int) -> None:
        """Change the limits for new requests."""
        self._each = each
        self._all.total_tokens = of_all
        for own in self._of.values():
            own.total_tokens = each

    @contextlib.asynccontextmanager
    async def slot(self, subject: str | None) -> AsyncIterator[None]:
        """Hold a slot for the duration of the block; without a `subject` only the total limit applies.

        Raises:
            Saturated: no slot became free in time.
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
                whose = (
                    f"{self.of_all} requests are" if self.taken >= self.of_all else f"{self._each} of your requests are"
                )
                raise Saturated(f"{whose} running, which is the limit; try again in a second")
            yield

    def _forget_idle(self, subject: str) -> None:
        own = self._of.get(subject)
        if own is not None and not own.borrowed_tokens and not own.statistics().tasks_waiting:
            del self._of[subject]


@contextmanager
def counted(counts: Counter[str], key: str) -> Iterator[None]:
    """Increment a counter for the duration of the block; counters at zero are removed."""
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


@final
class ConnectionLimiter:
    """Limiter of open connections, before their callers are known.

    A connection costs a file descriptor and a task, and may be idle for a while. Each address gets only a share of
    them, except this machine's and trusted proxies', which serve many clients.

    Args:
        settings: returns the current settings.
    """

    def __init__(self, settings: Callable[[], ApiSettings]) -> None:
        self._settings = settings
        self._from: Counter[str] = Counter()
        self._said = -SAID_EVERY

    @property
    def open(self) -> int:
        """Number of open connections."""
        return self._from[ALL]

    @contextmanager
    def entering(self, peer: str) -> Iterator[bool]:
        """Count a connection for the duration of the block; yield True if there is room for it."""
        where = network_of(peer)
        if self._has_room(peer, where):
            with counted(self._from, ALL), counted(self._from, where):
                yield True
            return
        now = trio.current_time()
        if now - self._said >= SAID_EVERY:
            self._said = now
            log.warning(
                "%d connections are open, which is the limit (api.limits); a new one from %s was closed",
                self.open,
                where,
            )
        yield False

    def _has_room(self, peer: str, where: str) -> bool:
        settings = self._settings()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Even with few file descriptors there is room for some connections.
        files = math.inf if soft == resource.RLIM_INFINITY else max(soft, 2 * SPARE_FILES) - SPARE_FILES
        if self.open >= min(settings.limits.max_connections, files):
            return False
        free = is_loopback(peer) or is_within(peer, settings.trusted_proxies)
        return free or self._from[where] < settings.limits.connections_per_address
