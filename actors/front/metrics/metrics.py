"""The registry of metrics, and their exposition as text.

    metrics = Metrics()
    with metrics.listening(root, journal=hub.logs.writer):
        text = metrics.exposition()

What each figure means is written down in docs/runbook.md. Gauges, and counters that are kept elsewhere, are read at
each scrape.

How long mail waits is measured only where metrics are on. The kernel makes an actor's lane of mail at its first
message, of the type that the root's `mailbox` names. With metrics that is a deque which stamps each message that comes
and reads the stamp of each that goes; without them the kernel's hottest path costs not a nanosecond more.
"""

from __future__ import annotations

import contextlib
from collections import Counter as Count
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily as CounterFamily
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ....supervisors.mailbox import Mailbox
from ....supervisors.tally import Tally
from .cluster import cluster_figures
from .daily import daily_limits
from .spending import Spending
from .work import SECONDS, Work

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.cluster.telling import Figures
    from ...runs.root import Root

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_NAMES = 100
"""Values that a label has at most; what comes later is counted as `other`."""

OTHER = "other"

PULSE = 0.25
"""Seconds between two looks at how late the event loop is."""


@final
class Names:
    """The values that each label has so far."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def of(self, label: str, value: str) -> str:
        """A label's value, as long as there are not too many of them."""
        known = self._known.setdefault(label, set())
        if value not in known:
            if len(known) >= MOST_NAMES:
                return OTHER
            known.add(value)
        return value


class Journal(Protocol):
    """What writes the logs of runs: how long its writes took, and how many bytes it has written."""

    times: Tally
    bytes: int


@final
class Metrics:
    """See the module.

    Attributes:
        auth_failures: callers that were refused, by reason: `missing`, `key`, `jwt`, `scope`, `place`.
        rejections: too many `requests` or `connections` of a subject, or bad `logins` from an address.
        websockets: those that are open; `frames` are theirs, `in` and `out`.
        rates: gives each subject's requests in the last minute; set by the server.
        cluster: gives how its cluster stands; set by a gateway.
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
        self._spending = Spending(self._names.of)
        registry.register(self._spending)
        self._mail = Tally()
        self.rates: Callable[[], Iterable[tuple[str, float]]] | None = None
        self.cluster: Callable[[], Figures | None] = lambda: None

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
        collector = StateCollector(root, self._names, self._mail, journal, lambda: self.rates and self.rates())
        collector.cluster = lambda: self.cluster()
        self._registry.register(collector)
        before, root.kernel.mailbox = root.kernel.mailbox, timed_by(self._mail)
        if root.book is not None:
            root.book.heard = self._spending.heard
        try:
            with root.bus.listen(self._work.heard):
                yield
        finally:
            root.kernel.mailbox = before
            if root.book is not None:
                root.book.heard = None
            self._registry.unregister(collector)

    async def watch_lag(self, me: Actor) -> None:
        """An actor's body: measure how late the loop is, for ever."""
        me.started()
        while True:
            due = trio.current_time() + PULSE
            await trio.sleep_until(due)
            self._lag.observe(max(0.0, trio.current_time() - due))


@final
@dataclass(eq=False)
class StateCollector(Collector):
    """Reads the state of a root at each scrape.

    Attributes:
        mail: how long mail waited.
        journal: what writes the logs of runs.
        rates: gives how often each subject has asked in the last minute; None if that is not counted.
        cluster: gives how its cluster stands; None if it has none.
    """

    root: Root
    names: Names
    mail: Tally
    journal: Journal | None
    rates: Callable[[], Iterable[tuple[str, float]] | None]
    cluster: Callable[[], Figures | None] = lambda: None

    def collect(self) -> Iterable[Metric]:
        yield from self._actors()
        sessions = self.root.sessions
        yield GaugeMetricFamily("sessions_active_total", "Sessions in use.", sessions.live)
        yield CounterFamily("sessions_created", "Sessions made.", sessions.created)
        yield from self._pool()
        if (journal := self.journal) is not None:
            yield _histogram("journal_append_seconds", "Time to write down what happened in a run.", journal.times)
            yield CounterFamily("journal_bytes", "Bytes written down of what happened in runs.", journal.bytes)
        if (rates := self.rates()) is not None:
            yield self._subjects(rates)
        if (days := self.root.days) is not None:
            yield from daily_limits(days.readings(), self.names.of, OTHER)
        if (figures := self.cluster()) is not None:
            yield from cluster_figures(figures)

    def _actors(self) -> Iterator[Metric]:
        kernel = self.root.kernel
        lives = list(kernel.tasks.values())
        actors = GaugeMetricFamily("actors", "Actors that are alive.", labels=["state"])
        for state, count in sorted(Count(life.state for life in lives).items()):
            actors.add_metric([state], count)
        yield actors
        depths = [len(life.mailbox) for life in lives]
        yield GaugeMetricFamily("mailbox_depth", "Messages that wait in all mailboxes.", sum(depths))
        yield GaugeMetricFamily("mailbox_depth_max", "Messages that wait in the fullest one.", max(depths, default=0))
        yield _histogram("mailbox_wait_seconds", "Time that mail waited in a mailbox.", self.mail)
        yield GaugeMetricFamily("questions_open", "Questions without an answer.", len(kernel.questions.open))

    def _pool(self) -> Iterator[Metric]:
        servers = self.root.mcp_in_use
        if servers is None:
            return
        states = GaugeMetricFamily("mcp_processes", "MCP servers by state.", labels=["server", "state"])
        size: Count[str] = Count(leased=0, idle=0)
        by_name = Count((self.names.of("server", one.name), one.state) for one in servers.status())
        for (server, state), count in sorted(by_name.items()):
            states.add_metric([server, state], count)
            if state in size:
                size[state] += count
        yield states
        pool = GaugeMetricFamily("mcp_pool_size", "MCP servers that run.", labels=["state"])
        for state, count in size.items():
            pool.add_metric([state], count)
        yield pool
        counted, waits = servers.statistics(), servers.waits
        hits = counted.acquire_active_hit + counted.acquire_idle_hit
        yield _histogram("mcp_acquire_latency_seconds", "Time to have an MCP server.", waits, at_once=hits)
        yield _histogram("mcp_pool_wait_seconds", "Time of those who waited for an MCP server to start.", waits)
        yield CounterFamily("mcp_spawns", "MCP servers started.", counted.spawned)
        yield CounterFamily("mcp_idle_evictions", "MCP servers stopped for want of use.", counted.idle_evicted)
        operations = HistogramMetricFamily(
            "mcp_client_operation_duration_seconds", "Time of a request to an MCP server.", labels=["mcp_method_name"]
        )
        for method, times in sorted(servers.operations.items()):
            operations.add_metric([method], *_figures(times))
        yield operations

    def _subjects(self, rates: Iterable[tuple[str, float]]) -> Metric:
        """Requests in the minute that counts now; of the subjects that have no name here, the one with the most."""
        family = GaugeMetricFamily("subject_requests_per_minute", "Requests of the last minute.", labels=["subject"])
        most: dict[str, float] = {}
        for subject, count in rates:
            name = self.names.of("subject", subject)
            most[name] = max(count, most.get(name, 0.0)) if name == OTHER else count
        for name, count in sorted(most.items()):
            family.add_metric([name], count)
        return family


def _histogram(name: str, text: str, tally: Tally, *, at_once: int = 0) -> HistogramMetricFamily:
    """A tally as Prometheus knows it, and so many more that took no time."""
    family = HistogramMetricFamily(name, text)
    family.add_metric([], *_figures(tally, at_once))
    return family


def _figures(tally: Tally, at_once: int = 0) -> tuple[list[tuple[str, float]], float]:
    bounds = [*(f"{bound:g}" for bound in tally.bounds), "+Inf"]
    counts = [at_once + count for count in accumulate(list(tally.counts))]
    return list(zip(bounds, counts, strict=True)), tally.total


def timed_by(waits: Tally) -> type[Mailbox]:
    """Mailboxes whose mail adds to `waits` how long it waited in its lane."""

    class Lane(deque[Any]):
        __slots__ = ("_since",)

        def __init__(self) -> None:
            super().__init__()
            self._since: deque[float] = deque()

        def append(self, item: Any, /) -> None:
            self._since.append(monotonic())
            super().append(item)

        def popleft(self) -> Any:
            waits.add(monotonic() - self._since.popleft())
            return super().popleft()

    class Timed(Mailbox):
        __slots__ = ()
        lane = Lane

    return Timed
