"""What a server tells Prometheus.

Counters and histograms are fed by the event stream, requests by the middleware, and what is a state (actors, questions,
the pool of MCP servers) is looked at when somebody asks. Labels hold words from files and from the table of routes, and
each label at most so many of them: never an id of a run, a session or a path that a stranger has made up.
"""

from __future__ import annotations

import contextlib
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, final

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily as CounterFamily
from prometheus_client.metrics_core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ...protocol.events import (
    ActorFailed,
    ActorRestarted,
    ActorStopped,
    Event,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
    ToolFinished,
)

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ..runs.root import Root

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Buckets of OpenTelemetry's conventions for generative AI."""

MOST_NAMES = 100
"""Values that a label has at most; what comes later is counted as `other`."""

PULSE = 0.25
"""Seconds between two looks at how late the event loop is."""

_ENDS = {RunFinished: "done", RunFailed: "failed", RunCancelled: "cancelled"}


@final
class Metrics:
    """See the module.

    Args:
        active_sessions: how many sessions are in use now.
    """

    def __init__(self, active_sessions: Callable[[], int] | None = None) -> None:
        registry = self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        route = ("method", "route")
        self._requests = Counter("http_requests", "Requests answered.", (*route, "status"), registry=registry)
        self._durations = Histogram(
            "http_request_duration_seconds", "Time to answer.", route, buckets=SECONDS, registry=registry
        )
        self._in_flight = Gauge("http_requests_in_flight", "Requests under way.", registry=registry)
        self._auth_failures = Counter("auth_failures", "Callers that were not let in.", ("reason",), registry=registry)
        self._rejections = Counter(
            "rate_limit_rejections", "Requests and logins that came too often.", ("kind",), registry=registry
        )
        self._websockets = Gauge("websocket_connections", "Open websockets.", registry=registry)
        self._sessions_created = Counter("sessions_created", "Sessions made.", registry=registry)
        self._runs = Counter("runs", "Runs ended.", ("status",), registry=registry)
        self._runs_active = Gauge("runs_active", "Runs under way.", registry=registry)
        self._llm_inflight = Gauge("llm_inflight", "Requests to models under way.", registry=registry)
        self._llm_retries = Counter(
            "llm_retries", "Requests to models that are tried again.", ("model",), registry=registry
        )
        self._operations = Histogram(
            "gen_ai_client_operation_duration_seconds",
            "Time to a model's whole answer.",
            ("gen_ai_request_model",),
            buckets=OPERATION,
            registry=registry,
        )
        self._tokens = Histogram(
            "gen_ai_client_token_usage",
            "Tokens of a request to a model.",
            ("gen_ai_request_model", "gen_ai_token_type"),
            buckets=TOKENS,
            registry=registry,
        )
        self._tools = Histogram(
            "gen_ai_execute_tool_duration_seconds",
            "Time of a tool call.",
            ("gen_ai_tool_name", "error"),
            buckets=OPERATION,
            registry=registry,
        )
        self._question_waits = Histogram(
            "question_wait_seconds", "Time until a question was closed.", ("end",), buckets=SECONDS, registry=registry
        )
        self._restarts = Counter("restarts", "Actors that a supervisor started again.", registry=registry)
        self._lag = Histogram(
            "scheduler_lag_seconds", "How late the event loop wakes a task.", buckets=SECONDS, registry=registry
        )
        self._names: dict[str, set[str]] = {}
        self._asked: dict[tuple[str, str], float] = {}
        self._at_models: dict[str, Count[str]] = {}
        self._active_sessions = active_sessions

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

    def auth_failed(self, reason: str) -> None:
        """Somebody was not let in: `missing`, `key`, `jwt`, `scope`, `place`."""
        self._auth_failures.labels(reason).inc()

    def rate_limited(self, kind: str) -> None:
        """Too many `requests` of a subject, or bad `logins` from an address."""
        self._rejections.labels(kind).inc()

    @contextlib.contextmanager
    def websocket(self) -> Iterator[None]:
        """A websocket is open while the block lasts."""
        with self._websockets.track_inprogress():
            yield

    def session_created(self) -> None:
        """A session was made."""
        self._sessions_created.inc()

    # --- events ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def listening(self, root: Root) -> Iterator[None]:
        """Count what happens under `root`, and look at its state when asked, while the block lasts."""
        looked = _Looked(root, self._active_sessions)
        self._registry.register(looked)
        try:
            with root.bus.listen(self.heard):
                yield
        finally:
            self._registry.unregister(looked)

    def heard(self, event: Event) -> None:
        """One event of any run."""
        handler = _HANDLERS.get(type(event.data))
        if handler is not None:
            handler(self, event)

    async def watch_lag(self, me: Actor) -> None:
        """An actor's body: measure how late the loop is, for ever."""
        me.started()
        while True:
            due = trio.current_time() + PULSE
            await trio.sleep_until(due)
            self._lag.observe(max(0.0, trio.current_time() - due))

    def _run_started(self, _event: Event) -> None:
        self._runs_active.inc()

    def _run_ended(self, event: Event) -> None:
        self._runs_active.dec()
        self._runs.labels(_ENDS[type(event.data)]).inc()
        self._llm_inflight.dec(self._at_models.pop(event.run, Count[str]()).total())
        for key in [key for key in self._asked if key[0] == event.run]:
            del self._asked[key]

    def _llm_request(self, event: Event) -> None:
        self._at_models.setdefault(event.run, Count())[event.actor] += 1
        self._llm_inflight.inc()

    def _llm_over(self, event: Event, *, all: bool = False) -> None:
        """A request of this actor has its end, or all have."""
        actors = self._at_models.get(event.run)
        count = actors[event.actor] if actors else 0
        if actors is None or not count:
            return
        ended = count if all else 1
        self._llm_inflight.dec(ended)
        actors[event.actor] -= ended
        if not actors[event.actor]:
            del actors[event.actor]

    def _llm_response(self, event: Event) -> None:
        assert isinstance(event.data, LlmResponse)
        self._llm_over(event)
        model = self._name("model", event.data.model)
        self._operations.labels(model).observe(event.data.seconds)
        self._tokens.labels(model, "input").observe(event.data.input_tokens)
        self._tokens.labels(model, "output").observe(event.data.output_tokens)

    def _llm_retry(self, event: Event) -> None:
        assert isinstance(event.data, LlmRetry)
        self._llm_over(event)
        self._llm_retries.labels(self._name("model", event.data.model)).inc()

    def _actor_over(self, event: Event) -> None:
        self._llm_over(event, all=True)

    def _tool_finished(self, event: Event) -> None:
        assert isinstance(event.data, ToolFinished)
        error = "true" if event.data.error else "false"
        self._tools.labels(self._name("tool", event.data.tool), error).observe(event.data.seconds)

    def _question_asked(self, event: Event) -> None:
        self._asked[event.run, event.id] = event.ts.timestamp()

    def _question_closed(self, event: Event) -> None:
        asked = self._asked.pop((event.run, event.id), None)
        if asked is not None:
            end = "answered" if isinstance(event.data, QuestionAnswered) else "expired"
            self._question_waits.labels(end).observe(max(0.0, event.ts.timestamp() - asked))

    def _actor_restarted(self, _event: Event) -> None:
        self._restarts.inc()

    def _name(self, label: str, value: str) -> str:
        """A label's value, as long as there are not too many of them."""
        known = self._names.setdefault(label, set())
        if value not in known:
            if len(known) >= MOST_NAMES:
                return "other"
            known.add(value)
        return value


_HANDLERS: dict[type, Callable[[Metrics, Event], None]] = {
    RunStarted: Metrics._run_started,  # noqa: SLF001 - the class's own table
    **dict.fromkeys(_ENDS, Metrics._run_ended),  # noqa: SLF001 - the class's own table
    LlmRequest: Metrics._llm_request,  # noqa: SLF001 - the class's own table
    LlmResponse: Metrics._llm_response,  # noqa: SLF001 - the class's own table
    LlmRetry: Metrics._llm_retry,  # noqa: SLF001 - the class's own table
    ActorStopped: Metrics._actor_over,  # noqa: SLF001 - the class's own table
    ActorFailed: Metrics._actor_over,  # noqa: SLF001 - the class's own table
    ToolFinished: Metrics._tool_finished,  # noqa: SLF001 - the class's own table
    QuestionAsked: Metrics._question_asked,  # noqa: SLF001 - the class's own table
    QuestionAnswered: Metrics._question_closed,  # noqa: SLF001 - the class's own table
    QuestionExpired: Metrics._question_closed,  # noqa: SLF001 - the class's own table
    ActorRestarted: Metrics._actor_restarted,  # noqa: SLF001 - the class's own table
}


@final
class _Looked(Collector):
    """What is a state, and is looked at when Prometheus comes."""

    def __init__(self, root: Root, active_sessions: Callable[[], int] | None) -> None:
        self._root = root
        self._active_sessions = active_sessions

    def collect(self) -> Iterable[Metric]:
        kernel = self._root.kernel
        lives = list(kernel.tasks.values())
        actors = GaugeMetricFamily("actors", "Actors that are alive.", labels=["state"])
        for state, count in sorted(Count(life.state for life in lives).items()):
            actors.add_metric([state], count)
        yield actors
        depths = [len(life.mailbox) for life in lives]
        yield GaugeMetricFamily("mailbox_depth", "Messages that wait in all mailboxes.", sum(depths))
        yield GaugeMetricFamily("mailbox_depth_max", "Messages that wait in the fullest one.", max(depths, default=0))
        yield GaugeMetricFamily("questions_open", "Questions without an answer.", len(kernel.questions.open))
        if self._active_sessions is not None:
            yield GaugeMetricFamily("sessions_active_total", "Sessions in use.", self._active_sessions())
        yield from self._pool()

    def _pool(self) -> Iterator[Metric]:
        """The MCP servers, once somebody has used one."""
        servers = self._root.mcp_in_use
        if servers is None:
            return
        states = GaugeMetricFamily("mcp_processes", "MCP servers by state.", labels=["server", "state"])
        size: Count[str] = Count(leased=0, idle=0)
        for (server, state), count in sorted(Count((one.name, one.state) for one in servers.status()).items()):
            states.add_metric([server, state], count)
            if state in size:
                size[state] += count
        yield states
        pool = GaugeMetricFamily("mcp_pool_size", "MCP servers that run.", labels=["state"])
        for state, count in size.items():
            pool.add_metric([state], count)
        yield pool
        counted = servers.statistics()
        acquired = counted.acquire_active_hit + counted.acquire_idle_hit + counted.acquire_miss
        yield SummaryMetricFamily(
            "mcp_acquire_latency_seconds", "Waiting for an MCP server.", acquired, counted.acquire_seconds
        )
        yield CounterFamily("mcp_spawns", "MCP servers started.", counted.spawned)
        yield CounterFamily("mcp_idle_evictions", "MCP servers stopped for want of use.", counted.idle_evicted)
