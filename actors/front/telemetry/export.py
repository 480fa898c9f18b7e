"""Exporting as the standard variables say, for as long as a root lasts: what the command line does.

    root = Root()
    async with exporting(root, environ), root:
        ...

Spans are sent by the SDK's threads. The last of them go out when the root is over and all runs have ended, within
`FLUSH_WITHIN` seconds; a collector that does not answer is no longer waited for then, and whatever the SDK has to say
about that is one line of our log.

By the specification traces go to an OTLP collector on this machine by default. A command line that looks for one on
every machine it runs on would be a nuisance, so here a variable has to name an exporter or an endpoint; see
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

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from ...io.redact import Redactor
    from ...runs.root import Root

log = logging.getLogger("callboard.telemetry")

FLUSH_WITHIN = 5.0
SIGNALLED_WITHIN = 1.0
"""Seconds after a signal: who wants us to end does not want to wait for a collector."""

QUIET = 300.0
"""Seconds between two log lines about errors of the collector."""

MISSING = (
    "the environment asks for OpenTelemetry (OTEL_...), and the extra `otel` is not installed: "
    "pip install 'callboard[otel]', or set OTEL_SDK_DISABLED=true; nothing is exported"
)


KNOWN = ("otlp", "console", "none")
PROTOCOL = "http/protobuf"


@asynccontextmanager
async def exporting(root: Root, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """See the module. Does nothing, and imports nothing, where nothing is asked for."""
    asked = wanted(environ)
    for problem in asked.problems:
        log.warning("%s", problem)
    providers = await trio.to_thread.run_sync(_set_up, asked, environ) if asked.anything else None
    if providers is None:
        yield
        return
    from ...io.redact import Redactor, secrets_of
    from .attach import listening

    with _Complaints(Redactor(secrets_of(root.settings, environ))) as complaints:
        try:
            with listening(root, *providers, environ=environ):
                yield
        finally:
            within = FLUSH_WITHIN if root.kernel.signal is None else SIGNALLED_WITHIN
            complaints.left = not await _flushed(*providers, within)


def _set_up(asked: Wanted, environ: Mapping[str, str]) -> tuple[TracerProvider, MeterProvider] | None:
    """The SDK's providers; None, with a line in the log, where there can be none."""
    try:
        return _providers(asked, environ)
    except ImportError:
        log.warning(MISSING)
    except Exception as error:  # noqa: BLE001 - what a variable says that the SDK reads; telemetry must not cost anybody their run
        log.warning("OpenTelemetry can't be set up, nothing is exported: %s: %s", type(error).__name__, error)
    return None


def _providers(asked: Wanted, environ: Mapping[str, str]) -> tuple[TracerProvider, MeterProvider]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({"service.version": VERSION, **({} if named else {"service.name": "callboard"})})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in asked.traces:
        # The console's are on stderr: stdout is the run's result.
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
    """An exporter, which brings an HTTP client along, so only if it is wanted."""
    from importlib import import_module

    return getattr(import_module(f"opentelemetry.exporter.otlp.proto.http.{module}"), name)()


async def _flushed(tracers: TracerProvider, meters: MeterProvider, within: float) -> bool:
    async def end(shutdown: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(shutdown, abandon_on_cancel=True)

    with trio.move_on_after(within, shield=True) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end, tracers.shutdown)
            nursery.start_soon(end, lambda: meters.shutdown(within * 1000))
    if scope.cancelled_caught:
        log.warning("the collector did not take the last telemetry within %g s; it is lost", within)
    return not scope.cancelled_caught


@final
class _Complaints(logging.Handler):
    """What the SDK logs while the block lasts: a line of ours now and then, and no traceback.

    Attributes:
        left: whether a thread of the SDK's goes on after the block; its log lines are dropped.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(logging.WARNING)
        self.left = False
        self._redactor = redactor
        self._told = float("-inf")
        self._logger = logging.getLogger("opentelemetry")
        self._before = (self._logger.handlers, self._logger.propagate)

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, if nothing was said lately."""
        now = time.monotonic()
        if not self.left and now - self._told > QUIET:
            self._told = now
            log.warning("telemetry is not exported: %s", self._redactor.text(record.getMessage())[:300])

    def __enter__(self) -> _Complaints:
        self._logger.handlers, self._logger.propagate = [self], False
        return self

    def __exit__(self, *_: object) -> None:
        if not self.left:
            self._logger.handlers, self._logger.propagate = self._before


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where traces and metrics go: names of exporters.

    Attributes:
        problems: what the variables say that can't be done.
    """

    traces: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether something is to be exported."""
        return bool(self.traces or self.metrics)


def wanted(environ: Mapping[str, str]) -> Wanted:
    """What the environment asks for."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Wanted()
    problems: list[str] = []
    traces, metrics = (_exporters(environ, signal, problems) for signal in ("TRACES", "METRICS"))
    return Wanted(traces=traces, metrics=metrics, problems=tuple(dict.fromkeys(problems)))


def _exporters(environ: Mapping[str, str], signal: str, problems: list[str]) -> tuple[str, ...]:
    variable = f"OTEL_{signal}_EXPORTER"
    named = [name.strip().lower() for name in environ.get(variable, "").split(",") if name.strip()]
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not named and any(environ.get(endpoint, "").strip() for endpoint in endpoints):
        named = ["otlp"]
    problems += [
        f"{variable}: there is no exporter '{name[:60]}' here, only otlp, console and none"
        for name in named
        if name not in KNOWN
    ]
    exporters = [name for name in dict.fromkeys(named) if name in KNOWN and name != "none"]
    if "otlp" in exporters:
        general, own = "OTEL_EXPORTER_OTLP_PROTOCOL", f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        variable = own if environ.get(own, "").strip() else general
        protocol = environ.get(variable, "").strip() or PROTOCOL
        if protocol != PROTOCOL:
            problems.append(f"{variable}: OTLP is spoken by {PROTOCOL} here (port 4318), not by '{protocol[:60]}'")
            exporters.remove("otlp")
    return tuple(exporters)
