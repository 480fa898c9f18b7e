"""OpenTelemetry's own SDK with exporters that keep everything, and a collector on loopback that takes OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import trio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import callboard
from support.fake_models import Incoming


class Traced:
    """What was exported.

    Attributes:
        started: how many spans have begun.
    """

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._forgotten: set[str] = set()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def of(self, root: callboard.Root, *, content: bool | None = None) -> AbstractContextManager[None]:
        """`callboard.telemetry` for this root."""
        return callboard.telemetry(root, tracer_provider=self.tracers, meter_provider=self.meters, content=content)

    def shut_down(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()

    def forget(self, run: str) -> None:
        """Leave the spans of this run out."""
        self._forgotten.add(run)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, in the order in which they began."""
        kept = [
            span
            for span in self._exporter.get_finished_spans()
            if span.attributes.get("callboard.run.id") not in self._forgotten
        ]
        return sorted(kept, key=lambda span: (span.start_time, span.context.span_id))

    def named(self, name: str) -> ReadableSpan:
        """The one of this name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def parents(self) -> dict[str, str]:
        """Each span's name to that of its parent."""
        names = {span.context.span_id: span.name for span in self.spans}
        return {span.name: "" if span.parent is None else names[span.parent.span_id] for span in self.spans}

    def parents_of(self, name: str) -> list[str]:
        """The names of the parents of all spans of this name."""
        names = {span.context.span_id: span.name for span in self.spans}
        return ["" if span.parent is None else names[span.parent.span_id] for span in self.spans if span.name == name]

    def tree(self) -> list[str]:
        """All spans, indented by their depth, as they began."""
        return list(self._branch(0, ""))

    def _branch(self, parent: int, indent: str) -> Iterator[str]:
        for span in self.spans:
            if (0 if span.parent is None else span.parent.span_id) == parent:
                yield f"{indent}{span.name}"
                yield from self._branch(span.context.span_id, f"{indent}  ")

    def errors(self) -> dict[str, str]:
        """Of the spans that failed, the names and the types of their errors."""
        return {span.name: str(span.attributes["error.type"]) for span in self.spans if not span.status.is_ok}

    def points(self, name: str) -> list[Any]:
        """What was measured by that name."""
        data = self._reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics
        return [
            point
            for resource in found
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything(self) -> str:
        """All that was exported, as text."""
        data = self._reader.get_metrics_data()
        return "\n".join([*(span.to_json() for span in self.spans), "" if data is None else data.to_json()])


class Collector:
    """Takes OTLP over HTTP, as a collector does.

    Attributes:
        spans, metrics: names of what came, in order.
        resources: attributes of those who sent it.
        silent: whether requests are read and never answered.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[str] = []
        self.metrics: list[str] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.silent = False

    async def serve(self, listener: trio.SocketListener) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._connection, [listener])

    async def _connection(self, stream: trio.SocketStream) -> None:
        incoming = Incoming(stream)
        while (request := await incoming.next()) is not None:
            if self.silent:
                await trio.sleep_forever()
            self._take(request.path, request.body)
            self.headers.append(request.headers)
            self.bodies.append(request.body)
            head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
            await stream.send_all(head.encode())

    def _take(self, path: str, body: bytes) -> None:
        assert path in ("/v1/traces", "/v1/metrics")
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for each in traces.resource_spans:
                self.resources.append({one.key: one.value.string_value for one in each.resource.attributes})
                self.spans += [span.name for scope in each.scope_spans for span in scope.spans]
        else:
            measured = ExportMetricsServiceRequest.FromString(body)
            self.metrics += [
                metric.name
                for each in measured.resource_metrics
                for scope in each.scope_metrics
                for metric in scope.metrics
            ]
