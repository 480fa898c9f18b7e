"""Spans of runs: one for each activity in a run's view, with the measurements recorded when it ends.

The span of a tool or model call is OpenTelemetry's current one in the task that makes the call. So spans of the tool
itself, of an instrumented HTTP client, and of runs that the tool starts become its children. This works because the bus
calls `Listener.hear` in the emitting task, which is the task that makes the call.

Names and histograms follow OpenTelemetry's conventions for generative AI and MCP, where they differ from Callboard's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ....protocol import events as ev
from ....protocol.events import Event, EventData
from ....supervisors.bus import RESOLUTION
from ...io.secret_redaction import Redactor
from ...runs.trace_context import caller, conversation
from ...views.run_view import Activity, RunView

# The bucket boundaries that the conventions recommend, by kind of histogram.
OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
INVOCATION = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
MCP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
CALLS = (1, 2, 4, 8, 16, 32, 64, 128)

MOST_NAMES = 100
"""Maximum number of values of one label; later values are counted as `OTHER`."""

OTHER = "_OTHER"
"""The conventions' placeholder for an unlisted value."""

CANCELLED = "cancelled"
"""The `error.type` of an interrupted span."""

# The conventions' values of `gen_ai.provider.name`, for clients of another name.
_PROVIDERS = {
    "azure-openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "claude": "anthropic",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertexai": "gcp.vertex_ai",
    "xai": "x_ai",
}

FINISH_REASONS = {
    "end": "stop",
    "length": "length",
    "tools": "tool_call",
    "refused": "content_filter",
    "failed": "error",
}

TOOL_TYPES = {"mcp": "extension"}
"""Types of tools by origin; all other tools are functions."""

_BOUNDED = (
    "gen_ai.agent.name",
    "gen_ai.workflow.name",
    "gen_ai.tool.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.data_source.id",
    "error.type",
)
"""Labels whose values come from files or models, and so need a bound."""


def provider_and_model(id: str) -> tuple[str, str]:
    """Split `client:model` into provider and model. A client with a user-defined name is its own provider."""
    client, _, model = id.partition(":")
    return _PROVIDERS.get(client, client), model or client


def server_attributes(server: str) -> dict[str, str | int]:
    """Return the attributes of `host:port`; none if nothing was asked over the network."""
    address, _, port = server.rpartition(":")
    return {"server.address": address, "server.port": int(port)} if address else {}


HISTOGRAMS: tuple[tuple[str, str, Sequence[float], str], ...] = (
    ("gen_ai.client.operation.duration", "s", OPERATION, "GenAI operation duration."),
    ("gen_ai.client.token.usage", "{token}", TOKENS, "Number of input and output tokens used."),
    ("gen_ai.client.operation.time_to_first_chunk", "s", OPERATION, "Time to receive the first chunk."),
    ("gen_ai.client.operation.time_per_output_chunk", "s", OPERATION, "Time per chunk after the first one."),
    ("gen_ai.workflow.duration", "s", INVOCATION, "Duration of a workflow."),
    ("gen_ai.invoke_agent.duration", "s", INVOCATION, "Duration of an agent's invocation."),
    ("gen_ai.invoke_agent.inference_calls", "{inference_call}", CALLS, "Model calls of an agent's invocation."),
    ("gen_ai.invoke_agent.tool_calls", "{tool_call}", CALLS, "Tool calls of an agent's invocation."),
    ("gen_ai.execute_tool.duration", "s", OPERATION, "Duration of a tool call."),
    ("mcp.client.operation.duration", "s", MCP, "Duration of a request to an MCP server."),
    ("mcp.client.session.duration", "s", MCP, "Lifetime of a connection to an MCP server."),
)
"""Name, unit, buckets and description of each histogram."""


@final
class Instruments:
    """Histograms of a meter, by name."""

    def __init__(self, meter: Meter) -> None:
        self._by_name = {
            name: meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)
            for name, unit, buckets, text in HISTOGRAMS
        }
        self._known: dict[str, set[str]] = {label: set() for label in _BOUNDED}

    def record(self, name: str, value: float, labels: Mapping[str, str], code: str = "") -> None:
        """Record a value with its labels; `code`, if not empty, becomes the label `error.type`."""
        self._by_name[name].record(value, self.bounded({**labels, "error.type": code} if code else labels))

    def bounded(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels, with `OTHER` for a value beyond the first `MOST_NAMES` of its label."""
        told = dict(labels)
        for label in told.keys() & self._known.keys():
            known = self._known[label]
            if told[label] not in known and len(known) >= MOST_NAMES:
                told[label] = OTHER
            else:
                known.add(told[label])
        return told


Attributes = dict[str, AttributeValue]
Kind = Literal["workflow", "agent", "node", "chat", "tool"]


SCOPE = "callboard"
SCHEMA = "https://opentelemetry.io/schemas/1.42.0"

_ENDS: dict[type[EventData], str] = {
    ev.RunFinished: "",
    ev.RunFailed: OTHER,
    ev.RunCancelled: CANCELLED,
    ev.RunDormant: "",  # the run gets new spans when it is woken
}
"""The `error.type` of a run by its last event, unless its outcome names one."""

LONGEST = 32_768
"""Maximum number of characters of one text."""

ENOUGH = LONGEST + 4_096
"""Characters to collect of a streamed text. The margin lets the redactor see the whole of a secret at the cut."""


@final
class ContentRecorder:
    """Prepares texts of people and models for export: without secrets, bounded, in the conventions' format."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def text(self, text: str) -> str:
        """Return the text without secrets, cut to `LONGEST`."""
        shown = self._redactor.text(text)
        return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."

    def message(self, role: str, text: str, finish_reason: str = "") -> str:
        """Return the text as the only message of a list, as JSON."""
        message: dict[str, object] = {"role": role, "parts": [{"type": "text", "content": self.text(text)}]}
        if role == "assistant":
            message["finish_reason"] = finish_reason or "stop"
        return json.dumps([message], ensure_ascii=False)


@final
@dataclass(slots=True, eq=False)
class Open:
    """Open span, with the labels of the measurement that is recorded at its end.

    Attributes:
        told: text of a chat's model so far, if texts are exported; `length` is its number of characters.
        outer: the context that was current before this span; None for a span that never becomes current.
    """

    kind: Kind
    span: Span
    began: datetime
    labels: dict[str, str]
    told: list[str] = field(default_factory=list)
    length: int = 0
    outer: Context | None = None

    def enter(self) -> Open:
        """Make the span the current one of the running task."""
        self.outer = context.get_current()
        context.attach(set_span_in_context(self.span, self.outer))
        return self

    def leave(self) -> None:
        """Restore the previous context, if the running task is the one that entered: other tasks have their own
        context.
        """
        if self.outer is not None and trace.get_current_span() is self.span:
            # Not `detach`: in a task that has inherited this context, OpenTelemetry logs an error, because the token
            # belongs to another context.
            context.attach(self.outer)


@final
class RunSpans:
    """Spans of one run.

    Args:
        event: the run's first event.
        above: the parent context of the run's span.
        conversation: session in which the run is a turn, or empty.
        content: recorder of texts; None if texts are not exported.
    """

    def __init__(
        self,
        tracer: Tracer,
        measured: Instruments,
        content: ContentRecorder | None,
        event: Event,
        above: Context,
        conversation: str,
    ) -> None:
        data = event.data
        assert isinstance(data, ev.RunStarted)
        self._tracer = tracer
        self._measured = measured
        self._content = content
        self._common: Attributes = {"gen_ai.conversation.id": conversation or event.run, "callboard.run.id": event.run}
        self._open: dict[Activity | None, Open] = {}
        self._latest = 0
        self._view = RunView()
        self._view.see(event)
        attributes: Attributes = {"callboard.dialect": data.dialect}
        if content is not None and data.prompt:
            attributes["gen_ai.input.messages"] = content.message("user", data.prompt)
        self._top = self._invoked(
            "agent" if data.dialect == "agent" else "workflow", data.name, event, above, attributes
        )

    def hear(self, event: Event) -> None:
        """Open, complete or end the spans that an event of the run concerns. The constructor has its first event."""
        change = self._view.see(event)
        about = change.about
        if isinstance(event.data, ev.LlmEmbedding | ev.LlmRerank):
            self._knowledge_call(event, event.data)
        elif about is not None:
            if change.began:
                self._begin(about, event)
            if (more := self._MORE.get(type(event.data))) is not None and (open := self._open.get(about)) is not None:
                more(self, about, open, event, event.data)
        elif isinstance(event.data, ev.KnowledgeRetrieved):
            self._retrieved(event, event.data)
        for each in change.ended:
            self._end(each, event.ts, each.code)

    def over(self, at: datetime, code: str) -> None:
        """End all spans of the run. `code` is empty if the run succeeded."""
        # The newest first, so that a span ends before its parent does.
        for each in reversed(self._open.copy()):
            self._end(each, at, CANCELLED)
        outcome = self._view.outcome or {}
        if self._content is not None and outcome.get("output"):
            said = self._content.message("assistant", str(outcome["output"]))
            self._top.span.set_attribute("gen_ai.output.messages", said)
        error = outcome.get("error") or {}
        home = self._view.home
        tokens = home.tokens if home is not None and home.kind == "agent" else ()
        self._finish(self._top, at, error.get("code") or code, error.get("message"), tokens)

    # --- opening spans ---------------------------------------------------------------------------------------------

    def _begin(self, activity: Activity, event: Event) -> None:
        above = self._open.get(activity.above, self._top)
        if activity is self._view.home:
            self._open[activity] = self._top
        elif activity.kind == "graph":
            self._open[activity] = self._invoked("workflow", activity.name, event, _in(above))
        elif activity.kind == "agent":
            data = activity.data
            attributes: Attributes = {"callboard.agent.depth": data.depth}
            if data.child is not None:
                attributes["gen_ai.agent.id"] = data.child
                above.span.add_event("callboard.agent.spawned", {"gen_ai.agent.id": data.child}, _ns(event.ts))
            self._open[activity] = self._invoked("agent", activity.name, event, _in(above), attributes)
        elif activity.kind == "node":
            self._open[activity] = self._node(event, activity.data, above)
        elif activity.kind == "chat":
            self._open[activity] = self._chat(event, activity.data, above).enter()
        elif activity.kind == "tool":
            self._open[activity] = self._tool(event, activity.data, above).enter()

    def _node(self, event: Event, data: ev.NodeEntered, above: Open) -> Open:
        attributes: Attributes = {
            "callboard.node.id": data.node,
            "callboard.node.type": data.type,
            "callboard.node.visit": data.visit,
        }
        if data.item is not None:
            attributes["callboard.node.item"] = data.item
        return self._opened("node", f"node {data.node}", event, _in(above), attributes, {})

    def _chat(self, event: Event, data: ev.LlmRequest, above: Open) -> Open:
        provider, model = provider_and_model(data.model)
        labels = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        if above.kind == "agent" and "gen_ai.request.model" not in above.labels:
            asked = {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
            above.labels.update(asked)
            above.span.set_attributes(asked)
        attributes: Attributes = {**labels, "gen_ai.request.stream": data.stream, **server_attributes(data.server)}
        return self._opened("chat", f"chat {model}", event, _in(above), attributes, labels, SpanKind.CLIENT)

    def _tool(self, event: Event, data: ev.ToolStarted, above: Open) -> Open:
        labels = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": data.tool}
        attributes: Attributes = {**labels, "gen_ai.tool.type": TOOL_TYPES.get(data.origin, "function")}
        if event.id:
            attributes["gen_ai.tool.call.id"] = event.id
        if data.origin == "mcp":
            labels["mcp.method.name"] = attributes["mcp.method.name"] = "tools/call"
        if self._content is not None and data.arguments:
            attributes["gen_ai.tool.call.arguments"] = self._content.text(data.arguments)
        return self._opened("tool", f"execute_tool {data.tool}", event, _in(above), attributes, labels)

    # --- attributes and events of open spans -----------------------------------------------------------------------

    def _agent_finished(self, _: Activity, agent: Open, __: Event, data: ev.AgentFinished) -> None:
        agent.span.set_attributes({"callboard.agent.turns": data.turns, "callboard.agent.tool_calls": data.tool_calls})
        if not data.error:
            agent.span.set_attribute("callboard.agent.stop", data.stop)
        self._measured.record("gen_ai.invoke_agent.inference_calls", data.turns, agent.labels, data.code)
        self._measured.record("gen_ai.invoke_agent.tool_calls", data.tool_calls, agent.labels, data.code)

    def _piece(self, about: Activity, chat: Open, _: Event, data: ev.LlmDelta | ev.LlmReasoning) -> None:
        first = about.pieces == 1
        kind = "time_to_first_chunk" if first else "time_per_output_chunk"
        self._measured.record(f"gen_ai.client.operation.{kind}", about.gap, chat.labels)
        if first:
            chat.span.set_attribute("gen_ai.response.time_to_first_chunk", about.gap)
        if self._content is not None and isinstance(data, ev.LlmDelta) and chat.length <= ENOUGH:
            chat.told.append(data.text)
            chat.length += len(data.text)

    def _retried(self, _: Activity, chat: Open, event: Event, data: ev.LlmRetry) -> None:
        # The answer begins again, so the text of the failed attempt is dropped.
        chat.told, chat.length = [], 0
        attributes: Attributes = {"callboard.attempt": data.attempt, "callboard.wait": data.wait}
        if self._content is not None:
            attributes["callboard.error"] = self._content.text(data.error)
        chat.span.add_event("callboard.retry", attributes, _ns(event.ts))

    def _fell_back(self, _: Activity, chat: Open, event: Event, data: ev.LlmFallback) -> None:
        chat.told, chat.length = [], 0
        attributes: Attributes = {"callboard.model": data.model, "callboard.next_model": data.next}
        if self._content is not None:
            attributes["callboard.error"] = self._content.text(data.error)
        chat.span.add_event("callboard.fallback", attributes, _ns(event.ts))

    def _answered(self, about: Activity, chat: Open, _: Event, data: ev.LlmResponse) -> None:
        reason = FINISH_REASONS.get(data.stop, data.stop)
        answered = provider_and_model(data.model)[1]
        chat.labels["gen_ai.response.model"] = answered
        chat.span.set_attributes({"gen_ai.response.model": answered, "gen_ai.response.finish_reasons": (reason,)})
        chat.span.set_attributes(server_attributes(data.server))  # a fallback model has another server than the request
        if data.response_id:
            chat.span.set_attribute("gen_ai.response.id", data.response_id)
        for type, count in zip(("input", "output"), about.tokens, strict=False):
            if count:  # zero means that the provider does not count them
                labels = {**chat.labels, "gen_ai.token.type": type}
                self._measured.record("gen_ai.client.token.usage", count, labels)
        if self._content is not None and chat.told:
            said = self._content.message("assistant", "".join(chat.told), reason)
            chat.span.set_attribute("gen_ai.output.messages", said)

    def _tool_finished(self, about: Activity, tool: Open, _: Event, data: ev.ToolFinished) -> None:
        if data.status is not None:
            tool.span.set_attribute("process.exit.code", data.status)
        if self._content is not None and data.result:
            tool.span.set_attribute("gen_ai.tool.call.result", self._content.text(data.result))
        # Set before `hear` ends the span with the code of its activity.
        about.code = data.code or (OTHER if data.error is not None else "process" if data.status else "")

    def _question(self, _: Activity, above: Open, event: Event, __: object) -> None:
        above.span.add_event(f"callboard.{event.kind}", {"callboard.question": event.id}, _ns(event.ts))

    def _retrieved(self, event: Event, data: ev.KnowledgeRetrieved) -> None:
        labels = {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": data.what}
        span = self._tracer.start_span(
            f"retrieval {data.what}",
            _in(self._open.get(self._view.nearest(event.actor), self._top)),
            SpanKind.CLIENT,
            {**self._common, **labels, "callboard.chunks": data.chunks},
            start_time=_ns(event.ts) - int(data.seconds * 1e9),
        )
        span.end(_ns(event.ts))
        self._measured.record("gen_ai.client.operation.duration", data.seconds, labels)

    def _knowledge_call(self, event: Event, data: ev.LlmEmbedding | ev.LlmRerank) -> None:
        provider, model = provider_and_model(data.model)
        name = "embeddings" if isinstance(data, ev.LlmEmbedding) else "rerank"
        labels = {"gen_ai.operation.name": name, "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        attributes: Attributes = {**self._common, **labels, "callboard.texts": data.texts}
        if data.attempt > 1:
            attributes["callboard.attempt"] = data.attempt
        if data.input_tokens:
            attributes["gen_ai.usage.input_tokens"] = data.input_tokens
            self._measured.record(
                "gen_ai.client.token.usage", data.input_tokens, {**labels, "gen_ai.token.type": "input"}
            )
        if data.code:
            attributes["error.type"] = data.code
        above = self._open.get(self._view.nearest(event.actor), self._top)
        start = _ns(event.ts) - int(data.seconds * 1e9)
        span = self._tracer.start_span(f"{name} {model}", _in(above), SpanKind.CLIENT, attributes, start_time=start)
        if data.code:
            told = self._content.text(data.error) if self._content is not None and data.error else None
            span.set_status(Status(StatusCode.ERROR, told))
        span.end(_ns(event.ts))
        self._measured.record("gen_ai.client.operation.duration", data.seconds, labels, data.code)

    # --- common to all spans ---------------------------------------------------------------------------------------

    def _invoked(
        self, kind: Kind, name: str, event: Event, above: Context, attributes: Attributes | None = None
    ) -> Open:
        labels = {"gen_ai.operation.name": f"invoke_{kind}", f"gen_ai.{kind}.name": name}
        title = f"invoke_{kind} {name}" if name else f"invoke_{kind}"
        return self._opened(kind, title, event, above, {**labels, **(attributes or {})}, labels)

    def _opened(
        self,
        kind: Kind,
        title: str,
        event: Event,
        above: Context,
        attributes: Attributes,
        labels: dict[str, str],
        span_kind: SpanKind = SpanKind.INTERNAL,
    ) -> Open:
        attributes = {**self._common, **attributes}
        span = self._tracer.start_span(title, above, span_kind, attributes, start_time=self._when(event.ts))
        return Open(kind, span, event.ts, labels)

    def _when(self, at: datetime) -> int:
        """Return an event's time in ns for a span; keep the order of events with equal times (`bus.RESOLUTION`)."""
        ns = _ns(at)
        if ns <= self._latest < ns + int(RESOLUTION * 1e9):
            ns = self._latest + 1
        self._latest = ns
        return ns

    def _end(self, activity: Activity | None, at: datetime, code: str) -> None:
        open = self._open.pop(activity, None)
        if open is None or open is self._top or activity is None:
            return
        self._finish(open, at, code, activity.error, activity.tokens)

    def _finish(self, open: Open, at: datetime, code: str, message: str | None, tokens: Sequence[int]) -> None:
        if code:
            open.span.set_attribute("error.type", code)
            told = self._content.text(message) if self._content is not None and message else None
            open.span.set_status(Status(StatusCode.ERROR, told))
        if open.kind in ("chat", "agent"):
            open.span.set_attributes({name: count for name, count in zip(_USAGE, tokens, strict=False) if count})
        if open.kind != "node":
            seconds = max(0.0, (at - open.began).total_seconds())
            self._measured.record(_DURATIONS[open.kind], seconds, open.labels, code)
            if "mcp.method.name" in open.labels:
                self._measured.record("mcp.client.operation.duration", seconds, open.labels, code)
        open.leave()
        open.span.end(self._when(at))

    _MORE: ClassVar[dict[type[EventData], Callable[[RunSpans, Activity, Open, Event, Any], None]]] = {
        ev.AgentFinished: _agent_finished,
        ev.LlmDelta: _piece,
        ev.LlmReasoning: _piece,
        ev.LlmRetry: _retried,
        ev.LlmFallback: _fell_back,
        ev.LlmResponse: _answered,
        ev.ToolFinished: _tool_finished,
        ev.QuestionAsked: _question,
        ev.QuestionAnswered: _question,
        ev.QuestionExpired: _question,
    }


_DURATIONS = {
    "workflow": "gen_ai.workflow.duration",
    "agent": "gen_ai.invoke_agent.duration",
    "chat": "gen_ai.client.operation.duration",
    "tool": "gen_ai.execute_tool.duration",
}
_USAGE = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")


def _ns(at: datetime) -> int:
    # By microseconds, which datetimes have: floats of seconds since 1970 are exact only to about 240 ns.
    return round(at.timestamp() * 1e6) * 1000


def _in(open: Open) -> Context:
    return set_span_in_context(open.span, Context())


@final
class Listener:
    """Routes events of all runs to their spans, and measures the lives of MCP servers. The bus calls `hear`.

    Args:
        tracers, meters: destinations of spans and measurements.
        content: recorder of texts; None if texts are not exported.
        version: Callboard's version.
    """

    def __init__(
        self, tracers: trace.TracerProvider, meters: MeterProvider, content: ContentRecorder | None, version: str
    ) -> None:
        self._tracer = tracers.get_tracer(SCOPE, version, SCHEMA)
        self._measured = Instruments(meters.get_meter(SCOPE, version, SCHEMA))
        self._content = content
        self._runs: dict[str, RunSpans] = {}
        self._servers: dict[str, datetime] = {}

    @property
    def under_way(self) -> int:
        """Number of runs with open spans."""
        return len(self._runs)

    def hear(self, event: Event) -> None:
        """Pass an event of a run to its spans; measure the life of an MCP server by events of the kernel."""
        kind = type(event.data)
        if not event.run:
            self._of_kernel(event)
        elif kind is ev.RunStarted:
            self._runs[event.run] = RunSpans(
                self._tracer, self._measured, self._content, event, _around(), conversation.get()
            )
            return
        spans = self._runs.get(event.run)
        if spans is None:
            return  # the run began before this listener, or a program calls a tool outside a run
        spans.hear(event)
        if kind in _ENDS:
            del self._runs[event.run]
            spans.over(event.ts, _ENDS[kind])

    def close(self) -> None:
        """End all open spans, as those of cancelled runs."""
        runs, self._runs = self._runs, {}
        for spans in runs.values():
            spans.over(datetime.now(UTC), CANCELLED)

    def _of_kernel(self, event: Event) -> None:
        data = event.data
        if isinstance(data, ev.McpServerStarted):
            self._servers[event.actor] = event.ts
        elif isinstance(data, ev.McpServerStopped | ev.ActorStopped | ev.ActorFailed):
            began = self._servers.pop(event.actor, None)
            if began is not None:
                wrong = isinstance(data, ev.ActorFailed) or (isinstance(data, ev.McpServerStopped) and data.error)
                seconds = max(0.0, (event.ts - began).total_seconds())
                self._measured.record("mcp.client.session.duration", seconds, {}, "mcp_lost" if wrong else "")


def _around() -> Context:
    """Return the parent context of a new run: its starter's span, else the trace of the caller's request."""
    here = context.get_current()
    headers = caller.get()
    if headers is None or trace.get_current_span(here).get_span_context().is_valid:
        return here
    return TraceContextTextMapPropagator().extract(headers, here)
