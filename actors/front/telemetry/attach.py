"""Python API: export traces and metrics of a root's runs to the program's own providers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....protocol.deferred_types import defer
from ....protocol.errors import ConfigError, UsageError
from ....protocol.version import VERSION
from ....supervisors.installation import install_command
from ...runs.root import Root, current

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
else:
    defer(globals(), {"opentelemetry.metrics": "MeterProvider", "opentelemetry.trace": "TracerProvider"})


VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_YES = ("true", "span_only", "span_and_event")
"""Values of the variable that include spans: the first from its early meaning, the others from its later one."""


@contextmanager
def telemetry(
    root: Root | None = None,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool | None = None,
) -> Iterator[None]:
    """Export the runs of a root while the block lasts.

        async with callboard.Root() as root:
            with callboard.telemetry(root, tracer_provider=mine):
                await callboard.run("researcher", "What is a callboard?")

    A run that starts inside one of the program's spans becomes its child. The end of the block flushes nothing: the
    owner of the providers does.

    Args:
        root: root of the runs; by default the root of the enclosing block.
        tracer_provider, meter_provider: destinations; by default OpenTelemetry's global providers.
        content: whether texts of people and models are exported; None for the environment's setting.

    Raises:
        UsageError: there is no root.
        ConfigError: the extra `otel` is not installed.
    """
    root = root or current.get()
    if root is None:
        raise UsageError("telemetry() needs a root: call it inside of `async with callboard.Root() as root:`")
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise ConfigError(f"OpenTelemetry is not installed; run: {install_command('otel')}") from error
    tracers = tracer_provider if tracer_provider is not None else trace.get_tracer_provider()
    meters = meter_provider if meter_provider is not None else metrics.get_meter_provider()
    with listening(root, tracers, meters, environ=os.environ, content=content):
        yield


@contextmanager
def listening(
    root: Root,
    tracers: TracerProvider,
    meters: MeterProvider,
    *,
    environ: Mapping[str, str],
    content: bool | None = None,
) -> Iterator[None]:
    """Turn the events of a root's runs into spans and measurements while the block lasts."""
    from ...io.secret_redaction import Redactor, secrets_of
    from .spans import ContentRecorder, Listener

    wanted = wants_content(environ) if content is None else content
    told = ContentRecorder(Redactor(secrets_of(root.settings, environ))) if wanted else None
    listener = Listener(tracers, meters, told, VERSION)
    try:
        with root.bus.listen(listener.hear):
            yield
    finally:
        listener.close()


def wants_content(environ: Mapping[str, str]) -> bool:
    """Return whether the environment requests texts of people and models."""
    return environ.get(VARIABLE, "").strip().lower() in _YES
