"""The registry of metrics, and their exposition as text.

    metrics = Metrics()
    with metrics.listening(root, journal=hub.logs.writer):
        text = metrics.exposition()

What each figure means is written down in docs/runbook.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from ....supervisors.tally import Tally
from .collector import Journal, Names, StateCollector, timed_by
from .work import SECONDS, Work

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...runs.root import Root

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PULSE = 0.25
"""Seconds between two looks at how late the event loop is."""


@final
class Metrics:
    """See the module.

    Attributes:
        auth_failures: callers that were refused, by reason: `missing`, `key`, `jwt`, `scope`, `place`.
        rejections: too many `requests` of a subject, or bad `logins` from an address.
        websockets: those that are open; `frames` are theirs, `in` and `out`.
        rates: gives each subject's requests in the last minute; set by the server.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        route = ("method", "route")
        self._requests = Counter("http_requests", "Requests answered.", (*route, "status"), registry=registry)
        self._durations = Histogram(
            "http_request_duration_seconds", "Time to answer.", route, buckets=SECONDS, registry=registry
        )
        self._in_flight = Gauge("http_requests_in_flight", "Requests under way.", registry=registry)
        self.auth_failures = Counter("auth_failures", "Callers that were not let in.", ("reason",), registry=registry)
        self.rejections = Counter(
            "rate_limit_rejections", "Requests and logins that came too often.", ("kind",), registry=registry
        )
        self.websockets = Gauge("websocket_connections", "Open websockets.", registry=registry)
        self.frames = Counter(
            "websocket_messages", "Frames that came in and went out.", ("direction",), registry=registry
        )
        self._lag = Histogram(
            "scheduler_lag_seconds", "How late the event loop wakes a task.", buckets=SECONDS, registry=registry
        )
        self._names = Names()
        self._work = Work(registry, self._names)
        self._mail = Tally()
        self.rates: Callable[[], Iterable[tuple[str, float]]] | None = None

    def exposition(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)

    # --- requests -------------------------------------------------------------------------------------------

    def request_began(self) -> None:
        """A request came."""
        self._in_flight.inc()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """It was answered. `route` is a template of the table."""
        self._in_flight.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._durations.labels(method, route).observe(seconds)

    # --- the rest -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def listening(self, root: Root, *, journal: Journal | None = None) -> Iterator[None]:
        """Count what happens under `root`, and look at its state when asked, while the block lasts.

        Args:
            journal: what writes the logs of runs.
        """
        collector = StateCollector(root, self._names, mail=self._mail, journal=journal, rates=self._current_rates)
        self._registry.register(collector)
        before, root.kernel.mailbox = root.kernel.mailbox, timed_by(self._mail)
        try:
            with root.bus.listen(self._work.heard):
                yield
        finally:
            root.kernel.mailbox = before
            self._registry.unregister(collector)

    def _current_rates(self) -> Iterable[tuple[str, float]] | None:
        return self.rates and self.rates()

    async def watch_lag(self, me: Actor) -> None:
        """An actor's body: measure how late the loop is, for ever."""
        me.started()
        while True:
            due = trio.current_time() + PULSE
            await trio.sleep_until(due)
            self._lag.observe(max(0.0, trio.current_time() - due))
