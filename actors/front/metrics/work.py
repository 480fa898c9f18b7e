"""Metrics of the activity of runs, counted from their events: runs, agents, requests to models, tool calls, questions,
MCP servers.

Names and buckets of `gen_ai_*` and `mcp_client_*` follow OpenTelemetry's conventions for generative AI, with
underscores. A duration comes from the event if it has one, else from the event loop's clock when the event is heard.
Timestamps of events are not used: adjustments of the wall clock would falsify the durations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, final

import trio
from prometheus_client import Counter, Gauge, Histogram

from ....protocol import events as ev
from ....protocol.events import Event
from ...views.activity import NOTHING, ActivityChange
from ...views.run_view import RunView

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


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
    """The known values of each label."""

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
        Gauge("llm_inflight", "Requests to models under way.", registry=registry).set_function(self._inflight)
        self._retries = counter("llm_retries", "Requests to models that are tried again.", "model")
        self._waiting = counter("llm_waits", "Requests to models that waited for their turn.", "model", "reason")
        self._fallbacks = counter("llm_fallbacks", "Requests that went on to another model.", "model", "next")
        self._operations = histogram(f"{gen_ai}_duration_seconds", "Time to a model's whole answer.", OPERATION, model)
        self._firsts = histogram(
            f"{gen_ai}_time_to_first_chunk_seconds", "Time to the first piece of an answer.", OPERATION, model
        )
        self._chunks = histogram(
            f"{gen_ai}_time_per_output_chunk_seconds", "Time between pieces of an answer, its mean.", CHUNK, model
        )
        self._tokens = histogram(
            "gen_ai_client_token_usage", "Tokens of a request to a model.", TOKENS, model, "gen_ai_token_type"
        )
        self._workflows = histogram(
            "gen_ai_workflow_duration_seconds", "Time of a graph's or workflow's run.", LONG, "gen_ai_workflow_name"
        )
        self._agents = histogram(f"{agents}_duration_seconds", "Time of an agent's loop.", LONG, agent)
        self._agent_requests = histogram(f"{agents}_inference_calls", "Requests to models of one loop.", CALLS, agent)
        self._agent_tools = histogram(f"{agents}_tool_calls", "Tool calls of one loop.", CALLS, agent)
        self._tools = histogram(
            "gen_ai_execute_tool_duration_seconds", "Time of a tool call.", OPERATION, tool, "error"
        )
        self._mcp_sessions = histogram(
            "mcp_client_session_duration_seconds", "Time for which an MCP server ran.", LONG, "server"
        )
        self._waits = histogram("question_wait_seconds", "Time until a question was closed.", SECONDS, "end")
        self._restarts = counter("restarts", "Actors that a supervisor started again.")

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
