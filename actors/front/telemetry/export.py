"""Export telemetry as the standard OTEL variables request, while a root lasts. The command line uses this.

    root = Root()
    async with exporting(root, environ), root:
        ...

Threads of the SDK send the spans. The last ones are sent when the root is over and all runs have ended, within
`FLUSH_WITHIN` seconds. After that a collector without an answer is abandoned, and the SDK's errors become one line in
our log.

By the specification the default destination is an OTLP collector on this machine. A command line that looks for a
collector on every machine would cause errors on most, so a variable has to name an exporter or an endpoint. See
docs/telemetry.md.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

from ....protocol.version import VERSION
from ....supervisors.installation import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from ...io.secret_redaction import Redactor
    from ...runs.root import Root

log = logging.getLogger("callboard.telemetry")

FLUSH_WITHIN = 5.0
SIGNALLED_WITHIN = 1.0
"""Seconds for the flush after a signal, because a user who interrupts does not want to wait for a collector."""

QUIET = 300.0
"""Seconds between two log lines about errors of the collector."""


def _missing() -> str:
    return (
        "OTEL_... variables of the environment ask for OpenTelemetry, but the extra `otel` is not installed, "
        f"so nothing is exported: run {install_command('otel')}, or set OTEL_SDK_DISABLED=true"
    )


KNOWN = ("otlp", "console", "none")
PROTOCOL = "http/protobuf"


@asynccontextmanager
async def exporting(root: Root, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """Export a root's telemetry while the block lasts. Import nothing if the environment requests no export."""
    asked = wanted(environ)
    for problem in asked.problems:
        log.warning("%s", problem)
    providers = await trio.to_thread.run_sync(_set_up, asked, environ) if asked.anything else None
    if providers is None:
        yield
        return
    from ...io.secret_redaction import Redactor, secrets_of
    from .attach import listening

    with _Complaints(Redactor(secrets_of(root.settings, environ))) as complaints:
        try:
            with listening(root, *providers, environ=environ):
                yield
        finally:
            within = FLUSH_WITHIN if root.kernel.signal is None else SIGNALLED_WITHIN
            complaints.left = not await _flushed(*providers, within)


def _set_up(asked: WantedExporters, environ: Mapping[str, str]) -> tuple[TracerProvider, MeterProvider] | None:
    """Return the SDK's providers; log the reason and return None if they can't be created."""
    try:
        return _providers(asked, environ)
    except ImportError:
        log.warning(_missing())
    except Exception as error:  # noqa: BLE001 - the SDK parses variables; a bad one must not fail a run
        log.warning("OpenTelemetry can't be set up, so nothing is exported: %s: %s", type(error).__name__, error)
    return None


def _providers(asked: WantedExporters, environ: Mapping[str, str]) -> tuple[TracerProvider, MeterProvider]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    # The SDK's own default is `unknown_service`.
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({"service.version": VERSION, **({} if named else {"service.name": "callboard"})})
    # `_flushed` replaces the SDK's flush at exit, which would wait for the collector without our limit.
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in asked.traces:
        # Console exporters write to stderr: stdout holds the run's result.
        spans = _otlp("trace_exporter", "OTLPSpanExporter") if name == "otlp" else ConsoleSpanExporter(out=sys.stderr)
        tracers.add_span_processor(BatchSpanProcessor(spans))
    readers: list[MetricReader] = []
    for name in asked.metrics:
        points = (
            _otlp("metric_exporter", "OTLPMetricExporter") if name == "otlp" else ConsoleMetricExporter(out=sys.stderr)
        )
        readers.append(PeriodicExportingMetricReader(points))
    return tracers, MeterProvider(readers, resource, shutdown_on_exit=False)


def _otlp(module: str, name: str) -> Any:
    """Return an exporter. The import is deferred, because it loads an HTTP client."""
    from importlib import import_module

    return getattr(import_module(f"opentelemetry.exporter.otlp.proto.http.{module}"), name)()


async def _flushed(tracers: TracerProvider, meters: MeterProvider, within: float) -> bool:
    async def end(shutdown: Callable[[], None]) -> None:
        # `shutdown` blocks on the network, so after the limit its thread is abandoned.
        await trio.to_thread.run_sync(shutdown, abandon_on_cancel=True)

    with trio.move_on_after(within, shield=True) as scope:
        async with trio.open_nursery() as nursery:
            # This `shutdown` takes no timeout, and that of the meters takes milliseconds.
            nursery.start_soon(end, tracers.shutdown)
            nursery.start_soon(end, lambda: meters.shutdown(within * 1000))
    if scope.cancelled_caught:
        log.warning("the collector did not accept the last telemetry within %g s; it is lost", within)
    return not scope.cancelled_caught


@final
class _Complaints(logging.Handler):
    """Replaces the SDK's logging while the block lasts: a rate-limited line without traceback.

    Attributes:
        left: whether a thread of the SDK outlives the block; its log lines are dropped.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(logging.WARNING)
        self.left = False
        self._redactor = redactor
        self._told = float("-inf")
        self._logger = logging.getLogger("opentelemetry")
        self._before = (self._logger.handlers, self._logger.propagate)

    def emit(self, record: logging.LogRecord) -> None:
        """Log the SDK's message, once in `QUIET` seconds at most."""
        now = time.monotonic()
        if not self.left and now - self._told > QUIET:
            self._told = now
            log.warning("telemetry is not exported: %s", self._redactor.text(record.getMessage())[:300])

    def __enter__(self) -> _Complaints:
        self._logger.handlers, self._logger.propagate = [self], False
        return self

    def __exit__(self, *_: object) -> None:
        # While a thread of the SDK remains, restored handlers would print its traceback.
        if not self.left:
            self._logger.handlers, self._logger.propagate = self._before


class WantedExporters(msgspec.Struct, frozen=True, kw_only=True):
    """Exporters of traces and of metrics that the environment requests, by name.

    Attributes:
        problems: requests in the variables that can't be satisfied.
    """

    traces: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """True if any exporter is requested."""
        return bool(self.traces or self.metrics)


def wanted(environ: Mapping[str, str]) -> WantedExporters:
    """Return the exporters that the environment requests."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return WantedExporters()
    problems: list[str] = []
    traces, metrics = (_exporters(environ, signal, problems) for signal in ("TRACES", "METRICS"))
    return WantedExporters(traces=traces, metrics=metrics, problems=tuple(dict.fromkeys(problems)))


def _exporters(environ: Mapping[str, str], signal: str, problems: list[str]) -> tuple[str, ...]:
    variable = f"OTEL_{signal}_EXPORTER"
    named = [name.strip().lower() for name in environ.get(variable, "").split(",") if name.strip()]
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not named and any(environ.get(endpoint, "").strip() for endpoint in endpoints):
        named = ["otlp"]
    problems += [
        f"{variable}: the exporter '{name[:60]}' is not supported; use otlp, console or none"
        for name in named
        if name not in KNOWN
    ]
    exporters = [name for name in dict.fromkeys(named) if name in KNOWN and name != "none"]
    if "otlp" in exporters:
        general, own = "OTEL_EXPORTER_OTLP_PROTOCOL", f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        variable = own if environ.get(own, "").strip() else general
        protocol = environ.get(variable, "").strip() or PROTOCOL
        if protocol != PROTOCOL:
            problems.append(
                f"{variable}: the protocol '{protocol[:60]}' of OTLP is not supported; use {PROTOCOL} (port 4318)"
            )
            exporters.remove("otlp")
    return tuple(exporters)
