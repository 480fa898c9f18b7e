"""What runs do, counted from their events: runs, agents, requests to models, tool calls, questions, MCP servers.

Names and buckets of `gen_ai_*` and `mcp_client_*` are those of OpenTelemetry's conventions for generative AI, with
underscores. Durations are taken from the event loop's clock when an event is heard, or from the event itself where it
says them: never from the events' times, which the wall clock moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import trio
from prometheus_client import Counter, Gauge, Histogram

from ....protocol.events import (
    ActorFailed,
    ActorRestarted,
    ActorStopped,
    AgentFinished,
    Event,
    LlmDelta,
    LlmFailed,
    LlmReasoning,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    McpServerStarted,
    McpServerStopped,
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
    from prometheus_client import CollectorRegistry

    from .labels import Names

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
CHUNK = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
LONG = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
CALLS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)

GRAPHS = ("graph", "workflow")
"""Dialects of runs that the conventions call a workflow."""

_ENDS = {RunFinished: "done", RunFailed: "failed", RunCancelled: "cancelled"}


class _Request:
    """A request to a model that is under way."""

    __slots__ = ("actor", "began", "chunks", "first", "last", "model")

    def __init__(self, actor: str, model: str, began: float) -> None:
        self.actor = actor
        self.model = model
        self.began = began
        self.first: float | None = None
        self.last = 0.0
        self.chunks = 0


class _Run:
    """A run that is under way.

    Attributes:
        workflow: its name, if it is one.
        requests: to models, by the id of the call.
        asked: when each open question was put, by its id.
    """

    __slots__ = ("asked", "began", "requests", "workflow")

    def __init__(self, began: float, workflow: str | None) -> None:
        self.began = began
        self.workflow = workflow
        self.requests: dict[str, _Request] = {}
        self.asked: dict[str, float] = {}


@final
class Work:
    """See the module."""

    def __init__(self, registry: CollectorRegistry, names: Names) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        model, agent, tool = "gen_ai_request_model", "gen_ai_agent_name", "gen_ai_tool_name"
        gen_ai, agents = "gen_ai_client_operation", "gen_ai_invoke_agent"
        self._names = names
        self._known = {"": _Run(0.0, None)}  # what belongs to no run is the process's
        self._mcp_since: dict[str, float] = {}
        self._runs = counter("runs", "Runs ended.", "status")
        self._active = Gauge("runs_active", "Runs under way.", registry=registry)
        self._inflight = Gauge("llm_inflight", "Requests to models under way.", registry=registry)
        self._retries = counter("llm_retries", "Requests to models that are tried again.", "model")
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
        """One event of any run."""
        handler = _HANDLERS.get(type(event.data))
        if handler is not None:
            handler(self, event, event.data)

    # --- runs and agents --------------------------------------------------------------------------------------

    def _run_started(self, event: Event, data: RunStarted) -> None:
        self._active.inc()
        workflow = self._names.of("workflow", data.name) if data.dialect in GRAPHS else None
        self._known[event.run] = _Run(trio.current_time(), workflow)

    def _run_ended(self, event: Event, data: RunFinished | RunFailed | RunCancelled) -> None:
        self._runs.labels(_ENDS[type(data)]).inc()
        run = self._known.pop(event.run, None)
        if run is None:  # begun before anybody listened
            return
        self._active.dec()
        self._inflight.dec(len(run.requests))
        if run.workflow is not None:
            self._workflows.labels(run.workflow).observe(trio.current_time() - run.began)

    def _agent_finished(self, _: Event, data: AgentFinished) -> None:
        agent = self._names.of("agent", data.agent)
        self._agents.labels(agent).observe(data.seconds)
        self._agent_requests.labels(agent).observe(data.turns)
        self._agent_tools.labels(agent).observe(data.tool_calls)

    def _actor_restarted(self, _: Event, __: object) -> None:
        self._restarts.inc()

    def _actor_over(self, event: Event, _: object) -> None:
        """Its requests are over as well, whatever became of them."""
        run = self._known.get(event.run)
        if run is not None and run.requests:
            for id in [id for id, request in run.requests.items() if request.actor == event.actor]:
                self._request_over(event.run, id)

    # --- models -----------------------------------------------------------------------------------------------

    def _llm_request(self, event: Event, data: LlmRequest) -> None:
        self._request_over(event.run, event.id)
        run = self._known.get(event.run)
        if run is not None:
            run.requests[event.id] = _Request(event.actor, data.model, trio.current_time())
            self._inflight.inc()

    def _llm_piece(self, event: Event, _: object) -> None:
        run = self._known.get(event.run)
        request = run.requests.get(event.id) if run is not None else None
        if request is None:
            return
        request.chunks += 1
        request.last = trio.current_time()
        if request.first is None:
            request.first = request.last
            model = self._names.of("model", request.model)
            self._firsts.labels(model).observe(request.first - request.began)

    def _llm_response(self, event: Event, data: LlmResponse) -> None:
        request = self._request_over(event.run, event.id)
        model = self._names.of("model", data.model)
        self._operations.labels(model).observe(data.seconds)
        self._tokens.labels(model, "input").observe(data.input_tokens)
        self._tokens.labels(model, "output").observe(data.output_tokens)
        if request is not None and request.first is not None and request.chunks > 1:
            self._chunks.labels(model).observe((request.last - request.first) / (request.chunks - 1))

    def _llm_retry(self, event: Event, data: LlmRetry) -> None:
        self._request_over(event.run, event.id)
        self._retries.labels(self._names.of("model", data.model)).inc()

    def _llm_failed(self, event: Event, _: object) -> None:
        self._request_over(event.run, event.id)

    def _request_over(self, run: str, id: str) -> _Request | None:
        known = self._known.get(run)
        request = known.requests.pop(id, None) if known is not None else None
        if request is not None:
            self._inflight.dec()
        return request

    # --- tools, questions, MCP servers ------------------------------------------------------------------------

    def _tool_finished(self, _: Event, data: ToolFinished) -> None:
        error = "true" if data.error else "false"
        self._tools.labels(self._names.of("tool", data.tool), error).observe(data.seconds)

    def _question_asked(self, event: Event, _: object) -> None:
        if (run := self._known.get(event.run)) is not None:
            run.asked[event.id] = trio.current_time()

    def _question_closed(self, event: Event, data: object) -> None:
        run = self._known.get(event.run)
        asked = run.asked.pop(event.id, None) if run is not None else None
        if asked is not None:
            end = "answered" if isinstance(data, QuestionAnswered) else "expired"
            self._waits.labels(end).observe(trio.current_time() - asked)

    def _mcp_started(self, event: Event, _: object) -> None:
        if not event.run:  # the run that wanted it is told as well
            self._mcp_since[event.actor] = trio.current_time()

    def _mcp_stopped(self, event: Event, data: McpServerStopped) -> None:
        since = self._mcp_since.pop(event.actor, None)
        if since is not None:
            self._mcp_sessions.labels(self._names.of("server", data.server)).observe(trio.current_time() - since)


_HANDLERS: dict[type, Callable[[Work, Event, Any], None]] = {
    RunStarted: Work._run_started,  # noqa: SLF001 - the class's own table
    **dict.fromkeys(_ENDS, Work._run_ended),  # noqa: SLF001 - the class's own table
    AgentFinished: Work._agent_finished,  # noqa: SLF001 - the class's own table
    LlmRequest: Work._llm_request,  # noqa: SLF001 - the class's own table
    LlmDelta: Work._llm_piece,  # noqa: SLF001 - the class's own table
    LlmReasoning: Work._llm_piece,  # noqa: SLF001 - the class's own table
    LlmResponse: Work._llm_response,  # noqa: SLF001 - the class's own table
    LlmRetry: Work._llm_retry,  # noqa: SLF001 - the class's own table
    LlmFailed: Work._llm_failed,  # noqa: SLF001 - the class's own table
    ActorStopped: Work._actor_over,  # noqa: SLF001 - the class's own table
    ActorFailed: Work._actor_over,  # noqa: SLF001 - the class's own table
    ToolFinished: Work._tool_finished,  # noqa: SLF001 - the class's own table
    QuestionAsked: Work._question_asked,  # noqa: SLF001 - the class's own table
    QuestionAnswered: Work._question_closed,  # noqa: SLF001 - the class's own table
    QuestionExpired: Work._question_closed,  # noqa: SLF001 - the class's own table
    McpServerStarted: Work._mcp_started,  # noqa: SLF001 - the class's own table
    McpServerStopped: Work._mcp_stopped,  # noqa: SLF001 - the class's own table
    ActorRestarted: Work._actor_restarted,  # noqa: SLF001 - the class's own table
}
