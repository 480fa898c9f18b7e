"""The registry of metrics, and its exposition as text.

    metrics = Metrics()
    with metrics.listening(root, journal=hub.logs.writer):
        text = metrics.exposition()

docs/runbook.md explains each figure. Gauges, and counters that other modules keep, are read at each scrape.

The waiting time of mail is measured only while metrics are on. The kernel creates an actor's mail lane at the first
message, with the type in the root's `mailbox`. `timed_by` supplies a deque that stamps each arriving message and reads
the stamp when it leaves. Without metrics the plain lane stays, so the kernel's hottest path has no extra cost.
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
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.metrics_core import CounterMetricFamily as CounterFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ....supervisors.histogram import LatencyHistogram
from ....supervisors.mailbox import Mailbox
from .work import OTHER, SECONDS, Names, WorkMetrics

if TYPE_CHECKING:
    from ....protocol.chat import TokenUsage
    from ....supervisors import Actor
    from ....supervisors.cluster.queries import ClusterFigures
    from ...runs.root import Root
    from ...work.spending.days import DayReading


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PULSE = 0.25
"""Seconds between two measurements of the event loop's lag."""


class LogWrites(Protocol):
    """Writer of run logs: durations of its writes, and bytes written."""

    times: LatencyHistogram
    bytes: int


@final
class Metrics:
    """Metrics of one server.

    Attributes:
        auth_failures: refused callers, by reason: `missing`, `key`, `jwt`, `scope`, `place`.
        rejections: excess `requests` or `connections` of a subject, and failed `logins` from an address.
        websockets: open websockets; `frames` counts their frames, `in` and `out`.
        rates: returns each subject's requests in the last minute; set by the server.
        cluster: returns the cluster's figures; set by the server.
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
        self._work = WorkMetrics(registry, self._names)
        self._spending = Spending(self._names.of)
        registry.register(self._spending)
        self._mail = LatencyHistogram()
        self.rates: Callable[[], Iterable[tuple[str, float]]] | None = None
        self.cluster: Callable[[], ClusterFigures | None] = lambda: None

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)

    # --- requests -------------------------------------------------------------------------------------------

    def request_began(self) -> None:
        """Count a request that has arrived."""
        self._in_flight.inc()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request. `route` is a template of the route table, not the path."""
        self._in_flight.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._durations.labels(method, route).observe(seconds)

    # --- events, state and lag ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def listening(self, root: Root, *, journal: LogWrites | None = None) -> Iterator[None]:
        """Count events under `root`, and read its state at each scrape, while the block lasts.

        Args:
            journal: the writer of run logs.
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
        """Measure the lag of the event loop for ever. This is the body of an actor."""
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
        mail: waiting times of mail.
        journal: the writer of run logs.
        rates: returns each subject's requests in the last minute; None if they are not counted.
        cluster: returns the cluster's figures; None outside a cluster.
    """

    root: Root
    names: Names
    mail: LatencyHistogram
    journal: LogWrites | None
    rates: Callable[[], Iterable[tuple[str, float]] | None]
    cluster: Callable[[], ClusterFigures | None] = lambda: None

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
        # A lease of a running server took no time, and is not in `waits`.
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
        """Return each subject's requests in the last minute.

        `OTHER` has the highest figure of the subjects without a label.
        """
        family = GaugeMetricFamily("subject_requests_per_minute", "Requests of the last minute.", labels=["subject"])
        most: dict[str, float] = {}
        for subject, count in rates:
            name = self.names.of("subject", subject)
            most[name] = max(count, most.get(name, 0.0)) if name == OTHER else count
        for name, count in sorted(most.items()):
            family.add_metric([name], count)
        return family


def _histogram(name: str, text: str, tally: LatencyHistogram, *, at_once: int = 0) -> HistogramMetricFamily:
    """Convert a tally to a Prometheus histogram, plus `at_once` observations of zero seconds."""
    family = HistogramMetricFamily(name, text)
    family.add_metric([], *_figures(tally, at_once))
    return family


def _figures(tally: LatencyHistogram, at_once: int = 0) -> tuple[list[tuple[str, float]], float]:
    bounds = [*(f"{bound:g}" for bound in tally.bounds), "+Inf"]
    counts = [at_once + count for count in accumulate(list(tally.counts))]
    return list(zip(bounds, counts, strict=True)), tally.total


def timed_by(waits: LatencyHistogram) -> type[Mailbox]:
    """Return a mailbox type that adds each message's waiting time in its lane to `waits`."""

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


def cluster_figures(figures: ClusterFigures) -> Iterable[Metric]:
    """Yield the cluster's metrics."""
    yield GaugeMetricFamily("cluster_queued_runs", "Runs that wait for a worker.", figures.queued)
    yield GaugeMetricFamily("cluster_queued_oldest_seconds", "For how long the first of them has.", figures.oldest)
    yield GaugeMetricFamily("cluster_workers", "Workers that are alive.", figures.workers)
    yield GaugeMetricFamily("cluster_least_lease_seconds", "What is left of the lease over next.", figures.least_lease)
    yield CounterMetricFamily("cluster_takeovers", "Runs that were taken from dead workers.", figures.takeovers)
    yield CounterMetricFamily("cluster_fenced", "Runs that a worker has found to be others'.", figures.fenced)


GAUGES = {
    "daily_limit_cost_usd": "What may be spent today, in USD.",
    "daily_spent_cost_usd": "What was spent today, in USD.",
    "daily_reserved_cost_usd": "What requests under way may come to at most, in USD.",
    "daily_limit_tokens": "What may be spent today, in tokens.",
    "daily_spent_tokens": "What was spent today, in tokens.",
    "daily_reserved_tokens": "What requests under way may come to at most, in tokens.",
}
ALL = "*"
"""Label value of the limit that all subjects share."""


def daily_limits(readings: Iterable[DayReading], name: Callable[[str, str], str], other: str) -> Iterable[Metric]:
    """Return the gauges of daily limits.

    Subjects without a label of their own are omitted, because one gauge cannot hold several limits.

    Args:
        name: bounds the values of a label; returns `other` beyond the bound.
    """
    families = {name: GaugeMetricFamily(name, text, labels=["subject"]) for name, text in GAUGES.items()}
    for reading in readings:
        subject = name("subject", reading.subject) if reading.subject else ALL
        if subject == other:
            continue
        limits, spent, held = reading.limits, reading.spent, reading.held
        if limits.max_cost is not None:
            families["daily_limit_cost_usd"].add_metric([subject], limits.max_cost)
            families["daily_spent_cost_usd"].add_metric([subject], spent.cost)
            families["daily_reserved_cost_usd"].add_metric([subject], held.cost)
        if limits.max_tokens is not None:
            families["daily_limit_tokens"].add_metric([subject], limits.max_tokens)
            families["daily_spent_tokens"].add_metric([subject], spent.tokens)
            families["daily_reserved_tokens"].add_metric([subject], held.tokens)
    return families.values()


OF_MODELS = ("llm_tokens", "llm_cost_usd", "llm_unpriced_requests")
OF_SUBJECTS = ("subject_tokens", "subject_cost_usd", "subject_unpriced_requests")
KINDS = ("input", "cached", "cache_write", "output", "reasoning")


@final
class _Sums:
    """Sums of a model, or of a subject."""

    __slots__ = ("cost", "priced", "tokens", "unpriced")

    def __init__(self) -> None:
        self.tokens = dict.fromkeys(KINDS, 0)
        self.cost = 0.0
        self.priced = self.unpriced = 0

    def add(self, used: TokenUsage, cost: float | None) -> None:
        tokens = self.tokens
        tokens["input"] += max(0, used.input_tokens - used.cached_tokens - used.cache_write_tokens)
        tokens["cached"] += used.cached_tokens
        tokens["cache_write"] += used.cache_write_tokens
        tokens["output"] += max(0, used.output_tokens - used.reasoning_tokens)
        tokens["reasoning"] += used.reasoning_tokens
        if cost is None:
            self.unpriced += 1
        else:
            self.priced += 1
            self.cost += cost


@final
class Spending(Collector):
    """Collects usage per model and per subject.

    Args:
        name: bounds the values of a label.
    """

    def __init__(self, name: Callable[[str, str], str]) -> None:
        self._name = name
        self._models: dict[str, _Sums] = {}
        self._subjects: dict[str, _Sums] = {}

    def heard(self, subject: str, model: str, used: TokenUsage, cost: float | None) -> None:
        """Add one reply; `cost` is None when the price is unknown."""
        for label, value, all in (("model", model, self._models), ("subject", subject, self._subjects)):
            name = self._name(label, value)
            sums = all.get(name)
            if sums is None:
                sums = all[name] = _Sums()
            sums.add(used, cost)

    def collect(self) -> Iterable[Metric]:
        yield from _families(OF_MODELS, "model", self._models)
        yield from _families(OF_SUBJECTS, "subject", self._subjects)


def _families(names: tuple[str, str, str], label: str, all: dict[str, _Sums]) -> Iterable[Metric]:
    tokens = CounterMetricFamily(names[0], f"Tokens of models, by {label} and kind.", labels=[label, "kind"])
    cost = CounterMetricFamily(names[1], f"What models cost in USD, by {label}.", labels=[label])
    unpriced = CounterMetricFamily(names[2], f"Requests whose price is not known, by {label}.", labels=[label])
    for name, sums in sorted(all.items()):
        for kind, count in sums.tokens.items():
            tokens.add_metric([name, kind], count)
        if sums.priced:
            cost.add_metric([name], sums.cost)
        unpriced.add_metric([name], sums.unpriced)
    return (tokens, cost, unpriced)
