"""Prometheus metrics of a server, and their exposition as text.

    metrics = Metrics()
    with metrics.listening(root, journal=hub.logs.writer):
        text = metrics.exposition()

docs/runbook.md explains each figure. Sources of the figures:

    requests            the HTTP middleware
    websocket frames    the control channel
    activity of runs    the event stream (`WorkMetrics`)
    cost of models      the usage book (`Spending`)
    state               read at each scrape: actors, questions, the pool of MCP servers, counters of other modules

Label values come from files and from the route table, and each label has a bounded number of them (`Names`). Ids of
runs or sessions and paths from clients never become labels: each new one would create a time series.

Names and buckets of `gen_ai_*` and `mcp_client_*` follow OpenTelemetry's conventions for generative AI, with
underscores. A duration comes from the event if it has one, else from the event loop's clock when the event is heard.
Timestamps of events are not used: adjustments of the wall clock would falsify the durations.

The waiting time of mail is measured only while metrics are on. The kernel creates an actor's mail lane at the first
message, with the type in the root's `mailbox`. `timed_by` supplies a deque that stamps each arriving message and reads
the stamp when it leaves. Without metrics the plain lane stays, so the kernel's hottest path has no extra cost.

The module imports `views` and the kernel.
"""

from __future__ import annotations

import contextlib
from collections import Counter as Count
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.metrics_core import CounterMetricFamily as CounterFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ...protocol import events as ev
from ...protocol.events import Event
from ...supervisors.histogram import LatencyHistogram
from ...supervisors.mailbox import Mailbox
from ..views.run_view import NOTHING, ActivityChange, RunView

if TYPE_CHECKING:
    from ...protocol.chat import TokenUsage
    from ...supervisors import Actor
    from ...supervisors.cluster.queries import ClusterFigures
    from ..runs.root import Root
    from ..work.spending.days import DayReading


SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
CHUNK = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
LONG = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
CALLS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)

MOST_NAMES = 100
"""Maximum number of values of one label; later values are counted as `other`."""

OTHER = "other"

GRAPHS = ("graph", "workflow")
"""Dialects of runs that the conventions call workflows."""

_SEEN = frozenset(
    {ev.RunStarted, ev.RunFinished, ev.RunFailed, ev.RunCancelled, ev.ActorStopped, ev.ActorFailed}
    | {ev.LlmRequest, ev.LlmDelta, ev.LlmReasoning, ev.LlmRetry, ev.LlmWaiting, ev.LlmResponse, ev.LlmFailed}
    | {ev.LlmFallback}
    | {ev.QuestionAsked, ev.QuestionAnswered, ev.QuestionExpired}
)
"""Types of events that the views of runs need for these metrics."""

_ENDS = {ev.RunFinished: "done", ev.RunFailed: "failed", ev.RunCancelled: "cancelled"}


def _now(_: Event) -> float:
    return trio.current_time()


@final
class Names:
    """Known values of each metric label, bounded in number."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def of(self, label: str, value: str) -> str:
        """Return the value, or `OTHER` once the label has `MOST_NAMES` values."""
        known = self._known.setdefault(label, set())
        if value not in known:
            # Each new value is a new time series, in this process and in Prometheus, and none is ever removed.
            if len(known) >= MOST_NAMES:
                return OTHER
            known.add(value)
        return value


@final
class WorkMetrics:
    """Turns the events of runs into metrics."""

    def __init__(self, registry: CollectorRegistry, names: Names) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        model, agent, tool = "gen_ai_request_model", "gen_ai_agent_name", "gen_ai_tool_name"
        gen_ai, agents = "gen_ai_client_operation", "gen_ai_invoke_agent"
        self._names = names
        self._views = {"": RunView(clock=_now)}  # events without a run belong to the process
        self._mcp_since: dict[str, float] = {}
        self._runs = counter("runs", "Runs ended.", "status")
        # `_views` has the process's own view in addition to the runs.
        Gauge("runs_active", "Runs under way.", registry=registry).set_function(lambda: len(self._views) - 1)
        Gauge("llm_inflight", "Requests to models that are running.", registry=registry).set_function(self._inflight)
        self._retries = counter("llm_retries", "Repeated requests to models, after a failure.", "model")
        self._waiting = counter("llm_waits", "Requests to models that waited before they were sent.", "model", "reason")
        self._fallbacks = counter("llm_fallbacks", "Requests that were sent to a fallback model.", "model", "next")
        self._operations = histogram(
            f"{gen_ai}_duration_seconds", "Time until a model's answer was complete.", OPERATION, model
        )
        self._firsts = histogram(
            f"{gen_ai}_time_to_first_chunk_seconds", "Time to the first chunk of an answer.", OPERATION, model
        )
        self._chunks = histogram(
            f"{gen_ai}_time_per_output_chunk_seconds", "Mean time between chunks of an answer.", CHUNK, model
        )
        self._tokens = histogram(
            "gen_ai_client_token_usage", "Tokens of a request to a model.", TOKENS, model, "gen_ai_token_type"
        )
        self._workflows = histogram(
            "gen_ai_workflow_duration_seconds", "Duration of a graph's or workflow's run.", LONG, "gen_ai_workflow_name"
        )
        self._agents = histogram(f"{agents}_duration_seconds", "Duration of an agent's loop.", LONG, agent)
        self._agent_requests = histogram(
            f"{agents}_inference_calls", "Requests to models of one agent loop.", CALLS, agent
        )
        self._agent_tools = histogram(f"{agents}_tool_calls", "Tool calls of one agent loop.", CALLS, agent)
        self._tools = histogram(
            "gen_ai_execute_tool_duration_seconds", "Duration of a tool call.", OPERATION, tool, "error"
        )
        self._mcp_sessions = histogram(
            "mcp_client_session_duration_seconds", "Lifetime of an MCP server.", LONG, "server"
        )
        self._waits = histogram(
            "question_wait_seconds", "Time until a question was answered or withdrawn.", SECONDS, "end"
        )
        self._restarts = counter("restarts", "Actors that were restarted by a supervisor.")

    def heard(self, event: Event) -> None:
        """Count one event of any run."""
        kind = type(event.data)
        if kind is ev.RunStarted:
            self._views[event.run] = RunView(clock=_now)
        view = self._views.get(event.run)  # None for a run that began before this listener
        change = view.see(event) if view is not None and kind in _SEEN else NOTHING
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, event, event.data, change)

    def _inflight(self) -> int:
        return sum(not chat.waits for view in self._views.values() for chat in view.under_way("chat"))

    # --- runs and agents --------------------------------------------------------------------------------------

    def _run_ended(
        self, event: Event, data: ev.RunFinished | ev.RunFailed | ev.RunCancelled, _: ActivityChange
    ) -> None:
        self._runs.labels(_ENDS[type(data)]).inc()
        view = self._views.pop(event.run, None)
        if view is not None and view.started is not None and view.started.dialect in GRAPHS:
            name = self._names.of("workflow", view.started.name)
            self._workflows.labels(name).observe(trio.current_time() - view.at)

    def _run_sleeps(self, event: Event, _: object, __: ActivityChange) -> None:
        self._views.pop(event.run, None)  # the run starts again when it is woken

    def _agent_finished(self, _: Event, data: ev.AgentFinished, __: ActivityChange) -> None:
        agent = self._names.of("agent", data.agent)
        self._agents.labels(agent).observe(data.seconds)
        self._agent_requests.labels(agent).observe(data.turns)
        self._agent_tools.labels(agent).observe(data.tool_calls)

    def _actor_restarted(self, _: Event, __: object, ___: ActivityChange) -> None:
        self._restarts.inc()

    # --- models -----------------------------------------------------------------------------------------------

    def _llm_piece(self, _: Event, __: object, change: ActivityChange) -> None:
        chat = change.about
        if chat is not None and chat.pieces == 1:
            self._firsts.labels(self._names.of("model", chat.name)).observe(chat.first - chat.tried)

    def _llm_response(self, _: Event, data: ev.LlmResponse, change: ActivityChange) -> None:
        model, chat = self._names.of("model", data.model), change.about
        self._operations.labels(model).observe(data.seconds)
        # One observation per response: the mean gap between its pieces.
        self._tokens.labels(model, "input").observe(data.input_tokens)
        self._tokens.labels(model, "output").observe(data.output_tokens)
        if chat is not None and chat.pieces > 1:
            self._chunks.labels(model).observe((chat.last - chat.first) / (chat.pieces - 1))

    def _knowledge_call(self, _: Event, data: ev.LlmEmbedding | ev.LlmRerank, __: ActivityChange) -> None:
        if data.error is None:
            model = self._names.of("model", data.model)
            self._operations.labels(model).observe(data.seconds)
            self._tokens.labels(model, "input").observe(data.input_tokens)

    def _llm_retry(self, _: Event, data: ev.LlmRetry, __: ActivityChange) -> None:
        self._retries.labels(self._names.of("model", data.model)).inc()

    def _llm_waiting(self, _: Event, data: ev.LlmWaiting, __: ActivityChange) -> None:
        self._waiting.labels(self._names.of("model", data.model), data.reason).inc()

    def _llm_fallback(self, _: Event, data: ev.LlmFallback, __: ActivityChange) -> None:
        self._fallbacks.labels(self._names.of("model", data.model), self._names.of("model", data.next)).inc()

    # --- tools, questions, MCP servers ------------------------------------------------------------------------

    def _tool_finished(self, _: Event, data: ev.ToolFinished, __: ActivityChange) -> None:
        error = "true" if data.error else "false"
        self._tools.labels(self._names.of("tool", data.tool), error).observe(data.seconds)

    def _question_closed(self, _: Event, data: object, change: ActivityChange) -> None:
        if change.question is not None:
            end = "answered" if isinstance(data, ev.QuestionAnswered) else "expired"
            self._waits.labels(end).observe(trio.current_time() - change.question.at)

    def _mcp_started(self, event: Event, _: object, __: ActivityChange) -> None:
        if not event.run:  # the run that requested it emits the same event
            self._mcp_since[event.actor] = trio.current_time()

    def _mcp_stopped(self, event: Event, data: ev.McpServerStopped, _: ActivityChange) -> None:
        since = self._mcp_since.pop(event.actor, None)
        if since is not None:
            self._mcp_sessions.labels(self._names.of("server", data.server)).observe(trio.current_time() - since)

    _HANDLERS: ClassVar[dict[type, Callable[[WorkMetrics, Event, Any, ActivityChange], None]]] = {
        **dict.fromkeys(_ENDS, _run_ended),
        ev.RunDormant: _run_sleeps,
        ev.AgentFinished: _agent_finished,
        ev.LlmDelta: _llm_piece,
        ev.LlmReasoning: _llm_piece,
        ev.LlmResponse: _llm_response,
        ev.LlmEmbedding: _knowledge_call,
        ev.LlmRerank: _knowledge_call,
        ev.LlmRetry: _llm_retry,
        ev.LlmWaiting: _llm_waiting,
        ev.LlmFallback: _llm_fallback,
        ev.ToolFinished: _tool_finished,
        ev.QuestionAnswered: _question_closed,
        ev.QuestionExpired: _question_closed,
        ev.McpServerStarted: _mcp_started,
        ev.McpServerStopped: _mcp_stopped,
        ev.ActorRestarted: _actor_restarted,
    }


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
        self.auth_failures = Counter(
            "auth_failures", "Requests and logins that were refused.", ("reason",), registry=registry
        )
        self.rejections = Counter(
            "rate_limit_rejections", "Requests and logins refused by a rate limit.", ("kind",), registry=registry
        )
        self.websockets = Gauge("websocket_connections", "Open websockets.", registry=registry)
        self.frames = Counter(
            "websocket_messages", "Websocket frames received and sent.", ("direction",), registry=registry
        )
        self._lag = Histogram(
            "scheduler_lag_seconds", "Delay with which the event loop wakes a task.", buckets=SECONDS, registry=registry
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
            yield _histogram("journal_append_seconds", "Time to write the events of a run to its log.", journal.times)
            yield CounterFamily("journal_bytes", "Bytes written to the logs of runs.", journal.bytes)
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
        yield GaugeMetricFamily("mailbox_depth", "Messages waiting in all mailboxes.", sum(depths))
        yield GaugeMetricFamily("mailbox_depth_max", "Messages waiting in the fullest mailbox.", max(depths, default=0))
        yield _histogram("mailbox_wait_seconds", "Time that messages waited in a mailbox.", self.mail)
        yield GaugeMetricFamily("questions_open", "Open questions without an answer.", len(kernel.questions.open))

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
        pool = GaugeMetricFamily("mcp_pool_size", "MCP servers that are running.", labels=["state"])
        for state, count in size.items():
            pool.add_metric([state], count)
        yield pool
        counted, waits = servers.statistics(), servers.waits
        # A lease of a running server took no time, and is not in `waits`.
        hits = counted.acquire_active_hit + counted.acquire_idle_hit
        yield _histogram("mcp_acquire_latency_seconds", "Time to acquire an MCP server.", waits, at_once=hits)
        yield _histogram("mcp_pool_wait_seconds", "Time that calls waited for an MCP server to start.", waits)
        yield CounterFamily("mcp_spawns", "MCP servers started.", counted.spawned)
        yield CounterFamily("mcp_idle_evictions", "MCP servers stopped because they were idle.", counted.idle_evicted)
        operations = HistogramMetricFamily(
            "mcp_client_operation_duration_seconds",
            "Duration of a request to an MCP server.",
            labels=["mcp_method_name"],
        )
        for method, times in sorted(servers.operations.items()):
            operations.add_metric([method], *_figures(times))
        yield operations

    def _subjects(self, rates: Iterable[tuple[str, float]]) -> Metric:
        """Return each subject's requests in the last minute.

        `OTHER` has the highest figure of the subjects without a label.
        """
        family = GaugeMetricFamily(
            "subject_requests_per_minute", "Requests within the last minute.", labels=["subject"]
        )
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
    """Yield the metrics about a cluster: queue, workers, leases."""
    yield GaugeMetricFamily("cluster_queued_runs", "Runs that wait for a worker.", figures.queued)
    yield GaugeMetricFamily(
        "cluster_queued_oldest_seconds", "Time that the oldest queued run has waited.", figures.oldest
    )
    yield GaugeMetricFamily("cluster_workers", "Workers that are alive.", figures.workers)
    yield GaugeMetricFamily(
        "cluster_least_lease_seconds", "Remaining time of the lease that expires next.", figures.least_lease
    )
    yield CounterMetricFamily("cluster_takeovers", "Runs taken over from dead workers.", figures.takeovers)
    yield CounterMetricFamily("cluster_fenced", "Runs that a worker lost to another one.", figures.fenced)


GAUGES = {
    "daily_limit_cost_usd": "Limit of today's spending, in USD.",
    "daily_spent_cost_usd": "Money spent today so far, in USD.",
    "daily_reserved_cost_usd": "Upper bound of the cost of running requests, in USD.",
    "daily_limit_tokens": "Limit of today's token use.",
    "daily_spent_tokens": "Tokens used today so far.",
    "daily_reserved_tokens": "Upper bound of the tokens of running requests.",
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
    tokens = CounterMetricFamily(names[0], f"Tokens used, by {label} and kind.", labels=[label, "kind"])
    cost = CounterMetricFamily(names[1], f"Cost of models in USD, by {label}.", labels=[label])
    unpriced = CounterMetricFamily(names[2], f"Requests whose cost is not known, by {label}.", labels=[label])
    for name, sums in sorted(all.items()):
        for kind, count in sums.tokens.items():
            tokens.add_metric([name, kind], count)
        if sums.priced:
            cost.add_metric([name], sums.cost)
        unpriced.add_metric([name], sums.unpriced)
    return (tokens, cost, unpriced)
