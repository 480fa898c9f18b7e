"""The listener: events of all runs to the spans of each, and of MCP servers to the length of their lives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ....protocol import events as ev
from ....protocol.events import Event, EventData
from ...runs.trace_context import caller, conversation
from .conventions import CANCELLED, OTHER, Instruments
from .spans import Content, RunSpans

SCOPE = "callboard"
SCHEMA = "https://opentelemetry.io/schemas/1.42.0"

_ENDS: dict[type[EventData], str] = {ev.RunFinished: "", ev.RunFailed: OTHER, ev.RunCancelled: CANCELLED}
"""The `error.type` of a run that ended like this, where its outcome names none."""


@final
class Listener:
    """See the module. `hear` is what the bus calls.

    Args:
        tracers, meters: where spans and measurements go.
        content: how text of people and models is recorded; None: it is not.
        version: ours.
    """

    def __init__(
        self, tracers: trace.TracerProvider, meters: MeterProvider, content: Content | None, version: str
    ) -> None:
        self._tracer = tracers.get_tracer(SCOPE, version, SCHEMA)
        self._measured = Instruments(meters.get_meter(SCOPE, version, SCHEMA))
        self._content = content
        self._runs: dict[str, RunSpans] = {}
        self._servers: dict[str, datetime] = {}

    @property
    def under_way(self) -> int:
        """Runs that have spans which are open."""
        return len(self._runs)

    def hear(self, event: Event) -> None:
        """One event of any run, or of the kernel itself."""
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
            return  # begun before we listened, or no run: a tool that is called by hand
        spans.hear(event)
        if kind in _ENDS:
            del self._runs[event.run]
            spans.over(event.ts, _ENDS[kind])

    def close(self) -> None:
        """End all open spans."""
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
    """What a run that begins now belongs to: the span that its starter is in, else the trace of who asked for it."""
    here = context.get_current()
    headers = caller.get()
    if headers is None or trace.get_current_span(here).get_span_context().is_valid:
        return here
    return TraceContextTextMapPropagator().extract(headers, here)
