"""The Python API: traces and metrics of a root's runs, to providers of the program's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....protocol.errors import ConfigError, UsageError
from ....protocol.version import VERSION
from ...runs.root import Root, current

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_YES = ("true", "span_only", "span_and_event")
"""The variable's first meaning, and the two of its later ones that speak of spans."""


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

    A run that is started inside of a span of yours is its child. Nothing is flushed at the end: that is up
    to the providers' maker.

    Args:
        root: whose runs; by default those of the block we are in.
        tracer_provider, meter_provider: where to; by default OpenTelemetry's global ones.
        content: whether words of people and models are exported; None for what the environment says.

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
        raise ConfigError("OpenTelemetry is not installed: pip install 'callboard[otel]'") from error
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
    from ...io.redact import Redactor, secrets_of
    from .spans import Content, Listener

    wanted = wants_content(environ) if content is None else content
    told = Content(Redactor(secrets_of(root.settings, environ))) if wanted else None
    listener = Listener(tracers, meters, told, VERSION)
    try:
        with root.bus.listen(listener.hear):
            yield
    finally:
        listener.close()


def wants_content(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for words of people and models."""
    return environ.get(VARIABLE, "").strip().lower() in _YES
